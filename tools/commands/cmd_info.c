/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_info.c - `pytreefs info`: describes one path, or the built-in parts of the program.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/sandbox/sandbox.h"
#include "core/step/step.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/leaf_plugin.h"
#include "handlers/namespace/node_parts.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/plugin/plugins.h"
#include "handlers/subtree/leaf_table.h"
#include "tools/cli/cmd.h"

static void info_add(struct buf *out, bool json, const char *name, struct span value)
{
	if (json) {
		buf_addf(out, "%s\n  ", out->n > 1 ? "," : "");
		json_put_str(out, span_str(name), JSON_PRETTY);
		buf_addf(out, ": %.*s", SPAN_ARG(value));
	} else {
		buf_addf(out, "%-16s ", name);
		buf_add_shown(out, value);
		buf_add_byte(out, '\n');
	}
}

static void add_text(struct buf *out, bool json, const char *name, const char *value)
{
	auto_buf text = { 0 };

	if (json)
		json_put_str(&text, span_str(value), JSON_PRETTY);
	else
		buf_add_str(&text, value);
	info_add(out, json, name, buf_span(&text));
}

static void info_add_number(struct buf *out, bool json, const char *name, uint64_t value)
{
	auto_buf text = { 0 };

	buf_addf(&text, "%llu", (unsigned long long)value);
	info_add(out, json, name, buf_span(&text));
}

/* ---- built-in parts ---- */

/* A type of leaves or items, or a function. */
struct part {
	const char *name, *summary;
	const char *plugin;         /* NULL: it is built in */
	const char *is;             /* text before the summary */
	const char *member, *value; /* of its object; value: JSON */
	struct span types;          /* JSON, or text */
};

static void list_part(const struct part *p, bool json, bool *first)
{
	auto_buf out = { 0 };

	if (!json) {
		printf("%-8s %s%s%s%s%s%.*s\n", p->name, p->is, p->summary,
		       p->plugin ? "; plugin " : "", p->plugin ? p->plugin : "",
		       p->types.n ? "\n        " : "", SPAN_ARG(p->types));
		return;
	}
	buf_add_byte(&out, '{');
	add_text(&out, true, "name", p->name);
	info_add(&out, true, p->member, span_str(p->value));
	if (p->plugin)
		add_text(&out, true, "plugin", p->plugin);
	else
		info_add(&out, true, "plugin", span_str("null"));
	if (p->types.n)
		info_add(&out, true, "types", p->types);
	add_text(&out, true, "summary", p->summary);
	printf("%s\n%.*s\n}", *first ? "" : ",", SPAN_ARG(buf_span(&out)));
	*first = false;
}

static void list_handler(const struct leaf_type *h, const char *plugin, bool json, bool *first)
{
	auto_free char *form = str_fmt("\"%s\"", name_ext_text(h->ext));
	auto_buf types = { 0 };

	for (const char *const *t = h->typestr; *t; t++) {
		if (json) {
			buf_add_str(&types, t == h->typestr ? "[" : ", ");
			json_put_str(&types, span_str(*t), JSON_PRETTY);
		} else {
			buf_addf(&types, " %s", **t ? *t : "(type not recorded)");
		}
	}
	if (json)
		buf_add_str(&types, types.n ? "]" : "[]");
	list_part(&(struct part){ h->name, h->summary, plugin, "", "form", form ? form : "null",
				  buf_span(&types) },
		  json, first);
}

static void list_item_type(const char *name, const char *summary, const char *plugin, bool json,
			   bool *first)
{
	list_part(&(struct part){ name, summary, plugin, "item: ", "item", "true" }, json, first);
}

/* The order is that in which they are asked. */
static int list_handlers(struct cmd_args *a)
{
	bool json = cmd_flag(a, "json"), first = true;

	if (json)
		printf("[");
	for (const struct plugin *p = plugin_first(); p; p = p->next) {
		if (p->leaf)
			list_handler(&p->type, p->name, json, &first);
		for (uint32_t i = 0; i < p->n_values; i++) {
			const struct pytreefs_value_fn *v = p->values[i].value;

			list_part(&(struct part){ v->name, v->summary ? v->summary : "", p->name,
						  "value function ", "value_fn", "true" },
				  json, &first);
		}
	}
	for (size_t i = 0; leaf_types[i] && a->options.handlers == HANDLERS_ALL; i++)
		list_handler(leaf_types[i], NULL, json, &first);
	for (const struct plugin *p = plugin_first(); p; p = p->next)
		if (p->item)
			list_item_type(p->item->name, p->item->handler ? p->item->handler : "",
				       p->name, json, &first);
	for (const struct item_type *t = item_types; t->name; t++)
		list_item_type(t->name, t->summary, NULL, json, &first);
	if (json)
		printf("\n]\n");
	return EXIT_OK;
}

/* ---- one path ---- */

/* Properties that could not be determined; the others are reported nevertheless. */
struct unknown {
	struct buf *text; /* members of a JSON object */
	unsigned n;
};

/*
 * Record that a property is unknown. Returns r when nothing else can be determined either, else 0.
 */
static int add_unknown(struct unknown *u, const char *name, int r)
{
	if (r == -ENOMEM || r == -EINTR)
		return r;
	log_error("cannot determine %s: %s", name, err_text(r));
	buf_addf(u->text, "%s\n    ", u->n++ ? "," : "");
	json_put_name(u->text, span_str(name), JSON_PRETTY);
	json_put_str(u->text, span_str(err_text(r)), JSON_PRETTY);
	return 0;
}

/* Add every user.pytree.* attribute of the node; their values are JSON. */
static int add_attrs(struct buf *out, bool json, struct node *n, struct unknown *u)
{
	auto_buf names = { 0 };
	int r = node_xattr_list(n, &names);

	if (r < 0)
		return add_unknown(u, "attributes", r);
	for (const char *at = NULL; r >= 0 && (at = buf_next_text(&names, at));) {
		const char *name = at + strlen("user.pytree.");
		auto_buf value = { 0 };

		r = node_xattr_get(n, name, &value);
		if (r < 0)
			r = add_unknown(u, name, r);
		else
			info_add(out, json, name, buf_span(&value));
	}
	return r;
}

/* Add the storage of an item, including the results of Orbax's is_ocdbt_checkpoint(). */
static void info_add_item(struct buf *out, bool json, const struct item *item)
{
	add_text(out, json, "store",
		 item->ckpt->only_item  ? "safetensors" :
		 item->is_aggregate     ? "aggregate" :
		 item_is_database(item) ? "ocdbt" :
					  "directories");
	add_text(out, json, "metadata",
		 item->tree->has_metadata ? "_METADATA" :
		 item->is_aggregate       ? "aggregate file" :
					    "none: names only");
	info_add_number(out, json, "leaves", subtree_leaves(item->tree, item->tree->root));
	info_add(out, json, "merged", span_str(item->is_unmerged ? "false" : "true"));
	if (item->tree->has_metadata) {
		info_add_number(out, json, "zarr", item->tree->use_zarr3 ? 3 : 2);
		info_add(out, json, "rich_types", span_str(item->tree->rich ? "true" : "false"));
	}
}

/*
 * Add the amount of data below the path that checksums cover. Errors of leaves are reported
 * elsewhere.
 */
static int add_sums(struct buf *out, bool json, struct node *n)
{
	struct leaf_table_sums sums;
	auto_subtree st = { 0 };
	auto_leaf_table leaf_table = { 0 };
	auto_buf text = { 0 };
	int r = node_open_subtree(n, &st);

	if (r >= 0)
		r = leaf_table_make(&st, LEAF_TABLE_STORED | LEAF_TABLE_SUMS, NULL, LEAF_TABLE_ALL,
				    &leaf_table);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		err_clear();
		return 0;
	}
	leaf_table_sums(&leaf_table, &sums);
	if (json)
		r = buf_addf(&text,
			     "{\"leaves\": %llu, \"bytes\": %llu, \"leaves_without\": %llu, "
			     "\"bytes_without\": %llu, \"leaves_unopened\": %llu}",
			     (unsigned long long)sums.leaves, (unsigned long long)sums.bytes,
			     (unsigned long long)sums.bare_leaves,
			     (unsigned long long)sums.bare_bytes,
			     (unsigned long long)sums.unopened_leaves);
	else
		r = buf_addf(&text,
			     "%llu %s, %llu bytes are covered; %llu %s, %llu bytes cannot be",
			     (unsigned long long)sums.leaves, noun(sums.leaves, "leaf", "leaves"),
			     (unsigned long long)sums.bytes, (unsigned long long)sums.bare_leaves,
			     noun(sums.bare_leaves, "leaf", "leaves"),
			     (unsigned long long)sums.bare_bytes);
	if (r < 0)
		return r;
	if (!json && sums.unopened_leaves)
		r = buf_addf(&text, "; %llu %s cannot be opened",
			     (unsigned long long)sums.unopened_leaves,
			     noun(sums.unopened_leaves, "leaf", "leaves"));
	if (r < 0)
		return r;
	info_add(out, json, "checksums", buf_span(&text));
	return r;
}

/* Add the steps of a root, without opening them. */
static int info_add_steps(struct buf *out, bool json, const struct ns *ns)
{
	bool need_marker = ckpt_needs_marker(ns->ckpt);
	auto_step_list steps = { 0 }, all = { 0 };
	auto_free char *latest = NULL;
	int r = step_list(ns->ckpt->source, need_marker, false, &steps);

	if (r >= 0)
		r = step_list(ns->ckpt->source, need_marker, true, &all);
	if (r >= 0)
		r = step_latest(ns->ckpt->source, &steps, need_marker, &latest);
	if (r < 0 && r != -ENOENT)
		return r;
	err_clear();
	info_add_number(out, json, "steps", steps.n);
	if (steps.n)
		add_text(out, json, "first", steps.entry[0].name);
	if (latest)
		add_text(out, json, "latest", latest);
	/* From any program: in progress, or interrupted. */
	info_add_number(out, json, "unfinished", all.n - MIN(all.n, steps.n));
	return 0;
}

static int info_describe(struct cmd_args *a, struct source *s, struct buf *out, struct unknown *u)
{
	bool json = cmd_flag(a, "json");
	auto_buf sandbox = { 0 };
	struct stat st;
	int r = node_stat(s->node, &st);

	if (r < 0) {
		st.st_mode = 0;
		r = add_unknown(u, "bytes", r);
	}
	if (r < 0)
		return r;
	add_text(out, json, "source", s->source);
	add_text(out, json, "path", s->inner);
	add_text(out, json, "source_shape", shape_text(s->ns->ckpt->shape));
	add_text(out, json, "engine", io_engine_name(s->ns->ckpt->io));
	r = sandbox_print(&sandbox);
	if (r < 0)
		return r;
	info_add(out, json, "sandbox", buf_span(&sandbox));
	if (S_ISREG(st.st_mode)) {
		info_add_number(out, json, "bytes", (uint64_t)st.st_size);
		info_add_number(out, json, "blocks", (uint64_t)st.st_blocks);
	}
	if (node_is_root(s->node)) {
		ns_warn_of_links(s->ns);
		r = info_add_steps(out, json, s->ns);
		if (r < 0)
			return r;
	}
	if (s->node->ops == &node_dir_ops) {
		const struct node_dir *d = container_of(s->node, struct node_dir, node);

		if (d->is_item)
			info_add_item(out, json, d->item);
	}
	r = add_sums(out, json, s->node);
	return r < 0 ? r : add_attrs(out, json, s->node, u);
}

static int run_info(struct cmd_args *a)
{
	bool json = cmd_flag(a, "json");
	auto_source s = { 0 };
	auto_buf out = { 0 }, text = { 0 };
	struct unknown unknown = { .text = &text };
	int r;

	if (cmd_flag(a, "handlers") && a->n_args)
		return cmd_usage(a->cmd, "--handlers lists all types, and takes no path");
	if (cmd_flag(a, "handlers"))
		return list_handlers(a);
	if (a->n_args == 0)
		return cmd_usage(a->cmd, "a path is missing, or --handlers");
	r = source_open(a, a->arg[0], &s);
	if (r < 0)
		return r;
	if (json)
		r = buf_add_byte(&out, '{');
	if (r < 0)
		return r;
	r = info_describe(a, &s, &out, &unknown);
	if (r < 0)
		return r;
	print_buf(stdout, &out);
	if (json && unknown.n)
		printf(",\n  \"unknown\": {%.*s\n  }", SPAN_ARG(buf_span(&text)));
	if (json)
		printf("\n}\n");
	return unknown.n ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "json", 0, NULL, "print one JSON object" },
	{ "handlers", 0, NULL, "list the known types of leaves and items" },
	{ 0 },
};

const struct cmd cmd_info = {
	.name = "info",
	.args = "SOURCE[/PATH]",
	.summary = "print everything that is recorded about a step, item, directory or leaf",
	.help = "For a directory of steps, prints their number, the first and the latest one, and "
		"the number\n"
		"of unfinished ones.\n",
	.example = "pytreefs info ckpts/latest/state",
	.options = options,
	.min_args = 0,
	.max_args = 1,
	.takes_mount_options = true,
	.confined = CMD_READS,
	.found = "a part could not be read; the rest was printed.",
	.run = run_info,
};
