/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_choice.c - with --only, what remains of the containers of an input: those that have a
 * chosen leaf below them, and the kinds of those whose leaves were all chosen.
 */
#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "tools/convert/import_list.h"

struct paths {
	const char **path; /* ascending */
	size_t n;
};

/* Compare a path with "dir/", or with dir itself: 0 for what begins with it. */
static int import_choice_compare(const char *path, const char *dir, bool below)
{
	size_t n = strlen(dir);
	int c = below && !n ? 0 : strncmp(path, dir, n);

	if (c || (below && !n))
		return c;
	return below ? (int)(unsigned char)path[n] - '/' : path[n] ? 1 : 0;
}

/* Whether one of the paths is dir, or, with `below`, lies below it. */
static bool import_choice_has(const struct paths *p, const char *dir, bool below)
{
	size_t lo = 0, hi = p->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (import_choice_compare(p->path[mid], dir, below) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->n && import_choice_compare(p->path[lo], dir, below) == 0;
}

static bool import_choice_is_whole(const struct import_list *f, const char *path)
{
	for (size_t i = 0; i < f->n_whole; i++)
		if (!strcmp(path, f->whole[i]) || !import_choice_compare(path, f->whole[i], true))
			return true;
	return false;
}

/*
 * A list without all of its members would have gaps, so it is not a list. The order of a dict, a
 * "namedtuple" without a class, is also that of a part of it.
 */
static bool is_kind(const struct import_mark *m)
{
	auto_json doc = { 0 };
	bool is_order;

	if (strcmp(m->name, "namedtuple"))
		return !strcmp(m->name, "kind");
	is_order = json_parse(span_str(m->value), "namedtuple", &doc) >= 0 &&
		   !json_member(doc.root, "clazz");
	err_clear();
	return !is_order;
}

int import_list_choose(struct import_list *f)
{
	auto_free const char **path = calloc(f->n + 1, sizeof(*path));
	auto_free const char **other = calloc(f->n_left + f->n_dirs + 1, sizeof(*other));
	struct paths chosen = { path, f->n }, left = { other, f->n_left };
	size_t n = 0;

	if (!path || !other)
		return fail(-ENOMEM, "cannot choose among %zu leaves", f->n);
	for (size_t i = 0; i < f->n; i++)
		path[i] = f->import_entry[i].path;
	qsort(path, f->n, sizeof(*path), array_by_text);
	for (size_t i = 0; i < f->n_left; i++)
		other[i] = f->left[i];
	/* Drop containers without a chosen leaf: those that had them are not whole. */
	for (size_t i = 0; i < f->n_dirs; i++)
		if (import_choice_has(&chosen, f->dir[i], true) ||
		    import_choice_is_whole(f, f->dir[i]))
			f->dir[n++] = f->dir[i];
		else
			other[left.n++] = f->dir[i];
	f->n_dirs = n;
	qsort(other, left.n, sizeof(*other), array_by_text);
	n = 0;
	for (size_t i = 0; i < f->n_marks; i++) {
		const struct import_mark *m = &f->mark[i];

		if (import_choice_is_whole(f, m->path) ||
		    import_choice_has(&chosen, m->path, false) ||
		    (import_choice_has(&chosen, m->path, true) &&
		     !(is_kind(m) && import_choice_has(&left, m->path, true))))
			f->mark[n++] = *m;
	}
	f->n_marks = n;
	return 0;
}
