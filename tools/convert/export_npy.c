/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_npy.c - exports a directory of leaves, as a mount shows it.
 *
 * As in a mount, xattrs have what names cannot express, if the file system has xattrs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/base/err.h"
#include "handlers/format/value.h"
#include "tools/convert/export.h"

/* Without xattrs in the file system, kinds and dtypes are lost, but the export succeeds. */
static void mark_json(const char *path, const char *name, struct span value)
{
	char full[64];

	snprintf(full, sizeof(full), "user.pytree.%s", name);
	setxattr(path, full, value.p, value.n, 0);
}

static void mark(const char *path, const char *name, const char *word)
{
	char value[64];

	snprintf(value, sizeof(value), "\"%s\"", word);
	mark_json(path, name, span_str(value));
}

static int mark_key(const char *path, const struct tree_node *t)
{
	auto_buf key = { 0 };
	int r = tree_manifest_hidden_key(t, &key);

	if (r == 1)
		mark_json(path, "key", buf_span(&key));
	return r;
}

/* The path of a container in the output; full is its path on the disk. */
static int export_npy_place_of(struct export *x, const struct subtree_part *part,
			       const struct tree_node *t, struct buf *path, char **full)
{
	int r = t == part->tree ? buf_add_str(path, part->path) : subtree_path(part, t, path);

	/* A slash at the end makes it a path of directories only. */
	if (r < 0 || buf_add_byte(path, '/') < 0 || !buf_str(path))
		return r < 0 ? r : -ENOMEM;
	if (path->n > 1)
		return export_path(x, buf_str(path), full);
	*full = strdup(x->out.temp);
	return *full ? 0 : -ENOMEM;
}

static int export_npy_make_container(struct export *x, const struct subtree_part *part,
				     const struct tree_node *t)
{
	auto_free char *full = NULL;
	auto_buf path = { 0 };
	int r = export_npy_place_of(x, part, t, &path, &full);

	return r < 0 || path.n == 1 ? r : export_make_dirs(x, buf_str(&path));
}

/* Set xattrs of a container. One that was not created has none. */
static int mark_container(struct export *x, const struct subtree_part *part,
			  const struct tree_node *t)
{
	const struct tree_manifest_only only = export_only(x);
	bool whole = tree_manifest_is_whole(&only, part, t);
	auto_free char *full = NULL;
	auto_buf path = { 0 }, type = { 0 };
	int r = export_npy_place_of(x, part, t, &path, &full);

	if (r < 0)
		return r;
	if (whole && t->kind != TREE_DICT)
		mark(full, "kind", tree_kind_text(t->kind));
	/* The order of a dict is also that of a part of it. */
	if ((whole || t->kind == TREE_DICT) && tree_namedtuple_json(t, &type) >= 0)
		setxattr(full, "user.pytree.namedtuple", type.p, type.n, 0);
	if (!t->parent && part->item->tree->custom_metadata)
		setxattr(full, "user.pytree.custom_metadata", part->item->tree->custom_metadata,
			 strlen(part->item->tree->custom_metadata), 0);
	/* The top of the output has no name of its own. */
	return t == part->tree ? 0 : mark_key(full, t);
}

static int each_container(struct export *x,
			  int (*fn)(struct export *x, const struct subtree_part *part,
				    const struct tree_node *t))
{
	struct subtree_place at = { 0 };
	int r = 0;

	while (r >= 0 && subtree_next(&x->st, &at))
		if (at.node->kind != TREE_LEAF)
			r = fn(x, at.part, at.node);
	return r;
}

static int make_containers(struct export *x)
{
	int r = 0;

	for (size_t i = 0; i < x->st.n; i++)
		if (*x->st.part[i].path)
			setxattr(x->out.temp, TREE_MANIFEST_STEP, "true", strlen("true"), 0);
	if (x->st.custom)
		mark_json(x->out.temp, "custom_metadata", span_str(x->st.custom));
	/* Empty ones are left out of a part. */
	if (!x->only)
		r = each_container(x, export_npy_make_container);
	for (size_t i = 0; i < x->n && r >= 0; i++)
		r = export_make_dirs(x, x->leaf[i].path);
	return r < 0 ? r : each_container(x, mark_container);
}

static int write_leaf(struct export *x, const struct export_leaf *l, enum name_ext ext,
		      struct io_file *file, const char *path, struct worker *worker)
{
	auto_buf text = { 0 };
	struct span impl;
	bool big;
	int r = export_leaf_write(x, l, ext, file, 0, worker, NULL);

	if (r < 0)
		return r;
	if (l->info->kind == VALUE_ARRAY &&
	    (ext == NAME_EXT_JSON ||
	     dtype_by_npy(span_str(dtype_info(l->array.dtype)->npy), &big) != l->array.dtype))
		mark(path, "dtype", dtype_info(l->array.dtype)->name);
	if (span_eq(l->info->leaf->value_type, span_str("jax.Array")))
		mark(path, "typestr", "jax.Array");
	r = subtree_is_leaf(l->info->leaf) ?
		    item_prng_impl(l->info->part->item, l->info->leaf, &impl) :
		    0;
	if (r == 1)
		r = json_put_str(&text, impl, JSON_COMPACT);
	if (r < 0)
		return r;
	if (text.n)
		mark_json(path, "prng_impl", buf_span(&text));
	/* A single file has the name that the user gave it. */
	return x->out.is_dir ? mark_key(path, l->info->leaf) : 0;
}

static int export_one(void *arg, size_t i, struct worker *worker)
{
	struct export *x = arg;
	const struct export_leaf *l = &x->leaf[i];
	auto_free char *path = NULL;
	auto_of(io_file) struct io_file *file = NULL;
	int r = export_path(x, l->path, &path);

	if (r < 0)
		return r;
	r = io_file_open(x->out.temp_dir, l->path, O_RDWR | O_CREAT | O_EXCL, IO_FILE_MODE, &file);
	return r < 0 ? r : write_leaf(x, l, name_ext_of(span_str(l->path)), file, path, worker);
}

/* The leaf is the output itself. */
static int export_alone(void *arg, size_t i, struct worker *worker)
{
	struct export *x = arg;

	return write_leaf(x, &x->leaf[i], NAME_EXT_NPY, x->out.file, x->out.temp, worker);
}

int export_npy(struct export *x)
{
	auto_free uint64_t *bytes = calloc(x->n + 1, sizeof(*bytes));
	int r = bytes ? 0 : fail(-ENOMEM, "cannot list %zu leaves", x->n);

	if (r >= 0 && !x->out.is_dir) {
		if (x->n != 1 || x->leaf[0].info->kind != VALUE_ARRAY)
			r = fail(-EINVAL,
				 "an .npy file holds one array, and '%s' is %s: name a directory",
				 x->a->arg[0], x->n > 1 ? "more" : "none");
		return export_workers(x, r, x->n, &x->leaf[0].bytes, export_alone, x);
	}
	for (size_t i = 0; i < x->n && r >= 0; i++)
		bytes[i] = x->leaf[i].bytes;
	if (r >= 0 && group_is_lead(x->group))
		r = make_containers(x);
	export_remarks(x);
	return export_workers(x, r, x->n, bytes, export_one, x);
}
