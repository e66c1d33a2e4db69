/*
 * cmd_transform.c - `pytreefs transform`: what a file of rules makes of a tree, before anyone mounts it.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "handlers/node_tree.h"
#include "tools/cmd.h"

static int print_leaf(const struct tree_node *leaf, bool json, bool first)
{
	auto_buf path = { 0 }, how = { 0 }, line = { 0 };
	int r = tree_path(leaf, &path);

	if (r >= 0)
		r = transform_text(leaf, &how);
	if (r >= 0 && json) {
		r = buf_addf(&line, "%s\n  {\"leaf\": ", first ? "" : ",");
		if (r >= 0)
			r = json_put_str(&line, buf_span(&path), JSON_PRETTY);
		if (r >= 0)
			r = buf_add_str(&line, ", \"from\": ");
		if (r >= 0)
			r = json_put_str(&line, buf_span(&how), JSON_PRETTY);
		if (r >= 0)
			r = buf_add_byte(&line, '}');
	} else if (r >= 0) {
		r = buf_addf(&line, "%.*s <- %.*s\n", SPAN_ARG(buf_span(&path)), SPAN_ARG(buf_span(&how)));
	}
	if (r >= 0)
		fwrite(line.p, 1, line.n, stdout);
	return r;
}

/* A value that cannot be computed is better known now. */
static int check_leaf(struct item *item, const struct tree_node *leaf)
{
	auto_value v = { 0 };

	return leaf->derived ? leaf_open(item, leaf, &v) : 0;
}

static int print_item(struct item *item, bool json)
{
	const struct tree *t = item->tree;
	bool first = true;
	int r = 0;

	if (json)
		printf("[");
	for (uint32_t i = 0; i < t->n_nodes && r >= 0; i++) {
		if (t->nodes[i]->kind != TREE_LEAF)
			continue;
		r = check_leaf(item, t->nodes[i]);
		if (r >= 0)
			r = print_leaf(t->nodes[i], json, first);
		first = false;
	}
	if (json)
		printf("\n]\n");
	return r < 0 ? r : EXIT_OK;
}

/* The one item that the path names, or that is in the step it names. */
static int find_item(struct source *s, struct item **ret)
{
	auto_listing l = { 0 };
	int r;

	if (s->node->ops == &node_dir_ops) {
		*ret = item_ref(container_of(s->node, struct node_dir, node)->item);
		return 0;
	}
	r = node_list(s->node, &l);
	for (size_t i = 0; r >= 0 && i < l.n; i++) {
		auto_node *n = NULL;

		if (*listing_name(&l, i) == '.' || node_lookup(s->node, span_str(listing_name(&l, i)), &n) < 0)
			continue;
		if (n->ops == &node_dir_ops) {
			*ret = item_ref(container_of(n, struct node_dir, node)->item);
			return 0;
		}
	}
	return r < 0 ? r : fail(-EINVAL, "'%s' has no tree", s->inner);
}

static int run_transform(struct cmd_args *a)
{
	auto_buf option = { 0 };
	auto_source s = { 0 };
	/* Given back before its checkpoint is closed. */
	auto_of(item) struct item *item = NULL;
	int r;

	if (!cmd_value(a, "check"))
		return cmd_usage(a->cmd, "--check FILE.json is missing");
	r = buf_addf(&option, "transforms=%s", cmd_value(a, "check"));
	if (r >= 0)
		r = option_set(&a->options, buf_str(&option), false);
	if (r >= 0)
		r = source_open(a, a->arg[0], &s);
	if (r >= 0)
		r = find_item(&s, &item);
	return r < 0 ? r : print_item(item, cmd_flag(a, "json"));
}

static const struct cmd_option options[] = {
	{ "check", 0, "FILE.json", "the file of rules, as for -o transforms=" },
	{ "json", 'j', NULL, "a list of {leaf, from}" },
	{ 0 },
};

const struct cmd cmd_transform = {
	.name = "transform",
	.args = "STEP|ITEM",
	.summary = "what a file of rules makes of a tree: each leaf and where it comes from",
	.help = "Status 1 when a rule names what is not there, or a value cannot be made. To see the tree itself:\n"
		"pytreefs mount -o transforms=FILE.json, or ls -o transforms=FILE.json.",
	.example = "pytreefs transform --check tests/data/transform_rules.json tests/data/sample/latest/state",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.takes_mount_options = true,
	.run = run_transform,
};
