/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.c - recognize the layout of a directory by its files; the first match
 * wins.
 *
 * At most the directory, its children and theirs are read (a root, its steps
 * and items), and only until the answer is known.
 */
#include "core/step/detect.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/step/children.h"
#include "core/step/step_name.h"

static bool has(const struct children *c, const char *name, bool is_dir)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->child[i].is_dir == is_dir && !strcmp(c->child[i].name, name))
			return true;
	return false;
}

/* Whether a file of Orbax says that the directory is an item or a step. */
static bool has_mark(const struct children *c)
{
	static const char *const names[] = { "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt",
					     "orbax.checkpoint", "commit_success.txt" };
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		found |= has(c, names[i], false);
	return found;
}

static bool has_prefix(const struct children *c, const char *prefix)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->child[i].is_dir && !strncmp(c->child[i].name, prefix, strlen(prefix)))
			return true;
	return false;
}

/*
 * Whether `_CHECKPOINT_METADATA` has a non-empty map of item handlers: 1 or 0. A damaged file
 * counts as absent.
 */
static int names_items(const struct children *c)
{
	auto_free char *path = NULL;
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	const struct json *items;
	int r = path_join(c->rel, span_str("_CHECKPOINT_METADATA"), &path);

	if (r >= 0)
		r = io_read_file(c->dir, path, LIMIT_STEP_FILE, &text);
	if (r >= 0)
		r = json_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &doc);
	if (r < 0)
		return err_is_transient(r) ? r : 0;
	items = json_member(doc.root, "item_handlers");
	return json_is(items, JSON_OBJECT) && items->n > 0;
}

/*
 * Whether a file is the metadata of an array: 1 or 0. That of a zarr group is not; a file that
 * cannot be parsed counts as an array's.
 */
static int is_array(struct io_dir *dir, const char *path)
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

/*
 * Whether a child directory directly contains metadata of an array, as in the layout with a
 * directory for each leaf.
 */
static int has_arrays(const struct children *c)
{
	for (size_t i = 0; i < c->n; i++) {
		static const char *const names[] = { ".zarray", "zarr.json" };

		if (!c->child[i].is_dir || step_name_is_tmp(span_str(c->child[i].name)))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(names); k++) {
			auto_free char *sub = NULL, *path = NULL;
			int r = path_join(c->child[i].name, span_str(names[k]), &sub);

			if (r >= 0)
				r = path_join(c->rel, span_str(sub), &path);
			if (r >= 0)
				r = is_array(c->dir, path);
			if (r > 0 || err_is_transient(r))
				return r;
		}
	}
	return 0;
}

/*
 * Whether a directory with the metadata of a zarr group is a hierarchy of arrays: 1 or 0. Such a
 * file may also lie in a step, beside its items, or in a root. The first child that is one or the
 * other tells.
 */
static int is_hierarchy(const struct children *c)
{
	bool has_dirs = false;

	if (!has(c, ".zgroup", false) && !has(c, "zarr.json", false))
		return 0;

	for (size_t i = 0; i < c->n; i++) {
		auto_free char *path = NULL;
		struct children below;
		int r, is_node = 0, is_orbax = 0;

		if (!c->child[i].is_dir || step_name_is_tmp(span_str(c->child[i].name)))
			continue;
		has_dirs = true;
		r = path_join(c->rel, span_str(c->child[i].name), &path);
		if (r < 0)
			return r;
		r = children_list(c->dir, path, false, &below);
		if (r >= 0) {
			is_node = has(&below, ".zgroup", false) || has(&below, ".zarray", false) ||
				  has(&below, "zarr.json", false);
			is_orbax = has_mark(&below);
		}
		children_release(&below);
		if (r < 0 || is_node || is_orbax)
			return r < 0 ? r : !is_orbax;
	}
	return !has_dirs;
}

/* Whether the directory is a PyTree: its files, then the arrays in its child directories. */
static int is_pytree(const struct children *c)
{
	auto_free char *path = NULL;
	int r;

	if (has(c, "_METADATA", false) || has(c, "checkpoint", false) ||
	    has(c, "manifest.ocdbt", false) || has_prefix(c, "ocdbt.process_") ||
	    has(c, ".zarray", false))
		return 1;
	if (!has(c, "zarr.json", false))
		return has_arrays(c);
	r = path_join(c->rel, span_str("zarr.json"), &path);
	return r < 0 ? r : is_array(c->dir, path);
}

/* Whether the directory is a PyTree, or a hierarchy, which makes no step of the directory above it.
 */
static int is_tree(const struct children *c)
{
	int r = is_pytree(c);

	return r ? r : is_hierarchy(c);
}

int detect_pytree(struct io_dir *dir, const char *rel)
{
	struct children c;
	int r = children_list(dir, rel, false, &c);

	if (r >= 0)
		r = is_pytree(&c);
	children_release(&c);
	return r;
}

/*
 * Whether a child directory is a PyTree; stops at the first. An error in one child does not hide
 * another that is one.
 */
static int has_pytree_child(const struct children *c)
{
	struct err_note bad = { 0 };

	for (size_t i = 0; i < c->n; i++) {
		auto_free char *path = NULL;
		int r;

		if (!c->child[i].is_dir || step_name_is_tmp(span_str(c->child[i].name)))
			continue;
		r = path_join(c->rel, span_str(c->child[i].name), &path);
		if (r >= 0)
			r = detect_pytree(c->dir, path);
		if (r > 0)
			return r;
		if (err_is_transient(r) && !bad.code)
			err_save(r, &bad);
	}
	return bad.code ? err_restore(&bad) : 0;
}

/* The shape, if the directory is an item or a step and its own files say so; else SHAPE_UNKNOWN. */
static int shape_of_children(const struct children *c, enum shape *ret)
{
	int r = 0;

	*ret = SHAPE_UNKNOWN;
	if (has(c, "_METADATA", false))
		*ret = SHAPE_ITEM;
	else if (has(c, "orbax.checkpoint", false))
		*ret = SHAPE_STEP;
	else if (has(c, "_CHECKPOINT_METADATA", false))
		r = names_items(c);
	if (r > 0)
		*ret = SHAPE_STEP;
	if (r < 0 || *ret != SHAPE_UNKNOWN)
		return MIN(r, 0);
	r = is_tree(c);
	if (r != 0) {
		*ret = SHAPE_ITEM;
		return r < 0 ? r : 0;
	}
	if (has(c, "_CHECKPOINT_METADATA", false)) {
		*ret = SHAPE_STEP;
	} else if (has(c, "commit_success.txt", false)) {
		r = has_pytree_child(c);
		if (r > 0)
			*ret = SHAPE_STEP;
	}
	return r < 0 ? r : 0;
}

int detect_marked(struct io_dir *dir, const char *rel, enum shape *ret)
{
	struct children c;
	int r = children_list(dir, rel, false, &c);

	if (r >= 0)
		r = shape_of_children(&c, ret);
	children_release(&c);
	return r;
}

int detect_step(struct io_dir *dir, const char *rel, enum shape *ret)
{
	struct children c;
	enum shape shape = SHAPE_UNKNOWN;
	int r = children_list(dir, rel, false, &c);

	if (r >= 0)
		r = shape_of_children(&c, &shape);
	/* Steps of releases before 0.5.11 have no file that marks them; their items do. */
	if (r >= 0 && shape == SHAPE_UNKNOWN) {
		r = has_pytree_child(&c);
		if (r > 0)
			shape = SHAPE_STEP;
	}
	children_release(&c);
	if (r < 0)
		return r;
	*ret = shape;
	return 0;
}

/* Whether a child may be a step or an item. */
static bool counts(const struct child *ch)
{
	return ch->is_dir && !step_name_is_tmp(span_str(ch->name)) && strcmp(ch->name, "metadata");
}

static bool has_number(const char *name)
{
	struct step_name n;

	return step_name_parse(span_str(name), &n) == 1;
}

/* Whether a child with a number has a file that marks it as a step: such a step is in a root only. */
static bool has_marked_step(const struct children *c)
{
	bool found = false;

	for (size_t i = 0; i < c->n && !found; i++) {
		enum shape shape = SHAPE_UNKNOWN;
		auto_free char *path = NULL;
		int r = counts(&c->child[i]) && has_number(c->child[i].name) ?
				path_join(c->rel, span_str(c->child[i].name), &path) :
				-ENOENT;

		if (r >= 0)
			r = detect_marked(c->dir, path, &shape);
		found = r >= 0 && shape == SHAPE_STEP;
		err_clear();
	}
	return found;
}

/*
 * Recognize a root, or a step without a file that marks it, by the children. An error in one child
 * does not hide the others.
 */
static int shape_of_root(const struct children *c, enum shape *ret)
{
	struct err_note bad = { 0 };

	for (int pass = 0; pass < 2; pass++) {
		/*
		 * First the children whose names have no number: an item among them makes this a
		 * step, unless it lies beside steps.
		 */
		for (size_t i = 0; i < c->n; i++) {
			auto_free char *path = NULL;
			enum shape shape;
			int r;

			if (!counts(&c->child[i]) || has_number(c->child[i].name) != (pass == 1))
				continue;
			r = path_join(c->rel, span_str(c->child[i].name), &path);
			if (r >= 0)
				r = pass ? detect_step(c->dir, path, &shape) :
					   detect_pytree(c->dir, path);
			if (err_is_transient(r) && !bad.code)
				err_save(r, &bad);
			if (r >= 0 && (pass == 0 ? r > 0 : shape != SHAPE_UNKNOWN)) {
				*ret = pass || has_marked_step(c) ? SHAPE_ROOT : SHAPE_STEP;
				return 0;
			}
		}
	}
	for (size_t i = 0; i < c->n; i++) {
		auto_free char *path = NULL;

		if (c->child[i].is_dir || !has_number(c->child[i].name))
			continue;
		if (path_join(c->rel, span_str(c->child[i].name), &path) < 0)
			return -ENOMEM;
		if (detect_flax_file(c->dir, path) == 1) {
			*ret = SHAPE_ROOT;
			return 0;
		}
	}
	return bad.code ? err_restore(&bad) : 0;
}

/* Whether a child directory holds deleted steps that were moved there: 1 or 0. */
static int holds_deleted(const struct children *c, const struct child *ch, const char *todelete)
{
	auto_free char *mark = str_fmt("%s/" DETECT_DELETED_FILE, ch->name), *path = NULL;
	size_t n = strlen(ch->name);
	struct stat st;
	int r;

	if (!ch->is_dir || has_number(ch->name))
		return 0;
	if (todelete && !strncmp(todelete, ch->name, n) && (!todelete[n] || todelete[n] == '/'))
		return 1;
	r = mark ? path_join(c->rel, span_str(mark), &path) :
		   fail(-ENOMEM, "cannot look at '%s'", ch->name);
	if (r >= 0)
		r = io_stat(c->dir, path, &st);
	return r >= 0 ? 1 : err_is_transient(r) ? r : 0;
}

static int leave_out_deleted(struct children *c, const char *todelete)
{
	size_t n_retained = 0;
	int r = 0;

	for (size_t i = 0; i < c->n; i++) {
		if (r >= 0)
			r = holds_deleted(c, &c->child[i], todelete);
		if (r > 0)
			free(c->child[i].name);
		else
			c->child[n_retained++] = c->child[i];
	}
	c->n = n_retained;
	return MIN(r, 0);
}

int detect_shape(struct io_dir *dir, const char *rel, const char *todelete, enum shape *ret)
{
	const char *path = strcmp(rel, ".") ? rel : dir->path, *last = strrchr(path, '/');
	enum shape shape = SHAPE_UNKNOWN;
	struct children c;
	bool others = false;
	int r;

	if (step_name_is_tmp(span_str(last ? last + 1 : path)))
		return fail(-EBUSY,
			    "'%s' is not committed: its name says that it is still being written",
			    path);
	r = children_list(dir, rel, false, &c);
	if (r >= 0)
		r = shape_of_children(&c, &shape);
	if (r >= 0 && shape == SHAPE_UNKNOWN)
		r = leave_out_deleted(&c, todelete);
	if (r >= 0 && shape == SHAPE_UNKNOWN)
		r = shape_of_root(&c, &shape);
	for (size_t i = 0; i < c.n; i++)
		others |= !c.child[i].is_dir || counts(&c.child[i]);
	/*
	 * A directory with only temporary directories and root metadata, or an empty one, is a root
	 * without steps.
	 */
	if (r >= 0 && shape == SHAPE_UNKNOWN && !others)
		shape = SHAPE_ROOT;
	children_release(&c);
	if (r < 0)
		return r;
	if (shape == SHAPE_UNKNOWN)
		return fail(
			-EINVAL,
			"'%s' is not a checkpoint: no steps, no _CHECKPOINT_METADATA, no _METADATA, "
			"no manifest.ocdbt and no arrays in it",
			path);
	*ret = shape;
	return 0;
}

int detect_flax_file(struct io_dir *dir, const char *rel)
{
	auto_of(io_file) struct io_file *f = NULL;
	uint8_t first;
	int r = io_file_open(dir, rel, O_RDONLY, 0, &f);

	if (r < 0)
		return r == -ENOENT || r == -EISDIR ? 0 : r;
	if (f->size < 2)
		return 0;
	r = io_read_exact(f, &first, 1, 0);
	return r < 0 ? r : (first >= 0x80 && first <= 0x8f) || first == 0xde || first == 0xdf;
}

/* Whether there are a "NAME_key" and a "NAME_key_metadata", as of a random key. */
static bool is_random_key(const struct children *c)
{
	for (size_t i = 0; i < c->n; i++) {
		char other[LIMIT_NAME_BYTES + 16];

		if (!c->child[i].is_dir || !span_ends(span_str(c->child[i].name), span_str("_key")))
			continue;
		snprintf(other, sizeof(other), "%s_metadata", c->child[i].name);
		if (has(c, other, true))
			return true;
	}
	return false;
}

int detect_item(struct io_dir *dir, const char *rel, enum item_kind *ret)
{
	struct children c;
	int r = children_list(dir, rel, false, &c);

	if (r >= 0)
		r = is_tree(&c);
	if (r >= 0)
		*ret = r ? ITEM_PYTREE : is_random_key(&c) ? ITEM_COMPOSITE : ITEM_STORED;
	children_release(&c);
	return r < 0 ? r : 0;
}

const char *shape_text(enum shape s)
{
	static const char *const names[] = { "unknown", "root", "step", "item" };

	return names[s];
}

bool detect_is_hidden(struct span name)
{
	static const char *const names[] = {
		"_sharding",          "_strings.json",    "array_metadatas",      "manifest.ocdbt",
		"commit_success.txt", "orbax.checkpoint", "_CHECKPOINT_DELETION", ".pytreefs-draft",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(name, span_str(names[i])))
			return true;
	return span_starts(name, span_str("ocdbt.process_")) ||
	       span_starts(name, span_str("manifest."));
}
