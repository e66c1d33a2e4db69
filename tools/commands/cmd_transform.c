/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_transform.c - `pytreefs transform`: prints the tree that a file of rules makes, before it is
 * mounted.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/subtree/subtree.h"
#include "tools/cli/cmd.h"
#include "tools/convert/rules.h"

/*
 * The state of printing: one item, or all items of a step, whose names then precede their leaves.
 */
struct check {
	const struct transform *t;
	bool json, named, any;
	bool found; /* a rule that makes nothing, or a leaf that no rule uses */
};

static int transform_put_name(const struct check *c, struct span name, struct buf *ret)
{
	return c->json ? json_put_str(ret, name, JSON_PRETTY) : buf_add_shown(ret, name);
}

static int transform_print_leaf(struct check *c, const struct transform *t, const char *item,
				const struct tree_node *leaf)
{
	auto_buf path = { 0 }, how = { 0 }, to = { 0 }, from = { 0 };
	int r = c->named ? buf_addf(&path, "%s/", item) : 0;

	if (r < 0)
		return r;
	r = tree_path(leaf, &path);
	if (r < 0)
		return r;
	r = transform_text(t, leaf, &how);
	if (r < 0)
		return r;
	if (transform_put_name(c, buf_span(&path), &to) < 0 ||
	    transform_put_name(c, buf_span(&how), &from) < 0)
		return -ENOMEM;
	if (c->json)
		printf("%s\n  {\"leaf\": %.*s, \"from\": %.*s}", c->any ? "," : "",
		       SPAN_ARG(buf_span(&to)), SPAN_ARG(buf_span(&from)));
	else
		printf("%.*s <- %.*s\n", SPAN_ARG(buf_span(&to)), SPAN_ARG(buf_span(&from)));
	c->any = true;
	return 0;
}

/* Report rules that match nothing. This is not an error, since Orbax ignores such rules. */
static int report_idle(struct check *c, const char *item, const struct tree *tree)
{
	auto_buf lines = { 0 };
	int r = transform_idle(c->t, tree, &lines);
	struct span rest = buf_span(&lines);

	c->found |= rest.n > 0;
	while (r >= 0 && rest.n) {
		size_t n = (size_t)((const uint8_t *)memchr(rest.p, '\n', rest.n) - rest.p);

		fputs("pytreefs: ", stderr);
		print_name(stderr, c->named ? item : "");
		fprintf(stderr, "%s%.*s\n", c->named ? ": " : "", (int)n, (const char *)rest.p);
		rest = span_from(rest, n + 1);
	}
	return r;
}

/* Report stored leaves that no rule uses, or only in part. */
static int report_unused(struct check *c, const char *item, const struct tree *tree)
{
	auto_free struct transform_unused *unused = NULL;
	size_t n = 0;
	int r = transform_unused(c->t, tree, &unused, &n);

	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_buf text = { 0 };

		r = transform_unused_text(&unused[i], &text);
		if (r < 0 || !buf_str(&text))
			return -ENOMEM;
		fputs("pytreefs: ", stderr);
		print_name(stderr, c->named ? item : "");
		fprintf(stderr, "%s%s", c->named ? ": " : "",
			unused[i].parts ? "stored leaf " : "no rule uses ");
		print_name(stderr, buf_str(&text));
		fputc('\n', stderr);
	}
	c->found |= n > 0;
	return r;
}

static int print_item(struct check *c, const char *name, struct item *item,
		      const struct tree_node *below)
{
	const struct transform *t = transform_is_for(c->t, item->path) ? c->t : NULL;
	const struct tree *tree = item->tree;
	uint32_t end = subtree_end(below);
	int r;

	for (uint32_t i = below->id; i < end; i++) {
		const struct tree_node *leaf = tree->nodes[i];
		auto_value v = { 0 };

		if (leaf->kind != TREE_LEAF)
			continue;
		/* Compute the value, so that an error is found now. */
		r = leaf->source ? leaf_open(item, leaf, &v) : 0;
		if (r < 0)
			return r;
		r = transform_print_leaf(c, t, name, leaf);
		if (r < 0)
			return r;
	}
	if (!t)
		return 0;
	r = report_idle(c, name, tree);
	return r < 0 ? r : report_unused(c, name, tree);
}

/* Print the item at the path, or the trees of the step at the path. */
static int print_items(struct check *c, struct source *s)
{
	auto_listing l = { 0 };
	const char *what = s->inner[0] ? s->inner : s->source;
	const struct node_dir *d =
		s->node->ops == &node_dir_ops ? container_of(s->node, struct node_dir, node) : NULL;
	size_t trees = 0;
	int r;

	if (d)
		return print_item(c, "", d->item, d->tree);
	r = node_list(s->node, &l);
	/*
	 * The first pass opens all trees, which shows whether there are several, and finds errors.
	 */
	for (int pass = 0; pass < 2; pass++) {
		c->named = trees > 1;
		for (size_t i = 0; r >= 0 && i < l.n; i++) {
			const char *name = listing_name(&l, i);
			auto_node *n = NULL;

			if (*name == '.')
				continue;
			r = node_lookup(s->node, span_str(name), &n);
			if (r < 0)
				return err_at(r, "'%s'", name);
			if (n->ops != &node_dir_ops)
				continue;
			trees++;
			d = container_of(n, struct node_dir, node);
			if (pass)
				r = print_item(c, name, d->item, d->tree);
		}
	}
	return r < 0 ? r : trees ? 0 : fail(-EINVAL, "'%s' has no tree", what);
}

static int run_transform(struct cmd_args *a)
{
	auto_buf option = { 0 };
	auto_source s = { 0 };
	struct check c = { .json = cmd_flag(a, "json") };
	int r;

	if (!cmd_value(a, "check"))
		return cmd_usage(a->cmd, "--check FILE.json is missing");
	r = buf_addf(&option, "transforms=%s", cmd_value(a, "check"));
	if (r < 0)
		return r;
	r = option_set(&a->options, buf_str(&option), false);
	if (r < 0)
		return r;
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	c.t = a->options.transform;
	if (c.json)
		printf("[");
	r = print_items(&c, &s);
	if (c.json)
		printf("\n]\n");
	if (r < 0)
		return r;
	if (c.found && cmd_flag(a, "strict"))
		return fail(-EINVAL, "--strict: the rules leave out what stands above");
	return EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "check", 0, "FILE.json", "the file of rules, as for -o transforms=" },
	OPTION_STRICT,
	{ "json", 'j', NULL, "print a list of {leaf, from}" },
	{ 0 },
};

const struct cmd cmd_transform = {
	.name = "transform",
	.args = "STEP|ITEM",
	.summary = "print the tree that a file of rules makes: each leaf and its origin",
	.help = "Exit status 1: a rule names a leaf that does not exist, or a value cannot be "
		"computed. A rule\n"
		"that makes nothing, and a stored leaf that no rule uses, are reported on stderr. "
		"If a step has\n"
		"several trees, the name of the item precedes each leaf. To see the tree itself:\n"
		"pytreefs mount -o transforms=FILE.json, or ls -o transforms=FILE.json.",
	.example = "echo '{\"rules\": [{\"key\": \"count\", \"original_key\": \"step\"}]}' "
		   ">rules.json\n"
		   "pytreefs transform --check rules.json ckpts/latest/state",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.run = run_transform,
};
