/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_tree.c - read or reconstruct the tree of an item.
 *
 * The tree comes from `_METADATA`, with the values of a legacy aggregate file beside it; without
 * `_METADATA` from the aggregate file alone, or from names of arrays and strings (item_names.c).
 */
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/item_impl.h"
#include "core/tree/strings.h"

/* ---- the legacy aggregate file ---- */

/* Returns 1 when the file exists and was read or mapped; 0 when it does not exist. */
static int open_aggregate(struct item *item, const char *name)
{
	int r = io_file_open(item->dir, name, O_RDONLY, 0, &item->aggregate);

	if (r < 0)
		return err_except(r, -ENOENT, -EISDIR);
	if (item->aggregate->size > LIMIT_AGGREGATE_BYTES)
		return fail(-EFBIG, "'%s' has %llu bytes, the limit for an aggregate file is %llu",
			    name, (unsigned long long)item->aggregate->size,
			    (unsigned long long)LIMIT_AGGREGATE_BYTES);
	r = document_of(item->ckpt, item->aggregate, &item->aggregate_text);
	return r < 0 ? r : 1;
}

/* ---- a tree from an aggregate file alone ---- */

/* Returns 1 when the text of a leaf is in a strings file, else 0. */
static int item_tree_is_string(struct item *item, const struct tree_node *leaf)
{
	auto_buf path = { .metered = true };
	struct stat st;
	int r;

	if (item->strings && strings_find(item->strings, leaf->param))
		return 1;
	if (io_path_check(leaf->param, "leaf") < 0) {
		err_clear();
		return 0;
	}
	r = buf_addf(&path, "%.*s/_strings.json", SPAN_ARG(leaf->param));
	if (r < 0 || !buf_str(&path))
		return fail(-ENOMEM, "cannot look for '%.*s'", SPAN_ARG(leaf->param));
	r = io_stat(item->dir, buf_str(&path), &st);
	err_clear();
	return r >= 0 && S_ISREG(st.st_mode);
}

/*
 * Find the leaves that are strings: the aggregate file has a placeholder for each value stored
 * elsewhere, without its type.
 */
static int find_strings(struct item *item)
{
	int r = item_read_strings(item);

	for (uint32_t i = 0; i < item->tree->n_nodes && r >= 0; i++) {
		struct tree_node *t = item->tree->nodes[i];

		if (t->kind != TREE_LEAF || t->value != TREE_VALUE_STORED || t->value_type.n)
			continue;
		r = item_tree_is_string(item, t);
		if (r > 0)
			t->value_type = span_str("string");
	}
	return r;
}

/* ---- a tree from names alone ---- */

int item_has_trace(const struct item *item)
{
	static const char *const names[] = { "_sharding", "_strings.json", "array_metadatas",
					     "commit_success.txt", "ocdbt.process_0" };

	if (item->is_unmerged)
		return 1;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct stat st;
		int r = io_stat(item->dir, names[i], &st);

		if (r >= 0 || err_is_transient(r))
			return r < 0 ? r : 1;
		err_clear();
	}
	return 0;
}

int item_remark(struct item *item, const char *text)
{
	log_warn("item '%s' %s", item->path, text);
	free(item->remark);
	item->remark = strdup(text);
	return item->remark ? 0 : fail(-ENOMEM, "cannot open item '%s'", item->path);
}

/* Of a tree that Orbax wrote, names do not tell everything. */
static int read_names(struct item *item)
{
	int r = item_tree_of_names(item);

	if (r < 0 || item->is_hierarchy)
		return r;
	r = item_has_trace(item);
	return r <= 0 ?
		       r :
		       item_remark(item, "has lost its _METADATA: its tree is made of the names of "
					 "its arrays, which do not tell lists, tuples, None and "
					 "keys with dots");
}

/* ---- all sources of a tree ---- */

int item_read_file(struct item *item, const char *name)
{
	int r = open_aggregate(item, name);

	if (r == 0)
		return fail(-ENOENT, "'%s' went away", name);
	item->is_aggregate = true;
	if (r < 0)
		return r;
	r = tree_parse_aggregate(item->aggregate_text.text, name, &item->tree);
	return r < 0 || !item->ckpt->only_item ? r : item_remark_shard(item);
}

/*
 * Whether a release that wrote the documents may have put arrays into databases below the item:
 * the first one that recorded the version of zarr was not one of these.
 */
static bool may_have_databases(const struct item *item)
{
	return !item->tree->has_use_zarr3;
}

static int read_metadata(struct item *item, struct span text, bool has_aggregate)
{
	int r = tree_parse_metadata(text, "'_METADATA'", &item->tree);

	if (r < 0)
		return r;
	item->below_listed = !may_have_databases(item);
	return !has_aggregate ? 0 :
				tree_merge_aggregate(item->tree, item->aggregate_text.text,
						     "aggregate file");
}

int item_read_tree(struct item *item)
{
	auto_document text = { 0 };
	int aggregate,
		r = document_read(item->ckpt, item->dir, "_METADATA", LIMIT_JSON_BYTES, &text);
	bool has_metadata = r >= 0;

	if (r < 0 && r != -ENOENT)
		return r;
	err_clear();
	aggregate = open_aggregate(item, item->ckpt->opts.aggregate_filename);
	if (aggregate < 0)
		return aggregate;
	if (has_metadata)
		return read_metadata(item, text.text, aggregate);
	if (!aggregate)
		return read_names(item);
	item->is_aggregate = true;
	r = tree_parse_aggregate(item->aggregate_text.text, "aggregate file", &item->tree);
	item->below_listed = r < 0;
	return r < 0 ? r : find_strings(item);
}
