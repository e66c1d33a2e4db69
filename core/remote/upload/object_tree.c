/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_tree.c - finds and removes the objects below a directory of a bucket.
 *
 * A claim is removed after everything else, so that a removal that failed can be repeated.
 */
#include "core/remote/upload/object_tree.h"

#include <limits.h>

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/upload/claim_keeper.h"

#define ROUNDS_MAX 4 /* of removals, while objects of a writer are still arriving */
#define REMOVED_PER_RENEWAL 1000

void objects_release(struct objects *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->path[i]);
	free(o->path);
}

static char *tree_join(const char *dir, const char *name)
{
	return str_fmt("%s%s%s", dir, *dir ? "/" : "", name);
}

static int collect_below(struct store *s, const char *dir, unsigned depth, struct objects *ret)
{
	auto_of(object_list) struct object_list *l = NULL;
	int r = s->kind->fetch(s, dir, &l);

	if (r < 0)
		return err_except(r, -ENOENT);
	for (size_t i = 0; i < l->n && r >= 0; i++) {
		const struct object_list_entry *e = &l->entry[i];
		auto_free char *path = tree_join(dir, e->name);

		if (!path || !array_reserve(ret->path, ret->cap, ret->n + 1))
			return fail(-ENOMEM, "cannot list '%s'", dir);
		if (e->is_dir) {
			r = depth < LIMIT_TREE_DEPTH ?
				    collect_below(s, path, depth + 1, ret) :
				    fail(-EFBIG, "'%s' is nested too deeply", path);
		} else {
			ret->bytes += e->size;
			ret->newest_ns = MAX(ret->newest_ns, clock_ns_of(e->mtime));
			ret->path[ret->n++] = take(path);
		}
	}
	return r;
}

int objects_collect(struct store *s, const char *path, struct objects *ret)
{
	return collect_below(s, path, 0, ret);
}

int object_is_listed(struct store *s, const char *dir, const char *name)
{
	auto_of(object_list) struct object_list *l = NULL;
	int r = s->kind->fetch(s, dir, &l);

	return r < 0 ? r : object_list_find(l, name, NULL);
}

int object_tree_size(struct store *s, const char *path, uint64_t *ret)
{
	auto_objects all = { 0 };
	int r = objects_collect(s, path, &all);

	*ret = all.bytes;
	return r;
}

struct removal {
	struct store *s;
	const char *path;
	bool (*keeps)(void *arg, const char *path);
	void *keeps_arg;
	int (*renew)(void *arg); /* may be NULL */
	void *renew_arg;
	uint64_t bytes;
};

static int tree_remove_some(const struct removal *rm, char *const *path, size_t n)
{
	int r = rm->renew ? rm->renew(rm->renew_arg) : 0;

	return r < 0 ? r : store_remove(&rm->s->base, (const char *const *)path, n);
}

/* Remove the objects below path that keeps() does not want. Returns how many there were. */
static int remove_others(struct removal *rm)
{
	auto_objects all = { 0 };
	size_t n = 0;
	int r = objects_collect(rm->s, rm->path, &all);

	rm->bytes += all.bytes;
	for (size_t i = 0; i < all.n; i++) {
		if (rm->keeps(rm->keeps_arg, all.path[i]))
			free(all.path[i]);
		else
			all.path[n++] = all.path[i];
	}
	all.n = n;
	for (size_t at = 0; at < n && r >= 0; at += REMOVED_PER_RENEWAL)
		r = tree_remove_some(rm, all.path + at, MIN(n - at, (size_t)REMOVED_PER_RENEWAL));
	return r < 0 ? r : (int)MIN(n, (size_t)INT_MAX);
}

int object_tree_remove_others(struct store *s, bool (*keeps)(void *arg, const char *path),
			      void *arg)
{
	struct removal rm = { .s = s, .path = "", .keeps = keeps, .keeps_arg = arg };

	return MIN(remove_others(&rm), 0);
}

struct seen_claim {
	char *path;
	bool found;
};

static bool is_claim(void *arg, const char *path)
{
	struct seen_claim *k = arg;
	bool is_it = !strcmp(path, k->path);

	k->found |= is_it;
	return is_it;
}

int object_tree_remove(struct store *s, const char *path, int (*renew)(void *arg), void *arg,
		       uint64_t *ret)
{
	auto_free char *claim = tree_join(path, CLAIM_FILE);
	struct seen_claim k = { .path = claim };
	struct removal rm = { s, path, is_claim, &k, renew, arg, 0 };
	int r = claim ? store_remove_uploads(&s->base, path) :
			fail(-ENOMEM, "cannot remove '%s'", path);

	if (r >= 0)
		r = remove_others(&rm);
	/* Requests of its writer may have been under way, that for its marker, too. */
	for (int i = 1; i < ROUNDS_MAX && r > 0 && k.found; i++)
		r = remove_others(&rm);
	if (r >= 0)
		r = tree_remove_some(&rm, &claim, 1);
	if (ret)
		*ret = rm.bytes;
	return r;
}
