/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_others.c - tells other files in the directory of an item from those that store its tree, and
 * those of a step from its items.
 *
 * An array is in a directory whose name is the leaf's parameter, or the first part of it.
 */
#include "core/step/item_others.h"

#include <dirent.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/kv/kv_table.h"
#include "core/remote/source/url_store.h"
#include "core/step/detect.h"
#include "core/step/step_name.h"
#include "core/tree/digests.h"

#define HIDDEN_MOST 20 /* names that are logged; an item may have any number */

bool item_is_own_name(struct span name)
{
	static const char *const names[] = {
		"_METADATA",  "_CHECKPOINT_METADATA", "checkpoint", "d",
		KV_TABLE_DIR, DIGESTS_FILE,           ".zarray",    ".zattrs",
		".zgroup",    ".zmetadata",           "zarr.json",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(name, span_str(names[i])))
			return true;
	return detect_is_hidden(name) || step_name_is_tmp(name);
}

/* The tree as it is stored, which transforms may have made another one of. */
static const struct tree *stored_tree(const struct item *item)
{
	const struct tree *t = item->tree;

	while (t->made_of)
		t = t->made_of;
	return t;
}

/* The chunks of one bare array are in the item's directory themselves, as are safetensors files. */
static bool has_others(const struct item *item)
{
	return !item->is_file && !item->ckpt->only_item &&
	       (item->is_ocdbt || stored_tree(item)->root->kind != TREE_LEAF);
}

static bool may_be_other(const struct item *item, struct span name)
{
	const char *legacy = item->ckpt->opts.aggregate_filename;

	return !item_is_own_name(name) && !(legacy && span_eq(name, span_str(legacy)));
}

static bool is_of_tree(const struct item *item, struct span name)
{
	const struct tree_node *top = item->tree->root;

	return top->kind == TREE_LEAF ? span_eq(top->name, name) : tree_child(top, name) != NULL;
}

/* Whether a directory has arrays of leaves in it, or is an array or a group that none uses. */
static int holds_arrays(struct item *item, struct span name)
{
	static const char *const documents[] = { ".zarray", "zarr.json", ".zgroup" };
	const struct tree *t = stored_tree(item);
	struct stat st;

	for (uint32_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i]->kind == TREE_LEAF && span_eq(path_first(t->nodes[i]->param), name))
			return 1;
	for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
		auto_free char *path = str_fmt("%.*s/%s", SPAN_ARG(name), documents[i]);
		int r = path ? io_stat(item->dir, path, &st) : -ENOMEM;

		if (r >= 0 || err_is_transient(r))
			return r < 0 ? r : 1;
		err_clear();
	}
	return 0;
}

/* item_other(), whether or not the tree has the name. */
static int look_up(struct item *item, struct span name, struct stat *ret)
{
	auto_free char *file = span_dup_str(name);
	struct stat st;
	int r = file ? io_stat(item->dir, file, &st) : fail(-ENOMEM, "cannot look up a file");

	if (r == -ENOENT || r == -ENOTDIR || r == -ENAMETOOLONG) {
		err_clear();
		return 0;
	}
	if (r >= 0 && S_ISDIR(st.st_mode))
		r = item_has_database(item, file) ? 1 : holds_arrays(item, name);
	if (r != 0)
		return MIN(r, 0);
	*ret = st;
	return S_ISDIR(st.st_mode) || S_ISREG(st.st_mode);
}

int item_other(struct item *item, struct span name, struct stat *ret)
{
	return !has_others(item) || !may_be_other(item, name) || is_of_tree(item, name) ?
		       0 :
		       look_up(item, name, ret);
}

struct others {
	struct item *item;
	unsigned says_hidden; /* how many hidden names are still logged */
	struct span *used;    /* first parts of the parameters of leaves, sorted; NULL: not yet */
	size_t n;
	struct buf found; /* of each other: its type, a byte, and its name */
};

static int item_others_by_name(const void *a, const void *b)
{
	return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a + 1, *(const char *const *)b + 1);
}

static int collect_used(struct others *o)
{
	const struct tree *t = stored_tree(o->item);

	o->used = calloc(t->n_nodes + 1, sizeof(*o->used));
	if (!o->used)
		return fail(-ENOMEM, "cannot look at '%s'", o->item->path);
	for (uint32_t i = 0; i < t->n_nodes; i++)
		if (t->nodes[i]->kind == TREE_LEAF)
			o->used[o->n++] = path_first(t->nodes[i]->param);
	qsort(o->used, o->n, sizeof(*o->used), item_others_by_name);
	return 0;
}

static int add_other(void *arg, const char *file, unsigned char type)
{
	struct others *o = arg;
	struct span name = span_str(file);
	struct stat st;
	int r = 0;

	if (!may_be_other(o->item, name))
		return 0;
	/* Most directories are those of leaves: they are found without a look at each of them. */
	if (type != DT_REG && !o->used)
		r = collect_used(o);
	if (r < 0 || (type != DT_REG && o->n &&
		      bsearch(&name, o->used, o->n, sizeof(name), item_others_by_name)))
		return r;
	if (type != DT_REG)
		r = look_up(o->item, name, &st);
	if (type != DT_REG && r <= 0)
		return r;
	if (is_of_tree(o->item, name)) {
		if (o->says_hidden && o->says_hidden--)
			log_warn("'%s/%s' is not shown, and no copy has it, since the tree has its "
				 "name",
				 o->item->path, file);
		return 0;
	}
	r = buf_add_byte(&o->found, type != DT_REG && S_ISDIR(st.st_mode) ? DT_DIR : DT_REG);
	return r < 0 ? r : buf_add(&o->found, file, name.n + 1);
}

/* Call each() in the order of the names. */
static int call_each(const struct buf *found, io_list_fn *each, void *arg)
{
	auto_free const char **at = NULL;
	size_t n = 0, cap = 0;
	int r = 0;

	for (size_t i = 0; i < found->n; i += strlen((char *)found->p + i + 1) + 2) {
		if (!array_reserve(at, cap, n + 1))
			return fail(-ENOMEM, "cannot list files");
		at[n++] = (const char *)found->p + i;
	}
	if (n)
		qsort(at, n, sizeof(*at), by_text);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = each(arg, at[i] + 1, (unsigned char)at[i][0]);
	return MIN(r, 0);
}

/* ---- files in zarr groups below the top ---- */

struct group {
	struct others *o;
	const char *path; /* below the item */
};

/* Append the path of a group, whose parts are the keys. */
static int group_path(const struct tree_node *n, struct buf *ret)
{
	int r = n->parent ? group_path(n->parent, ret) : 0;

	if (r < 0)
		return r;
	if (ret->n)
		r = buf_add_byte(ret, '/');
	return r < 0 ? r : buf_add_span(ret, n->key);
}

static int say_in_group(void *arg, const char *file, unsigned char type)
{
	const struct group *g = arg;
	struct span name = span_str(file);

	if (type != DT_REG || item_is_own_name(name) || !g->o->says_hidden)
		return 0;
	g->o->says_hidden--;
	log_warn("'%s/%s/%s' is not shown, and no copy has it: only the top of a zarr group may "
		 "have other files",
		 g->o->item->path, g->path, file);
	return 0;
}

static int look_in_group(struct others *o, const struct tree_node *node)
{
	struct group g = { .o = o };
	auto_buf path = { .metered = true };
	int r = group_path(node, &path);

	g.path = r < 0 ? NULL : buf_str(&path);
	if (!g.path)
		return fail(-ENOMEM, "cannot look at '%s'", o->item->path);
	r = io_list(o->item->dir, g.path, say_in_group, &g);
	/* A container of an export may be in its manifest only. */
	if (r < 0 && !err_is_transient(r))
		err_clear();
	return err_is_transient(r) ? r : 0;
}

static int say_files_in_groups(struct others *o)
{
	const struct tree *t = stored_tree(o->item);
	int r = 0;

	for (uint32_t i = 0; i < t->n_nodes && r >= 0 && o->says_hidden; i++)
		if (t->nodes[i]->kind != TREE_LEAF && t->nodes[i]->parent)
			r = look_in_group(o, t->nodes[i]);
	return r;
}

bool others_are_listed(const struct ckpt *c)
{
	return c->source->fd >= 0 || store_is_bucket(c->opts.source);
}

int item_each_other(struct item *item, io_list_fn *each, void *arg)
{
	struct others o = { .item = item, .found = { .metered = true } };
	int r;

	if (!has_others(item) || !others_are_listed(item->ckpt))
		return 0;
	o.says_hidden = atomic_flag_test_and_set(&item->said_hidden) ? 0 : HIDDEN_MOST;
	r = io_list(item->dir, ".", add_other, &o);
	if (r >= 0 && item->is_hierarchy)
		r = say_files_in_groups(&o);
	if (r >= 0)
		r = call_each(&o.found, each, arg);
	buf_release(&o.found);
	free(o.used);
	return r;
}

bool step_has_other(struct span name, unsigned char type)
{
	return (type == DT_REG || (type == DT_DIR && name.n && name.p[0] == '.')) &&
	       !span_eq(name, span_str("_CHECKPOINT_METADATA")) && !detect_is_hidden(name) &&
	       !step_name_is_tmp(name) && !span_starts(name, span_str(".pytreefs"));
}
