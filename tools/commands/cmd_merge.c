/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_merge.c - `pytreefs merge`: merges the databases of a job's processes into one, in place, as
 * Orbax does at the end of a save.
 *
 * No array is copied: the new database refers to values in the parts. Before the merge, the leaves
 * in `_METADATA` are looked up in the union of the parts.
 */
#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/ocdbt/ocdbt.h"
#include "handlers/leaf/leaf.h"
#include "tools/cli/interrupt.h"
#include "tools/convert/atomic_step.h"
#include "tools/select/selection.h"

#define NEW_MANIFEST "manifest.ocdbt.pytreefs-new"

/* ---- completeness ---- */

static int merge_check_leaf(struct item *item, const struct tree_node *t)
{
	auto_value v = { 0 };
	uint64_t bytes, objects, wanted;
	int r = leaf_open(item, t, &v);

	if (r < 0 || v.kind != VALUE_ARRAY || !item->missing_is_error)
		return r;
	wanted = zarr_meta_objects(&v.array->meta);
	r = zarr_stored(v.array, &bytes, &objects);
	if (r < 0)
		return r;
	if (objects < wanted)
		return fail(-EUCLEAN, "%llu of its %llu chunks %s in no part",
			    (unsigned long long)(wanted - objects), (unsigned long long)wanted,
			    noun(wanted - objects, "is", "are"));
	return r;
}

/* Count the leaves that are incomplete, and report each. */
static int check_leaves(struct item *item, size_t *ret_missing)
{
	size_t missing = 0;

	for (uint32_t i = 0; i < item->tree->n_nodes; i++) {
		const struct tree_node *t = item->tree->nodes[i];
		int r = t->kind == TREE_LEAF && t->value == TREE_VALUE_STORED && leaf_type_of(t) ?
				merge_check_leaf(item, t) :
				0;

		if (r >= 0)
			continue;
		if (err_is_transient(r))
			return r;
		if (strncmp(err_text(r), "leaf '", strlen("leaf '")))
			r = err_at(r, "leaf '%.*s'", SPAN_ARG(t->param));
		print_failure(r);
		missing++;
	}
	*ret_missing = missing;
	return 0;
}

/* ---- merging ---- */

struct merging {
	struct ckpt *ckpt;
	const struct ocdbt_parts *parts;
	struct ocdbt_merge_stats *stats;
};

static int merge_nodes(void *arg, const struct ocdbt_config *config, struct ocdbt_data *nodes,
		       struct ocdbt_version *root)
{
	const struct merging *m = arg;
	int r = ocdbt_merge_dirs(m->ckpt->source, m->parts, m->ckpt->cache, config, nodes, root,
				 m->stats);

	if (r < 0)
		return r;
	/* A killed process may have left one. */
	r = io_remove_tree(m->ckpt->source, NEW_MANIFEST);
	return r < 0 ? r : interrupt_check();
}

/* Sync the name of the manifest; if that fails, it is as if there had been no merge. */
static int sync_name(struct io_dir *dir, struct ocdbt_data **nodes)
{
	struct err_note why;
	int r = io_dirop(dir, IO_SYNC_DIR, ".", NULL, 0);

	if (r >= 0)
		return r;
	err_save(r, &why);
	/* A manifest that stays refers to the nodes, which then must not be discarded. */
	if (io_dirop(dir, IO_RENAME_NEW, "manifest.ocdbt", NEW_MANIFEST, 0) < 0) {
		ocdbt_data_free(*nodes);
		*nodes = NULL;
	}
	return err_restore(&why);
}

static int merge_parts(struct ckpt *ckpt, const struct ocdbt_parts *parts,
		       struct ocdbt_merge_stats *ret)
{
	auto_of(ocdbt_data) struct ocdbt_data *nodes = NULL;
	struct merging m = { ckpt, parts, ret };
	struct err_note why;
	int r = ocdbt_database_write(ckpt->source, 0, NEW_MANIFEST, merge_nodes, &m, &nodes);

	if (r >= 0)
		r = interrupt_check();
	if (r >= 0)
		r = io_dirop(ckpt->source, IO_RENAME_NEW, NEW_MANIFEST, "manifest.ocdbt", 0);
	if (r >= 0)
		r = sync_name(ckpt->source, &nodes);
	if (r >= 0)
		return r;
	err_save(r, &why);
	if (nodes)
		ocdbt_data_discard(nodes);
	io_remove_tree(ckpt->source, NEW_MANIFEST);
	return err_restore(&why);
}

static int report(struct cmd_args *a, size_t parts, const struct ocdbt_merge_stats *stats,
		  size_t missing)
{
	if (cmd_flag(a, "json"))
		printf("{\"parts\": %zu, \"keys\": %llu, \"repeated\": %llu, \"missing\": %zu}\n",
		       parts, (unsigned long long)stats->keys, (unsigned long long)stats->repeated,
		       missing);
	else if (!cmd_flag(a, "quiet"))
		printf("%zu %s merged, %llu %s\n", parts, noun(parts, "part", "parts"),
		       (unsigned long long)stats->keys, noun(stats->keys, "key", "keys"));
	return missing ? EXIT_FOUND : EXIT_OK;
}

static int merge_item(struct cmd_args *a, struct ns *ns, const struct ocdbt_parts *parts)
{
	auto_of(item) struct item *item = NULL;
	struct ocdbt_merge_stats stats = { 0 };
	size_t missing = 0;
	int r = ns_item(ns, ".", &item);

	if (r < 0)
		return r;
	r = check_leaves(item, &missing);
	if (r < 0)
		return r;
	if (missing && !cmd_flag(a, "force")) {
		auto_buf names = { 0 };

		if (ocdbt_parts_text(parts, &names) < 0)
			return -ENOMEM;
		fprintf(stderr,
			"pytreefs: %zu %s not whole in %.*s; nothing was merged (--force merges "
			"what is there)\n",
			missing, noun(missing, "leaf is", "leaves are"),
			SPAN_ARG(buf_span(&names)));
		return EXIT_FOUND;
	}
	r = merge_parts(ns->ckpt, parts, &stats);
	return r < 0 ? r : report(a, parts->n, &stats, missing);
}

static int run_merge(struct cmd_args *a)
{
	auto_ocdbt_parts parts = { 0 };
	static const struct ocdbt_merge_stats none;
	auto_of(ns) struct ns *ns = NULL;
	auto_free char *path = NULL;
	struct stat st;
	bool is_merged;
	int r;

	bound_memory(a);
	interrupt_catch();
	/* No warning is wanted that the item was never merged. */
	log_stderr_level(LOG_LEVEL_ERROR);
	r = source_in_place(a, a->arg[0], &path);
	/* Accept any item, even with a name of one that was never committed. */
	a->options.shape = SHAPE_ITEM;
	if (r >= 0)
		r = ns_open(path, &a->options, &ns);
	if (r < 0) {
		a->options.shape = SHAPE_UNKNOWN;
		return source_fail_part(a, a->arg[0], r);
	}
	if (ns->ckpt->source->bucket)
		return fail(-EOPNOTSUPP,
			    "'%s' is in a bucket, and is not merged in place: `pytreefs "
			    "convert` makes a merged copy",
			    a->arg[0]);
	r = ocdbt_parts_find(ns->ckpt->source, &parts);
	if (r < 0)
		return r;
	r = io_stat(ns->ckpt->source, "manifest.ocdbt", &st);
	if (r < 0 && r != -ENOENT)
		return r;
	err_clear();
	is_merged = r >= 0;
	/* For example a step: refuse it before it is opened as an item. */
	if (!is_merged && parts.n == 0)
		return fail(-EINVAL,
			    "'%s' has no per-process databases; an item of a step is wanted",
			    a->arg[0]);
	r = ns_start(ns, NULL);
	if (r < 0)
		return r;
	if (is_merged) {
		if (cmd_flag(a, "json"))
			return report(a, 0, &none, 0);
		if (!cmd_flag(a, "quiet"))
			fprintf(stderr, "pytreefs: '%s' is merged already\n", a->arg[0]);
		return EXIT_OK;
	}
	return merge_item(a, ns, &parts);
}

static const struct cmd_option options[] = { { "force", 0, NULL,
					       "merge even if leaves are incomplete" },
					     OPTION_JSON,
					     OPTION_QUIET,
					     { 0 } };

const struct cmd cmd_merge = {
	.name = "merge",
	.args = "ITEM",
	.summary = "merge the databases of several processes (ocdbt.process_*), in place",
	.help = "Does what Orbax does at the end of a save, for an item whose save ended before "
		"that. No array is\n"
		"copied. If leaves of `_METADATA` are missing in the parts, they are listed, "
		"nothing is merged,\n"
		"and the exit status is 1. An item that is merged already is not changed.",
	.example = "pytreefs merge ckpts/1000/state",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.alone = true,
	.takes_mount_options = true,
	.ignores = { "restore_dtype", "transforms" },
	.confined = CMD_WRITES,
	.found = "a data file is missing.",
	.run = run_merge,
};
