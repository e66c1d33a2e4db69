/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_names.c - makes the names of an import list in the draft, with their xattrs and hints.
 *
 * All names are made before the first byte is read, so an input that cannot be a tree fails at
 * once.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/plan/copy_hints.h"
#include "tools/convert/import_list.h"
#include "tools/job/group_work.h"

/* Get or create a directory, or create a file, which must be new. */
static int make_name(struct draft_node *in, struct span name, bool is_dir, struct draft_node **ret)
{
	auto_of(draft_node) struct draft_node *n = NULL;
	int r = draft_lookup(in, name, &n);

	if (r == -ENOENT) {
		err_clear();
		return is_dir ? draft_mkdir(in, name, ret) : draft_create(in, name, ret);
	}
	if (r < 0)
		return r;
	if (!is_dir || !n->is_dir)
		return fail(-EINVAL, "'%.*s' occurs twice", SPAN_ARG(name));
	*ret = take(n);
	return 0;
}

/* Get the node at a path. Creates it, as a directory or file, and its directories. */
static int make_path(struct draft *d, const char *path, bool is_dir, struct draft_node **ret)
{
	struct draft_node *at = draft_node_ref(d->root), *next;

	while (*path) {
		size_t n = strcspn(path, "/");
		int r = make_name(at, span_of(path, n), path[n] || is_dir, &next);

		draft_node_unref(at);
		if (r < 0)
			return r;
		at = next;
		path += n + (path[n] == '/');
	}
	*ret = at;
	return 0;
}

static int make_dirs(const struct import_list *f, struct draft *d)
{
	for (size_t i = 0; i < f->n_dirs; i++) {
		auto_of(draft_node) struct draft_node *n = NULL;
		int r = make_path(d, f->dir[i], true, &n);

		if (r < 0)
			return err_at(r, "'%s'", f->dir[i]);
	}
	return 0;
}

static int find_path(struct draft *d, const char *path, struct draft_node **ret)
{
	struct draft_node *at = draft_node_ref(d->root), *next;

	while (*path) {
		size_t n = strcspn(path, "/");
		int r = draft_lookup(at, span_of(path, n), &next);

		draft_node_unref(at);
		if (r < 0)
			return fail(r, "no entry has that name");
		at = next;
		path += n + (path[n] == '/');
	}
	*ret = at;
	return 0;
}

/* all: a mark of a name that is not there is an error. */
static int set_marks(const struct import_list *f, struct draft *d, bool all)
{
	for (size_t i = 0; i < f->n_marks; i++) {
		const struct import_mark *m = &f->mark[i];
		auto_of(draft_node) struct draft_node *n = NULL;
		struct span value = span_str(m->value);
		char name[128];
		int r = find_path(d, m->path, &n);

		if (r < 0 && !all) {
			err_clear();
			continue;
		}
		snprintf(name, sizeof(name), "user.pytree.%s", m->name);
		if (r >= 0)
			r = draft_set_xattr(n, name, &value, 0);
		if (r < 0)
			return err_at(r, "'%s'", m->path);
	}
	return 0;
}

/* Take a file of at most *left bytes, and subtract its size. */
static int set_hint(const struct import_hint *h, struct draft *d, size_t *left)
{
	auto_of(draft_node) struct draft_node *n = NULL;
	auto_buf text = { .metered = true };
	int r = find_path(d, h->dir, &n);

	if (r < 0)
		return r;
	if (!h->file) {
		copy_hint_format(n, h->ocdbt, h->zarr3);
		return 0;
	}
	r = import_read_file(h->file, *left, &text);
	if (r < 0 || !text.n || text.p[0] != '{')
		return r;
	copy_hint_text(n, 0, text.p, text.n);
	copy_hint_written(n);
	*left -= text.n;
	return 0;
}

/*
 * A file that cannot be read or is not JSON, or one of a directory without leaves, has no effect.
 */
static int set_hints(const struct import_list *f, struct draft *d)
{
	/* In all, since every directory of a hostile input may have such a file. */
	size_t left = LIMIT_JSON_BYTES;

	for (size_t i = 0; i < f->n_hints; i++) {
		int r = set_hint(&f->hint[i], d, &left);

		if (r == -ENOMEM || r == -EFBIG)
			return err_at(r, "'%s'", f->hint[i].file);
		err_clear();
	}
	return 0;
}

/* Create the directories of a file that this rank writes. */
static int make_way(const struct import_entry *import_entry, struct draft *d)
{
	const char *path = import_entry->path, *slash = strrchr(path, '/');
	auto_of(draft_node) struct draft_node *n = NULL;
	auto_free char *parent = NULL;
	int r;

	if (!slash)
		return 0;
	parent = span_dup_str(span_of(path, (size_t)(slash - path)));
	r = parent ? make_path(d, parent, true, &n) : -ENOMEM;
	return r < 0 ? err_at(r, "'%s'", path) : 0;
}

/* Rank 0 creates all directories; other ranks create those of their own files. */
int import_list_make_names(struct import_list *f, struct draft *d, const struct rank_group *group)
{
	int rank = group ? group->peers->rank : 0, r = 0;

	/*
	 * Directories and their xattrs come first, since the kind of a directory decides which
	 * names it may have.
	 */
	if (group_is_lead(group))
		r = make_dirs(f, d);
	for (size_t i = 0; i < f->n && r >= 0 && !group_is_lead(group); i++)
		if (f->import_entry[i].owner == rank)
			r = make_way(&f->import_entry[i], d);
	if (r < 0)
		return r;
	r = set_marks(f, d, false);
	if (r < 0)
		return r;
	if (f->has_others)
		atomic_fetch_add(&d->env->others_read, 1);
	for (size_t i = 0; i < f->n && r >= 0; i++) {
		if (f->import_entry[i].owner != rank)
			continue;
		r = make_path(d, f->import_entry[i].path, false, &f->import_entry[i].node);
		if (r < 0)
			err_at(r, "'%s' (from '%s')", f->import_entry[i].path,
			       f->import_entry[i].from);
	}
	if (f->has_others)
		atomic_fetch_sub(&d->env->others_read, 1);
	if (r < 0)
		return r;
	r = set_hints(f, d);
	return r < 0 ? r : set_marks(f, d, !group);
}
