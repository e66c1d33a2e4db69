/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect_arrays.c - recognize directories of arrays and of zarr groups.
 */
#include "core/step/detect_impl.h"

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/step/item_safetensors.h"
#include "core/step/step_name.h"

#define FLAX_INDEX "flax_model.msgpack.index.json"
#define DIRECTORIES_MAX 1000 /* looked into below one directory in search of arrays */

/* Whether a file of Orbax says that the directory is an item or a step. */
static bool has_mark(const struct children *c)
{
	static const char *const names[] = { "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt",
					     "orbax.checkpoint", "commit_success.txt" };
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		found |= children_has(c, names[i], false);
	return found;
}

int detect_is_array(struct io_dir *dir, const char *path)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	const struct json *type;
	struct stat st;
	int r = io_stat(dir, path, &st);

	if (r < 0 || !S_ISREG(st.st_mode))
		return err_is_transient(r) ? r : 0;
	if (!span_ends(span_str(path), span_str("zarr.json")))
		return 1;
	r = io_read_file(dir, path, LIMIT_ZARR_META_BYTES, &text);
	if (r >= 0)
		r = json_parse(buf_span(&text), "'zarr.json'", &doc);
	if (r < 0)
		return err_is_transient(r) ? r : 1;
	type = json_member(doc.root, "node_type");
	return !json_is(type, JSON_STRING) || !span_eq(type->s, span_str("group"));
}

/* Whether a child directory directly contains metadata of an array. */
static int child_is_array(const struct children *c, const struct child *ch)
{
	static const char *const names[] = { ".zarray", "zarr.json" };

	for (size_t k = 0; k < ARRAY_LEN(names); k++) {
		auto_free char *sub = NULL, *path = NULL;
		int r;

		if (path_join(ch->name, span_str(names[k]), &sub) < 0 ||
		    path_join(c->rel, span_str(sub), &path) < 0)
			return -ENOMEM;
		r = detect_is_array(c->dir, path);
		if (r > 0 || err_is_transient(r))
			return r;
	}
	return 0;
}

bool detect_is_directory(const struct child *ch)
{
	return ch->is_dir && !step_name_is_tmp(span_str(ch->name));
}

int detect_has_arrays(const struct children *c)
{
	for (size_t i = 0; i < c->n; i++) {
		int r = detect_is_directory(&c->child[i]) ? child_is_array(c, &c->child[i]) : 0;

		if (r != 0)
			return r;
	}
	return 0;
}

bool detect_is_group(const struct children *c)
{
	return children_has(c, ".zgroup", false) || children_has(c, "zarr.json", false);
}

int detect_is_hierarchy(const struct children *c)
{
	bool has_dirs = false;

	if (!detect_is_group(c))
		return 0;
	for (size_t i = 0; i < c->n; i++) {
		auto_free char *path = NULL;
		auto_children below = { 0 };
		int r;

		if (!detect_is_directory(&c->child[i]))
			continue;
		has_dirs = true;
		r = path_join(c->rel, span_str(c->child[i].name), &path);
		if (r < 0)
			return r;
		r = children_list(c->dir, path, false, &below);
		if (r < 0)
			return r;
		if (has_mark(&below))
			return 0;
		if (children_has(&below, ".zgroup", false) ||
		    children_has(&below, ".zarray", false) ||
		    children_has(&below, "zarr.json", false))
			return 1;
	}
	return !has_dirs;
}

/* ---- arrays further down ---- */

enum found { FOUND_NOTHING, FOUND_ARRAY, FOUND_OTHER };

static int search_children(const struct children *c, unsigned depth, unsigned *n_left);

/*
 * Whether a directory is one of the databases of jax's array serialization, which has one for each
 * directory of arrays and no other file. One at the top with a number is a step.
 */
static bool is_database_of_jax(const struct children *c, const char *name, unsigned depth)
{
	struct step_name number;

	for (size_t i = 0; i < c->n; i++)
		if (c->child[i].is_dir ? !strncmp(c->child[i].name, "ocdbt.process_", 14) :
					 strncmp(c->child[i].name, "manifest.", 9))
			return false;
	return children_has(c, "manifest.ocdbt", false) &&
	       (depth > 1 || step_name_parse(span_str(name), &number) != 1);
}

static int search_child(const struct children *c, const struct child *ch, unsigned depth,
			unsigned *n_left)
{
	auto_free char *path = NULL;
	auto_children below = { 0 };
	int r = child_is_array(c, ch);

	if (r != 0)
		return r < 0 ? r : FOUND_ARRAY;
	r = path_join(c->rel, span_str(ch->name), &path);
	if (r < 0)
		return r;
	r = children_list(c->dir, path, false, &below);
	if (r < 0)
		return r;
	return is_database_of_jax(&below, ch->name, depth) ? FOUND_ARRAY :
							     search_children(&below, depth, n_left);
}

/*
 * Look for arrays below a directory; returns enum found. All directories at the top are looked
 * into; below them, the first finding decides, since a tree may have many. n_left: directories that
 * may still be looked into.
 */
static int search_children(const struct children *c, unsigned depth, unsigned *n_left)
{
	int found = FOUND_NOTHING;

	for (size_t i = 0; i < c->n; i++)
		if (!c->child[i].is_dir)
			return FOUND_OTHER;
	if (depth == LIMIT_TREE_DEPTH)
		return FOUND_OTHER;
	for (size_t i = 0; i < c->n && *n_left; i++) {
		int r;

		if (!detect_is_directory(&c->child[i]))
			continue;
		--*n_left;
		r = search_child(c, &c->child[i], depth + 1, n_left);
		if (r < 0 || r == FOUND_OTHER || (r == FOUND_ARRAY && depth))
			return r;
		found = MAX(found, r);
	}
	return found;
}

int detect_holds_arrays(const struct children *c)
{
	unsigned n_left = DIRECTORIES_MAX;
	int r = search_children(c, 0, &n_left);

	return r < 0 ? r : r == FOUND_ARRAY;
}

int detect_fail_file(const struct children *c, const char *path, const char *file)
{
	unsigned stem, width, n = item_shards_of(file, &stem, &width);
	const char *slash = span_ends(span_str(path), span_str("/")) ? "" : "/";

	if (n < 2)
		return fail(-EINVAL, "'%s' is not a checkpoint, but '%s%s%s' is read by its name",
			    path, path, slash, file);
	return fail(
		-EINVAL,
		"'%s' is not a checkpoint, but the %u shards of a model of flax%s: one ('%s') is "
		"read by its name, and docs/huggingface.md joins them",
		path, n, children_has(c, FLAX_INDEX, false) ? " with its index " FLAX_INDEX : "",
		file);
}

/* ---- databases ---- */

/* Ends the listing with 1 at a name of a data file of OCDBT: 32 hexadecimal digits. */
static int find_data_file(void *arg, const char *name, unsigned char type)
{
	return strspn(name, "0123456789abcdef") == 32 && !name[32];
}

int detect_has_data_files(struct io_dir *dir, const char *rel)
{
	auto_free char *path = NULL;
	int r = path_join(rel, span_str("d"), &path);

	if (r < 0)
		return r;
	r = io_list(dir, path, find_data_file, NULL);
	return err_except(r, -ENOENT, -ENOTDIR);
}
