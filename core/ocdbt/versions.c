/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions.c - the version tree: find a version, and traverse all.
 *
 * version.c has the bytes of its nodes. Version nodes are small and rarely needed, so they are read
 * each time and not cached.
 *
 * Invariants: a child is one lower than its parent and ends with the generation that its parent
 * states (R6), so a search descends at most 62 levels; the versions that a traversal returns
 * strictly ascend, whatever the nodes claim.
 */
#include "core/base/err.h"
#include "core/ocdbt/db.h"

static int copy_version(const struct ocdbt_version *v, struct arena *a, struct ocdbt_version *ret)
{
	const uint8_t *base = arena_dup(a, v->root.base), *rel = arena_dup(a, v->root.rel);

	if (!base || !rel)
		return fail(-ENOMEM, "cannot allocate a version");
	*ret = *v;
	ret->root.base.p = base;
	ret->root.rel.p = rel;
	return 1;
}

/* Find the last version of the array that matches. Returns 1, or 0. */
static int find_in_array(const struct ocdbt_version *v, size_t n, const struct ocdbt_when *when,
			 struct arena *a, struct ocdbt_version *ret)
{
	for (size_t i = n; i > 0; i--) {
		const struct ocdbt_version *one = &v[i - 1];

		if (when->generation ? one->generation == when->generation :
				       one->commit_time <= when->time)
			return copy_version(one, a, ret);
	}
	return 0;
}

/* The only reference below which the version can be, or NULL. */
static const struct ocdbt_version_ref *choose(const struct ocdbt_version_ref *ref, size_t n,
					      const struct ocdbt_when *when)
{
	const struct ocdbt_version_ref *best = NULL;

	for (size_t i = 0; i < n; i++) {
		/*
		 * By generation, the first that ends late enough; by time, the last that begins
		 * early enough.
		 */
		if (when->generation && ref[i].generation >= when->generation)
			return &ref[i];
		if (!when->generation && ref[i].commit_time <= when->time)
			best = &ref[i];
	}
	return best;
}

int ocdbt_find_version(struct ocdbt *db, const struct ocdbt_when *when, struct arena *a,
		       struct ocdbt_version *ret)
{
	const struct ocdbt_manifest *m = &db->manifest;
	const struct ocdbt_version_ref *ref;
	auto_vnode at = { 0 };
	int r;

	if (m->n_versions == 0)
		return 0;
	if (!when->generation && !when->time)
		return copy_version(&m->versions[m->n_versions - 1], a, ret);
	r = find_in_array(m->versions, m->n_versions, when, a, ret);
	if (r != 0 || when->generation > m->versions[m->n_versions - 1].generation)
		return r;
	ref = choose(m->nodes, m->n_nodes, when);
	while (ref) {
		struct ocdbt_vnode next = { 0 };

		r = db_vnode(db, ref, &next);
		if (r < 0)
			return r;
		ocdbt_vnode_release(&at);
		at = next;
		if (at.height == 0)
			return find_in_array(at.versions, at.n, when, a, ret);
		ref = choose(at.children, at.n, when);
	}
	return 0;
}

int db_open_latest(struct io_dir *dir, const char *name, struct cache *cache, struct arena *a,
		   struct ocdbt **ret, struct ocdbt_version *ret_version)
{
	static const struct ocdbt_when latest;
	auto_of(io_dir) struct io_dir *sub = NULL;
	int r = io_dir_sub(dir, name, &sub);

	if (r < 0)
		return r;
	r = ocdbt_db_open(sub, cache, ret);
	if (r < 0)
		return r;
	sub = NULL; /* taken */
	r = ocdbt_find_version(*ret, &latest, a, ret_version);
	if (r == 0)
		*ret_version = (struct ocdbt_version){ .root.off = OCDBT_NO_ROOT,
						       .root.len = OCDBT_NO_ROOT };
	return MIN(r, 0);
}

/* ---- all versions ---- */

struct walk {
	struct ocdbt *db;
	ocdbt_version_fn *each;
	void *arg;
	uint64_t generation, commit_time; /* of the last one returned */
	bool any;
};

static int give(struct walk *w, const struct ocdbt_version *v, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		/* A node does not know what precedes it, so only the traversal can check this. */
		if (w->any &&
		    (v[i].generation <= w->generation || v[i].commit_time <= w->commit_time))
			return fail(-EUCLEAN,
				    "generation %llu of time %llu follows generation %llu"
				    " of time %llu",
				    (unsigned long long)v[i].generation,
				    (unsigned long long)v[i].commit_time,
				    (unsigned long long)w->generation,
				    (unsigned long long)w->commit_time);
		w->any = true;
		w->generation = v[i].generation;
		w->commit_time = v[i].commit_time;
		r = w->each(w->arg, &v[i]);
	}
	return r;
}

/* Recursion is bounded by the height, which decreases with each step. */
static int walk_vnode(struct walk *w, const struct ocdbt_version_ref *ref)
{
	auto_vnode v = { 0 };
	int r = db_vnode(w->db, ref, &v);

	if (r < 0)
		return r;
	if (v.height == 0)
		return give(w, v.versions, v.n);
	for (size_t i = 0; i < v.n && r == 0; i++)
		r = walk_vnode(w, &v.children[i]);
	return r;
}

int ocdbt_each_version(struct ocdbt *db, ocdbt_version_fn *each, void *arg)
{
	const struct ocdbt_manifest *m = &db->manifest;
	struct walk w = { .db = db, .each = each, .arg = arg };
	int r = 0;

	for (size_t i = 0; i < m->n_nodes && r == 0; i++)
		r = walk_vnode(&w, &m->nodes[i]);
	return r ? r : give(&w, m->versions, m->n_versions);
}
