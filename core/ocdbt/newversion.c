/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newversion.c - turn a finished tree into a version: manifests, and the carry into version nodes.
 *
 * Nothing is renamed here, and directories are not synced: the caller decides when a manifest takes
 * effect.
 *
 * Invariants: a version node is written before the manifest that refers to it (R13); generations
 * increase by one, commit times by at least one nanosecond; the manifest obeys R7.
 */
#include <sys/random.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/ocdbt/db.h"

int ocdbt_config_init(struct ocdbt_config *config)
{
	struct ocdbt_config c = {
		.kind = OCDBT_SINGLE,
		.max_inline_value_bytes = 1024,
		.max_decoded_node_bytes = 100000000,
		.arity_log2 = 4,
		.compression = OCDBT_ZSTD,
		.zstd_level = 0,
	};

	if (getrandom(c.uuid, sizeof(c.uuid), 0) != sizeof(c.uuid))
		return err_sys("cannot get random bytes for", "a database's uuid");
	*config = c;
	return 0;
}

static uint64_t now(void)
{
	return (uint64_t)clock_real_ns();
}

static int copy_ref(struct arena *a, struct ocdbt_ref *ref)
{
	ref->base.p = arena_dup(a, ref->base);
	ref->rel.p = arena_dup(a, ref->rel);
	return ref->base.p && ref->rel.p ? 0 : fail(-ENOMEM, "cannot allocate a manifest");
}

/* ---- the first version ---- */

int ocdbt_manifest_first(const struct ocdbt_config *config, const struct ocdbt_version *root,
			 uint64_t time, struct ocdbt_manifest *ret)
{
	auto_manifest m = { .config = *config, .n_versions = 1 };
	int r;

	m.versions = arena_calloc(&m.arena, 1, sizeof(*m.versions));
	if (!m.versions)
		return fail(-ENOMEM, "cannot allocate a manifest");
	m.versions[0] = *root;
	m.versions[0].generation = 1;
	m.versions[0].commit_time = time ? time : now();
	r = copy_ref(&m.arena, &m.versions[0].root);
	if (r < 0)
		return r;
	*ret = m;
	m = (struct ocdbt_manifest){ 0 };
	return 0;
}

/* ---- one more version ---- */

struct carry {
	struct ocdbt *db;
	const struct ocdbt_manifest *old;
	struct ocdbt_data *data;
	struct ocdbt_manifest *new;
};

static int put_vnode(struct carry *c, const struct ocdbt_vnode *v, struct ocdbt_version_ref *ret)
{
	auto_buf record = { 0 };
	int r = ocdbt_vnode_pack(v, &c->new->config, &record);

	return r < 0 ? r : ocdbt_data_put(c->data, buf_span(&record), &ret->node);
}

/* Write the former inline versions as a node of height 0. */
static int put_leaf(struct carry *c, struct ocdbt_version_ref *ret)
{
	const struct ocdbt_version *v = c->old->versions;
	size_t n = c->old->n_versions;
	struct ocdbt_vnode leaf = { .arity_log2 = c->old->config.arity_log2,
				    .n = n,
				    .versions = c->old->versions };

	*ret = (struct ocdbt_version_ref){ .generation = v[n - 1].generation,
					   .num_generations = n,
					   .commit_time = v[0].commit_time };
	return put_vnode(c, &leaf, ret);
}

/* Write a node of this height with the children of keep, which may be NULL, followed by child. */
static int put_interior(struct carry *c, unsigned height, const struct ocdbt_version_ref *keep,
			const struct ocdbt_version_ref *child, struct ocdbt_version_ref *ret)
{
	auto_vnode was = { 0 };
	auto_free struct ocdbt_version_ref *children = NULL;
	struct ocdbt_vnode v = { .arity_log2 = c->old->config.arity_log2, .height = height };
	struct ocdbt_version_ref sum = { .height = height, .generation = child->generation };
	int r = keep ? db_vnode(c->db, keep, &was) : 0;

	if (r < 0)
		return r;
	children = calloc(was.n + 1, sizeof(*children));
	if (!children)
		return fail(-ENOMEM, "cannot allocate a version node");
	if (was.n)
		memcpy(children, was.children, was.n * sizeof(*children));
	children[was.n] = *child;
	v.children = children;
	v.n = was.n + 1;
	sum.commit_time = children[0].commit_time;
	for (size_t i = 0; i < v.n; i++)
		sum.num_generations += children[i].num_generations;
	r = put_vnode(c, &v, &sum);
	if (r < 0)
		return r;
	*ret = sum;
	return 0;
}

static const struct ocdbt_version_ref *node_of_height(const struct ocdbt_manifest *m,
						      unsigned height)
{
	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->nodes[i].height == height)
			return &m->nodes[i];
	return NULL;
}

static const struct ocdbt_version_ref *in_range(const struct ocdbt_version_ref *v, uint64_t low,
						uint64_t high)
{
	return v && v->generation > low && v->generation <= high ? v : NULL;
}

/*
 * The inline versions are full: they become a node, which becomes a child of the node of height 1,
 * unless that one is out of its range with the new generation. Then it becomes a child at height 2,
 * and so on.
 */
static int carry_up(struct carry *c, uint64_t g, struct ocdbt_version_ref *up, size_t *ret_n)
{
	unsigned a = c->old->config.arity_log2;
	struct ocdbt_version_ref leaf;
	const struct ocdbt_version_ref *prev = &leaf;
	uint64_t low, high;
	size_t n = 0;
	int r = put_leaf(c, &leaf);

	for (unsigned h = 1; r >= 0 && ocdbt_manifest_range(a, g, h, &low, &high); h++) {
		const struct ocdbt_version_ref *old = node_of_height(c->old, h);
		const struct ocdbt_version_ref *keep = in_range(old, low, high);
		const struct ocdbt_version_ref *child = in_range(prev, low, high);

		if (child)
			r = put_interior(c, h, keep, child, &up[n++]);
		else if (keep)
			up[n++] = *keep;
		prev = old;
	}
	*ret_n = n;
	return r;
}

static int add_nodes(struct carry *c, uint64_t g)
{
	unsigned a = c->old->config.arity_log2;
	struct ocdbt_version_ref up[64];
	size_t n;
	int r = carry_up(c, g, up, &n);

	if (r < 0)
		return r;
	c->new->nodes = arena_calloc(&c->new->arena, ocdbt_vnode_height_max(a), sizeof(*up));
	if (!c->new->nodes)
		return fail(-ENOMEM, "cannot allocate a manifest");
	for (size_t i = 0; i < n && r >= 0; i++) {
		/* The highest node comes first. */
		c->new->nodes[i] = up[n - 1 - i];
		r = copy_ref(&c->new->arena, &c->new->nodes[i].node);
	}
	c->new->n_nodes = n;
	return r;
}

/* Keep version nodes and inline versions; the caller adds the new version. */
static int keep_all(struct carry *c)
{
	struct ocdbt_manifest *m = c->new;
	int r = 0;

	m->nodes = arena_calloc(&m->arena, c->old->n_nodes, sizeof(*m->nodes));
	if (!m->nodes)
		return fail(-ENOMEM, "cannot allocate a manifest");
	for (size_t i = 0; i < c->old->n_nodes && r >= 0; i++) {
		m->nodes[i] = c->old->nodes[i];
		r = copy_ref(&m->arena, &m->nodes[i].node);
	}
	m->n_nodes = c->old->n_nodes;
	for (size_t i = 0; i < c->old->n_versions && r >= 0; i++) {
		m->versions[i] = c->old->versions[i];
		r = copy_ref(&m->arena, &m->versions[i].root);
	}
	m->n_versions = c->old->n_versions;
	return r;
}

static int check_can_follow(const struct ocdbt *db)
{
	const struct ocdbt_manifest *m = &db->manifest;

	if (m->n_versions == 0 || strcmp(ocdbt_db_manifest_name(db), "manifest.ocdbt"))
		return fail(-EOPNOTSUPP,
			    "'%s': adding a version to a database with numbered manifests",
			    db->dir->path);
	if (m->versions[m->n_versions - 1].generation >= UINT64_MAX - 1 ||
	    m->versions[m->n_versions - 1].commit_time >= INT64_MAX)
		return fail(-EFBIG, "'%s': generations or commit times are used up", db->dir->path);
	return 0;
}

int ocdbt_manifest_next(struct ocdbt *db, const struct ocdbt_version *root, uint64_t time,
			struct ocdbt_data *data, struct ocdbt_manifest *ret)
{
	const struct ocdbt_version *last;
	auto_manifest m = { .config = db->manifest.config };
	struct carry c = { .db = db, .old = &db->manifest, .data = data, .new = &m };
	struct ocdbt_version *v;
	int r = check_can_follow(db);

	if (r < 0)
		return r;
	last = &db->manifest.versions[db->manifest.n_versions - 1];
	m.versions = arena_calloc(&m.arena, db->manifest.n_versions + 1, sizeof(*m.versions));
	if (!m.versions)
		return fail(-ENOMEM, "cannot allocate a manifest");
	/* Generation g is the first of its block when g - 1 is a multiple of the arity. */
	if (last->generation & (((uint64_t)1 << m.config.arity_log2) - 1))
		r = keep_all(&c);
	else
		r = add_nodes(&c, last->generation + 1);
	if (r < 0)
		return r;
	v = &m.versions[m.n_versions++];
	*v = *root;
	v->generation = last->generation + 1;
	v->commit_time = MAX(time ? time : now(), last->commit_time + 1);
	r = copy_ref(&m.arena, &v->root);
	if (r < 0)
		return r;
	*ret = m;
	m = (struct ocdbt_manifest){ 0 };
	return 0;
}

int ocdbt_manifest_write(struct io_dir *dir, const struct ocdbt_manifest *m, const char *name)
{
	auto_buf record = { 0 };
	int r = ocdbt_manifest_pack(m, &m->config, &record);

	return r < 0 ? r : io_write_file(dir, name ? name : "manifest.ocdbt", buf_span(&record));
}

static int write_new_database(struct io_dir *dir, const char *name, ocdbt_build_fn *build,
			      void *arg, struct ocdbt_data *nodes)
{
	auto_manifest manifest = { 0 };
	struct ocdbt_config config;
	struct ocdbt_version root;
	int r = ocdbt_config_init(&config);

	if (r < 0)
		return r;
	r = build(arg, &config, nodes, &root);
	if (r < 0)
		return r;
	r = ocdbt_data_sync(nodes);
	if (r < 0)
		return r;
	r = ocdbt_manifest_first(&config, &root, 0, &manifest);
	return r < 0 ? r : ocdbt_manifest_write(dir, &manifest, name);
}

int ocdbt_database_write(struct io_dir *dir, unsigned dir_mode, const char *name,
			 ocdbt_build_fn *build, void *arg, struct ocdbt_data **ret)
{
	const struct ocdbt_data_opts opts = { .dir_mode = dir_mode };
	auto_of(ocdbt_data) struct ocdbt_data *nodes = NULL;
	struct err_note note;
	int r = ocdbt_data_new(dir, &opts, &nodes);

	if (r < 0)
		return r;
	r = write_new_database(dir, name, build, arg, nodes);
	if (r < 0) {
		err_save(r, &note);
		ocdbt_data_discard(nodes);
		return err_restore(&note);
	}
	*ret = take(nodes);
	return 0;
}
