/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.c - recognize the layout of a directory by its files; the first match
 * wins.
 *
 * At most the directory, its children and theirs are read (a root, its steps
 * and items), and only until the answer is known. Only directories in which
 * there is nothing but arrays and directories are followed further down.
 */
#include "core/step/detect_impl.h"
#include "core/step/item_safetensors.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/step/children.h"
#include "core/step/step_name.h"

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

	if (r < 0)
		return r;
	r = io_read_file(c->dir, path, LIMIT_STEP_FILE, &text);
	if (r >= 0)
		r = json_parse(buf_span(&text), "'_CHECKPOINT_METADATA'", &doc);
	if (r < 0)
		return err_is_transient(r) ? r : 0;
	items = json_member(doc.root, "item_handlers");
	return json_is(items, JSON_OBJECT) && items->n > 0;
}

/* Whether the directory is a PyTree: its files, then the arrays in its child directories. */
static int is_pytree(const struct children *c)
{
	auto_free char *path = NULL;
	int r;

	if (children_has(c, "_METADATA", false) || children_has(c, "checkpoint", false) ||
	    children_has(c, "manifest.ocdbt", false) || has_prefix(c, "ocdbt.process_") ||
	    children_has(c, ".zarray", false))
		return 1;
	if (!children_has(c, "zarr.json", false))
		return detect_has_arrays(c);
	r = path_join(c->rel, span_str("zarr.json"), &path);
	return r < 0 ? r : detect_is_array(c->dir, path);
}

/* Whether the directory is a PyTree, or a hierarchy, which makes no step of the directory above it.
 */
static int is_tree(const struct children *c)
{
	int r = is_pytree(c);

	return r ? r : detect_is_hierarchy(c);
}

/*
 * Whether a directory is a PyTree that makes a step of the directory that it is in: 1 or 0. A
 * hierarchy of zarr groups does not, which may lie anywhere.
 */
static int is_item(struct io_dir *dir, const char *rel)
{
	auto_children c = { 0 };
	int r = children_list(dir, rel, false, &c);

	if (r < 0)
		return r;
	r = children_has(&c, ".zgroup", false) ? 0 : is_pytree(&c);
	return r ? r : detect_holds_arrays(&c);
}

/* Whether a child with a number in its name is a step, or one without is an item: 1 or 0. */
static int is_step_or_item(const struct children *c, const struct child *ch, bool has_number)
{
	auto_free char *path = NULL;
	enum shape shape;
	int r = path_join(c->rel, span_str(ch->name), &path);

	if (r < 0)
		return r;
	if (!has_number)
		return is_item(c->dir, path);
	r = detect_step(c->dir, path, &shape);
	return r < 0 ? r : shape != SHAPE_UNKNOWN;
}

/*
 * Whether a child directory is a PyTree; stops at the first. An error in one child does not hide
 * another that is one.
 */
static int has_pytree_child(const struct children *c)
{
	struct err_note bad = { 0 };

	for (size_t i = 0; i < c->n; i++) {
		int r;

		if (!detect_is_directory(&c->child[i]))
			continue;
		r = is_step_or_item(c, &c->child[i], false);
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
	if (children_has(c, "_METADATA", false))
		*ret = SHAPE_ITEM;
	else if (children_has(c, "orbax.checkpoint", false))
		*ret = SHAPE_STEP;
	else if (children_has(c, "_CHECKPOINT_METADATA", false))
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
	if (children_has(c, "_CHECKPOINT_METADATA", false)) {
		*ret = SHAPE_STEP;
	} else if (children_has(c, "commit_success.txt", false)) {
		r = has_pytree_child(c);
		if (r > 0)
			*ret = SHAPE_STEP;
	}
	return r < 0 ? r : 0;
}

int detect_marked(struct io_dir *dir, const char *rel, enum shape *ret)
{
	auto_children c = { 0 };
	int r = children_list(dir, rel, false, &c);

	return r < 0 ? r : shape_of_children(&c, ret);
}

/* The shape of a directory without a file that marks it, by what lies in it; or SHAPE_UNKNOWN. */
static int shape_of_unmarked(const struct children *c, enum shape *ret)
{
	int r = detect_holds_arrays(c);

	if (r > 0)
		*ret = SHAPE_ITEM;
	if (r != 0)
		return MIN(r, 0);
	/* Steps of releases before 0.5.11 have no file that marks them; their items do. */
	r = has_pytree_child(c);
	if (r > 0)
		*ret = SHAPE_STEP;
	return MIN(r, 0);
}

int detect_step(struct io_dir *dir, const char *rel, enum shape *ret)
{
	auto_children c = { 0 };
	enum shape shape = SHAPE_UNKNOWN;
	int r = children_list(dir, rel, false, &c);

	if (r < 0)
		return r;
	r = shape_of_children(&c, &shape);
	if (r < 0)
		return r;
	if (shape == SHAPE_UNKNOWN)
		r = shape_of_unmarked(&c, &shape);
	if (r < 0)
		return r;
	*ret = shape;
	return 0;
}

/* Whether a child directory has the arrays of a flax file beside it. */
static bool is_of_flax_file(const struct children *c, const struct child *ch)
{
	struct span name = span_str(ch->name), end = span_str(STEP_NAME_GDA);

	if (!span_ends(name, end))
		return false;
	name.n -= end.n;
	for (size_t i = 0; i < c->n; i++)
		if (!c->child[i].is_dir && span_eq(span_str(c->child[i].name), name))
			return true;
	return false;
}

/* Whether a child may be a step or an item. */
static bool counts(const struct children *c, const struct child *ch)
{
	return ch->is_dir && !step_name_is_tmp(span_str(ch->name)) &&
	       strcmp(ch->name, "metadata") && !is_of_flax_file(c, ch);
}

bool detect_has_number(const char *name)
{
	struct step_name n;

	return step_name_parse(span_str(name), &n) == 1;
}

/* The path of a child directory, and its shape, if its own files say so. */
static int shape_of_child(const struct children *c, const struct child *ch, char **ret_path,
			  enum shape *ret)
{
	int r = path_join(c->rel, span_str(ch->name), ret_path);

	return r < 0 ? r : detect_marked(c->dir, *ret_path, ret);
}

/*
 * Whether a child with a number has a file that marks it as a step: such a step is in a root only.
 */
static bool has_marked_step(const struct children *c)
{
	bool found = false;

	for (size_t i = 0; i < c->n && !found; i++) {
		enum shape shape = SHAPE_UNKNOWN;
		auto_free char *path = NULL;

		if (!counts(c, &c->child[i]) || !detect_has_number(c->child[i].name))
			continue;
		found = shape_of_child(c, &c->child[i], &path, &shape) >= 0 && shape == SHAPE_STEP;
		err_clear();
	}
	return found;
}

/* Whether a child with a number is a file of flax: such a step is in a root only. 1 or 0. */
static int has_flax_file(const struct children *c)
{
	for (size_t i = 0; i < c->n; i++) {
		auto_free char *path = NULL;

		if (c->child[i].is_dir || !detect_has_number(c->child[i].name))
			continue;
		if (path_join(c->rel, span_str(c->child[i].name), &path) < 0)
			return -ENOMEM;
		if (detect_flax_file(c->dir, path) == 1)
			return 1;
	}
	return 0;
}

/* Whether a directory has steps: they have a number, and a file that marks them; 1 or 0. */
static int is_root_of_marked(struct io_dir *dir, const char *rel)
{
	auto_children c = { 0 };
	int r = children_list(dir, rel, false, &c);

	return r < 0 ? r : has_marked_step(&c);
}

int detect_find_own(const struct children *c, char **ret, enum shape *ret_shape)
{
	unsigned n_left = DETECT_OWN_MAX;

	*ret = NULL;
	for (size_t i = 0; i < c->n && n_left; i++) {
		auto_free char *path = NULL;
		enum shape shape = SHAPE_UNKNOWN;
		int r;

		if (!counts(c, &c->child[i]) || !detect_is_directory(&c->child[i]))
			continue;
		n_left--;
		r = shape_of_child(c, &c->child[i], &path, &shape);
		if (r >= 0 && shape == SHAPE_UNKNOWN && is_root_of_marked(c->dir, path) > 0)
			shape = SHAPE_ROOT;
		if (r == -ENOMEM)
			return r;
		err_clear();
		if (shape == SHAPE_ROOT || shape == SHAPE_STEP) {
			*ret = take(path);
			*ret_shape = shape;
			return 0;
		}
	}
	return 0;
}

int detect_holds_steps(struct io_dir *dir, const char *rel)
{
	auto_free char *own = NULL;
	auto_children c = { 0 };
	enum shape shape;
	int r = children_list(dir, rel, false, &c);

	if (r < 0)
		return r;
	r = detect_find_own(&c, &own, &shape);
	return r < 0 ? r : own != NULL;
}

/* -EINVAL if a child is a root or a step of its own: the message names it. */
static int check_own(const struct children *c)
{
	auto_free char *own = NULL;
	enum shape shape;
	int r = detect_find_own(c, &own, &shape);
	const char *dir = c->dir->path;
	bool is_here = !strcmp(dir, ".");

	if (r < 0 || !own)
		return r;
	return fail(-EINVAL, "'%s' is not a checkpoint, but '%s%s%s' %s",
		    strcmp(c->rel, ".") ? c->rel : dir, is_here ? "" : dir, is_here ? "" : "/", own,
		    shape == SHAPE_ROOT ? "has steps" : "is a step");
}

/*
 * Recognize a root, or a step without a file that marks it, by the children. An error in one child
 * does not hide the others.
 */
static int shape_of_root(const struct children *c, enum shape *ret)
{
	struct err_note bad = { 0 };
	int n_files;

	for (int pass = 0; pass < 2; pass++) {
		/*
		 * First the children whose names have no number: an item among them makes this a
		 * step, unless it lies beside steps.
		 */
		for (size_t i = 0; i < c->n; i++) {
			int r;

			if (!counts(c, &c->child[i]) ||
			    detect_has_number(c->child[i].name) != (pass == 1))
				continue;
			r = is_step_or_item(c, &c->child[i], pass == 1);
			if (err_is_transient(r) && !bad.code)
				err_save(r, &bad);
			if (r > 0) {
				n_files = pass || has_marked_step(c) ? 1 : has_flax_file(c);
				if (n_files > 0)
					*ret = SHAPE_ROOT;
				if (n_files != 0)
					return MIN(n_files, 0);
				r = check_own(c);
				return r < 0 ? r : shape_of_unmarked(c, ret);
			}
		}
	}
	n_files = has_flax_file(c);
	if (n_files > 0)
		*ret = SHAPE_ROOT;
	if (n_files != 0)
		return MIN(n_files, 0);
	return bad.code ? err_restore(&bad) : 0;
}

/* Whether a child directory holds deleted steps that were moved there: 1 or 0. */
static int holds_deleted(const struct children *c, const struct child *ch, const char *todelete)
{
	auto_free char *mark = str_fmt("%s/" DETECT_DELETED_FILE, ch->name), *path = NULL;
	size_t n = strlen(ch->name);
	struct stat st;
	int r;

	if (!ch->is_dir || detect_has_number(ch->name))
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

/*
 * Whether a child of a directory without steps is something else than a step that is being written:
 * under a temporary name, or in place, where it is empty at first and then has the lock file of a
 * draft, or has just become a step; 1 or 0.
 */
static int is_other_child(const struct children *c, const struct child *ch)
{
	auto_children below = { 0 };
	auto_free char *path = NULL;
	enum shape shape;
	int r;

	if (!counts(c, ch))
		return !ch->is_dir;
	if (!detect_has_number(ch->name))
		return 1;
	r = path_join(c->rel, span_str(ch->name), &path);
	if (r < 0)
		return r;
	r = children_list(c->dir, path, false, &below);
	if (r < 0)
		return err_is_transient(r) ? r : r != -ENOENT;
	if (!below.n || children_has(&below, STEP_DRAFT, false))
		return 0;
	r = shape_of_children(&below, &shape);
	return r < 0 ? r : shape != SHAPE_STEP;
}

/* path: that of the directory, for messages */
static int shape_of_directory(struct children *c, const char *path, const char *todelete,
			      enum shape *ret)
{
	int r = shape_of_children(c, ret), others = 0;

	if (r < 0 || *ret != SHAPE_UNKNOWN)
		return r;
	r = leave_out_deleted(c, todelete);
	if (r < 0)
		return r;
	r = shape_of_root(c, ret);
	if (r < 0 || *ret != SHAPE_UNKNOWN)
		return r;
	for (size_t i = 0; i < c->n && others == 0; i++)
		others = is_other_child(c, &c->child[i]);
	if (others < 0)
		return others;
	/*
	 * A directory with only steps that are being written and root metadata, or an empty one, is
	 * a root without steps.
	 */
	if (!others) {
		*ret = SHAPE_ROOT;
		return 0;
	}
	r = check_own(c);
	return r < 0 ? r : detect_fail(c, path);
}

int detect_shape(struct io_dir *dir, const char *rel, const char *todelete, enum shape *ret)
{
	const char *path = strcmp(rel, ".") ? rel : dir->path, *last = strrchr(path, '/');
	enum shape shape = SHAPE_UNKNOWN;
	auto_children c = { 0 };
	int r;

	if (step_name_is_tmp(span_str(last ? last + 1 : path)))
		return fail(-EBUSY,
			    "'%s' is not committed: its name says that it is still being written",
			    path);
	r = children_list(dir, rel, false, &c);
	if (r < 0)
		return r;
	r = shape_of_directory(&c, path, todelete, &shape);
	if (r < 0)
		return r;
	*ret = shape;
	return 0;
}

/* The type of the msgpack extension that a file begins with; -1: it begins with another value. */
static int extension_type(const uint8_t *p, uint64_t n)
{
	/* ext 8, 16 and 32 have the size before the type; fixext 1 to 16 have none. */
	static const uint8_t n_before[] = { 2, 3, 5 };
	size_t at = p[0] >= 0xc7 && p[0] <= 0xc9 ? n_before[p[0] - 0xc7] :
		    p[0] >= 0xd4 && p[0] <= 0xd8 ? 1 :
						   0;

	return at && at < n ? p[at] : -1;
}

int detect_flax_file(struct io_dir *dir, const char *rel)
{
	auto_of(io_file) struct io_file *f = NULL;
	uint8_t head[6] = { 0 };
	uint64_t n;
	int type;
	int r = io_file_open(dir, rel, O_RDONLY, 0, &f);

	if (r < 0)
		return r == -ENOENT || r == -EISDIR ? 0 : r;
	n = MIN(sizeof(head), (uint64_t)f->size);
	if (n == 0)
		return 0;
	r = io_read_exact(f, head, n, 0);
	if (r < 0)
		return r;
	/*
	 * A dict; an array, a complex number or a scalar of NumPy, which flax has extensions for.
	 */
	type = extension_type(head, n);
	return head[0] == 0x80 ||
	       (n > 1 && ((head[0] & 0xf0) == 0x80 || head[0] == 0xde || head[0] == 0xdf)) ||
	       (type >= 1 && type <= 3);
}

/* Whether there are a "NAME_key" and a "NAME_key_metadata", as of a random key. */
static bool is_random_key(const struct children *c)
{
	for (size_t i = 0; i < c->n; i++) {
		char other[LIMIT_NAME_BYTES + 16];

		if (!c->child[i].is_dir || !span_ends(span_str(c->child[i].name), span_str("_key")))
			continue;
		snprintf(other, sizeof(other), "%s_metadata", c->child[i].name);
		if (children_has(c, other, true))
			return true;
	}
	return false;
}

int detect_item(struct io_dir *dir, const char *rel, enum item_kind *ret)
{
	auto_children c = { 0 };
	int r = children_list(dir, rel, false, &c);

	if (r < 0)
		return r;
	r = is_tree(&c);
	if (r == 0)
		r = detect_holds_arrays(&c);
	/* A database may have lost all but its data files, which name nothing. */
	if (r == 0 && children_has(&c, "d", true))
		r = detect_has_data_files(dir, rel);
	if (r < 0)
		return r;
	*ret = r ? ITEM_PYTREE : is_random_key(&c) ? ITEM_COMPOSITE : ITEM_STORED;
	return 0;
}

const char *shape_text(enum shape s)
{
	static const char *const names[] = { "unknown", "root", "step", "item" };

	return names[s];
}

bool detect_is_hidden(struct span name)
{
	static const char *const names[] = {
		"_sharding",        "_strings.json",        "array_metadatas", "commit_success.txt",
		"orbax.checkpoint", "_CHECKPOINT_DELETION", ".pytreefs-draft",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(name, span_str(names[i])))
			return true;
	/* A numbered manifest of a database has 16 digits; "manifest.json" is of some program. */
	return span_starts(name, span_str("ocdbt.process_")) ||
	       span_starts(name, span_str("manifest.ocdbt")) ||
	       (span_starts(name, span_str("manifest.")) && name.n == 25 && name.p[9] <= '9');
}
