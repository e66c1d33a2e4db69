/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_tree.c - finds and removes objects that dead writers left in a bucket.
 *
 * A writer's claim is removed after everything else, so that a removal that failed can be repeated.
 */
#include "core/store/object_tree.h"

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/store/claim.h"
#include "core/store/step_upload.h"

struct objects {
	char **path;
	size_t n, cap;
	uint64_t bytes;
	int64_t newest_ns; /* the last modification of any */
};

static void objects_release(struct objects *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->path[i]);
	free(o->path);
}

static char *join(const char *dir, const char *name)
{
	return str_fmt("%s%s%s", dir, *dir ? "/" : "", name);
}

static int collect(struct store *s, const char *dir, unsigned depth, struct objects *ret)
{
	struct object_list *l;
	int r = s->kind->fetch(s, dir, &l);

	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	for (size_t i = 0; i < l->n && r >= 0; i++) {
		char *path = join(dir, l->entry[i].name);
		struct io_object o;

		if (!path || !array_reserve(ret->path, ret->cap, ret->n + 1)) {
			free(path);
			r = fail(-ENOMEM, "cannot list '%s'", dir);
		} else if (object_list_find(l, l->entry[i].name, &o) && o.is_dir) {
			r = depth < LIMIT_TREE_DEPTH ?
				    collect(s, path, depth + 1, ret) :
				    fail(-EFBIG, "'%s' is nested too deeply", path);
			free(path);
		} else {
			ret->bytes += o.size;
			ret->newest_ns = MAX(ret->newest_ns, clock_ns_of(o.mtime));
			ret->path[ret->n++] = path;
		}
	}
	object_list_free(l);
	return r;
}

int object_tree_size(struct store *s, const char *path, uint64_t *ret)
{
	struct objects all = { 0 };
	int r = collect(s, path, 0, &all);

	*ret = all.bytes;
	objects_release(&all);
	return r;
}

int object_tree_remove_others(struct store *s, bool (*keeps)(void *arg, const char *path),
			      void *arg)
{
	struct objects all = { 0 };
	size_t n = 0;
	int r = collect(s, "", 0, &all);

	for (size_t i = 0; i < all.n; i++) {
		if (keeps(arg, all.path[i]))
			free(all.path[i]);
		else
			all.path[n++] = all.path[i];
	}
	all.n = n;
	if (r >= 0 && n)
		r = store_remove(&s->base, (const char *const *)all.path, n);
	objects_release(&all);
	return r;
}

int object_tree_remove(struct store *s, const char *path, uint64_t *ret)
{
	auto_free char *claim = join(path, CLAIM_FILE);
	struct objects all = { 0 };
	size_t n = 0;
	int r = claim ? store_remove_uploads(&s->base, path) :
			fail(-ENOMEM, "cannot remove '%s'", path);

	if (r >= 0)
		r = collect(s, path, 0, &all);
	if (ret)
		*ret = all.bytes;
	for (size_t i = 0; i < all.n; i++) {
		if (!strcmp(all.path[i], claim))
			free(all.path[i]);
		else
			all.path[n++] = all.path[i];
	}
	all.n = n;
	if (r >= 0)
		r = store_remove(&s->base, (const char *const *)all.path, all.n);
	if (r >= 0)
		r = store_remove(&s->base, (const char *const *)&claim, 1);
	objects_release(&all);
	return r;
}

/* ---- claims of dead writers ---- */

/* Whether nothing of what a writer that cannot be checked has sent is young. */
static bool is_old(const struct objects *all, const struct upload_gc *gc)
{
	return gc->older_than_ns && clock_real_ns() - all->newest_ns > gc->older_than_ns;
}

static int is_dead(struct store *s, const char *path, const char *claim, const struct io_object *o,
		   const struct upload_gc *gc)
{
	/* The claim is as old as the draft, whose objects may be new. */
	struct objects all = { .newest_ns = clock_ns_of(o->mtime) };
	auto_buf text = { 0 };
	int r = store_get(&s->base, claim, CLAIM_BYTES, &text), live;

	/* The claim has just been removed, or is not ours. */
	if (r == -ENOENT || r == -EFBIG) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	live = claim_is_live(buf_span(&text));
	if (live >= 0)
		return !live;
	r = is_old(&all, gc) ? collect(s, path, 0, &all) : 0;
	if (r >= 0)
		r = is_old(&all, gc);
	objects_release(&all);
	return r;
}

static int remove_one(struct store *s, const char *path, const char *claim, bool is_step,
		      const struct upload_gc *gc, uint64_t *ret)
{
	if (is_step) {
		*ret = 0;
		return gc->dry_run ? 0 : store_remove(&s->base, &claim, 1);
	}
	return gc->dry_run ? object_tree_size(s, path, ret) : object_tree_remove(s, path, ret);
}

/*
 * Whether only a rank of a job sends the object dir/PATH: for its database, or a part of an array
 * in a directory of an item. (In a directory of an item that is given as the URL, it may be live:
 * the claim is above.)
 */
static bool is_of_rank(const char *dir, const char *path)
{
	const char *first = path + strlen(dir) + 1;

	for (const char *name = first; *name; name += strcspn(name, "/")) {
		name += *name == '/';
		if (!strncmp(name, RANK_PREFIX, strlen(RANK_PREFIX)) ||
		    (name != first && !strncmp(name, PART_PREFIX, strlen(PART_PREFIX))))
			return true;
	}
	return false;
}

/*
 * Handle a directory without claim and marker. If the process that holds the claim of a job dies,
 * and the claim is removed while another rank still sends, the objects of that rank remain. Nothing
 * says which process sent them, so only their age decides. A directory with any other object is not
 * ours: what another program has committed has at least a document that describes it.
 */
static int look_at_unclaimed(struct store *s, const char *path, const struct upload_gc *gc)
{
	struct found_upload f = { .path = path, .is_unclaimed = true };
	struct objects all = { 0 };
	int r = collect(s, path, 0, &all);
	size_t n = 0;

	while (r >= 0 && n < all.n && is_of_rank(path, all.path[n]))
		n++;
	if (r >= 0 && n > 0 && n == all.n) {
		f.bytes = all.bytes;
		f.removed = is_old(&all, gc);
		/*
		 * Only what was listed: a new writer may have claimed the place since, even
		 * committed.
		 */
		if (f.removed && !gc->dry_run)
			f.failed = MIN(store_remove(&s->base, (const char *const *)all.path, all.n),
				       0);
		f.removed = f.removed && f.failed == 0;
		gc->each(gc->arg, &f);
	}
	objects_release(&all);
	return r;
}

/* Handle a directory, which may have a claim. */
static int look_at(struct store *s, const char *path, bool is_in_root, const struct upload_gc *gc)
{
	auto_free char *claim = join(path, CLAIM_FILE);
	struct found_upload f = { .path = path };
	struct object_list *l;
	struct io_object o, marker;
	int r = claim ? s->kind->fetch(s, path, &l) : -ENOMEM;

	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	f.is_step = object_list_find(l, MARKER_FILE, &marker);
	r = object_list_find(l, CLAIM_FILE, &o) && !o.is_dir;
	object_list_free(l);
	if (r == 0)
		return is_in_root && !f.is_step ? look_at_unclaimed(s, path, gc) : 0;
	r = is_dead(s, path, claim, &o, gc);
	f.is_live = r == 0;
	if (r > 0)
		r = remove_one(s, path, claim, f.is_step, gc, &f.bytes);
	else if (r == 0)
		r = object_tree_size(s, path, &f.bytes);
	f.failed = MIN(r, 0);
	f.removed = !f.is_live && r >= 0;
	gc->each(gc->arg, &f);
	return 0;
}

static int look_around(struct store *s, const struct upload_gc *gc)
{
	struct object_list *l;
	struct io_object o;
	bool is_step;
	int r = s->kind->fetch(s, "", &l);

	if (r < 0)
		return r;
	/* In a step that is committed or claimed, nothing without a claim is left over. */
	is_step = object_list_find(l, MARKER_FILE, &o) || object_list_find(l, CLAIM_FILE, &o);
	for (size_t i = 0; i < l->n && r >= 0; i++)
		if (object_list_find(l, l->entry[i].name, &o) && o.is_dir)
			r = look_at(s, l->entry[i].name, !is_step, gc);
	object_list_free(l);
	return r < 0 ? r : look_at(s, "", false, gc);
}

int step_uploads_remove(const char *url, const struct url_store_opts *opts,
			const struct upload_gc *gc)
{
	struct url_store_opts so = *opts;
	struct io_store *base;
	int r;

	so.writes = true;
	so.cache_dir = NULL;
	r = store_open(url, &so, &base);
	if (r < 0)
		return r;
	r = store_check_writable(base);
	if (r >= 0)
		r = look_around(container_of(base, struct store, base), gc);
	base->ops->free(base);
	return r;
}
