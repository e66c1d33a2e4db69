/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - is a database sound? Small checks in a table, and the traversal that applies them.
 *
 * The parser of a record finds faults within it. This file finds contradictions between records,
 * and values that lie outside their file. The meaning of values is unknown here.
 *
 * A finding does not end the traversal: everything beside or below it is still checked, as far as
 * it can be reached. A node that several versions share is traversed once; each further reference
 * to it is checked against the node, and the bounds of its keys again.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/io/io_store.h"
#include "core/ocdbt/visited.h"

#define MAX_DIRS 8 /* three kinds of data file, each with a directory */

struct check {
	struct ocdbt *db;
	const struct ocdbt_check_opts *opts;
	struct ocdbt_check_stats stats;
	struct db_walk walk;
	struct visited nodes;
	struct visited files; /* value: the size, or UINT64_MAX for an unusable file */
	struct arena dirs_arena;
	struct span dir[MAX_DIRS]; /* directories of our own data files, each with a slash */
	size_t n_dirs;
	uint64_t generation, commit_time; /* of the previous version */
};

/* A node and how it was reached. All borrowed. */
struct visit {
	const struct ocdbt_ref *ref;
	const struct ocdbt_node *node;
	struct ocdbt_stats claimed; /* by the reference */
	struct span prefix;         /* implicit prefix of the node's keys */
	struct span low;            /* key of the reference, without the prefix */
	struct span high;           /* full key that bounds its keys from above; p NULL: none */
};

/* ---- findings: a function returns 0 to continue ---- */

static int found_code(struct check *c, enum ocdbt_severity severity, struct buf *where,
		      const char *text, int code)
{
	struct ocdbt_finding f = { severity, buf_str(where), text, code };

	if (!f.where)
		return -ENOMEM;
	c->stats.errors += severity == OCDBT_ERROR;
	c->stats.warnings += severity == OCDBT_WARN;
	return c->opts->found(c->opts->arg, &f);
}

static int found(struct check *c, enum ocdbt_severity severity, struct buf *where, const char *text)
{
	return found_code(c, severity, where, text, 0);
}

static int found_at(struct check *c, const char *kind, const struct ocdbt_ref *ref,
		    const char *text)
{
	auto_buf where = { 0 };
	int r = ocdbt_ref_text(&where, kind, ref);

	return r < 0 ? r : found(c, OCDBT_ERROR, &where, text);
}

static int found_in_version(struct check *c, const struct ocdbt_version *v, const char *text)
{
	auto_buf where = { 0 };
	int r = buf_addf(&where, "version:%" PRIu64, v->generation);

	return r < 0 ? r : found(c, OCDBT_ERROR, &where, text);
}

/* Report the failure r as a finding, unless it is a failure of the check itself, which ends it. */
static int failed_at(struct check *c, const char *kind, const struct ocdbt_ref *ref, int r)
{
	int code = r;
	struct err_note note;
	auto_buf where = { 0 };
	const char *text = note.text;

	if (r == -ENOMEM || db_walk_is_over(&c->walk))
		return r;
	err_save(r, &note);
	r = ocdbt_ref_text(&where, kind, ref);
	if (r < 0)
		return r;
	/* The note of a failed read already begins with the address. */
	if (span_starts(span_str(text), buf_span(&where)) && text[where.n] == ':')
		text += where.n + 2;
	return found_code(c, OCDBT_ERROR, &where, text, code);
}

/* ---- checks of a reference and its node: 0, or an error with a note ---- */

static int check_first(const struct visit *v)
{
	struct span first = ocdbt_node_key(v->node, 0);

	if (span_cmp(first, v->low) >= 0)
		return 0;
	return fail(-EUCLEAN, "first key '%.*s' is below '%.*s', the key of its reference",
		    SPAN_ARG(first), SPAN_ARG(v->low));
}

static int check_last(const struct visit *v)
{
	struct span last = ocdbt_node_key(v->node, v->node->n - 1);
	auto_buf full = { 0 };
	int r = buf_add_span(&full, v->prefix);

	if (r < 0)
		return r;
	r = buf_add_span(&full, last);
	if (r < 0 || !v->high.p || span_cmp(buf_span(&full), v->high) < 0)
		return r;
	return fail(-EUCLEAN, "last key '%.*s' is not below '%.*s', the key of the next reference",
		    (int)full.n, (const char *)full.p, SPAN_ARG(v->high));
}

static int check_key_length(const struct visit *v)
{
	for (uint32_t i = 0; i < v->node->n; i++) {
		size_t n = v->prefix.n + ocdbt_node_key(v->node, i).n;

		if (n > LIMIT_KEY_BYTES)
			return fail(-EUCLEAN, "key %u has %zu bytes, most is %d", i, n,
				    LIMIT_KEY_BYTES);
	}
	return 0;
}

/* R11 */
static int check_stats(const struct visit *v)
{
	struct ocdbt_stats is, own = { .tree_bytes = v->ref->len };

	ocdbt_node_stats(v->node, &is);
	ocdbt_stats_add(&is, &own);
	if (is.keys != v->claimed.keys)
		return fail(-EUCLEAN, "has %" PRIu64 " keys, its reference says %" PRIu64, is.keys,
			    v->claimed.keys);
	if (is.tree_bytes != v->claimed.tree_bytes)
		return fail(-EUCLEAN, "nodes have %" PRIu64 " bytes, the reference says %" PRIu64,
			    is.tree_bytes, v->claimed.tree_bytes);
	if (is.value_bytes != v->claimed.value_bytes)
		return fail(-EUCLEAN,
			    "values in files have %" PRIu64 " bytes, the reference says %" PRIu64,
			    is.value_bytes, v->claimed.value_bytes);
	return 0;
}

static int (*const node_checks[])(const struct visit *v) = {
	check_first,
	check_last,
	check_key_length,
	check_stats,
};

/* ---- files and values ---- */

static int check_path_id(struct span base, struct span rel, uint64_t ret[2])
{
	auto_buf path = { 0 };
	struct ocdbt_ref ref = { 0 };
	int r = buf_add_span(&path, base);

	if (r < 0)
		return r;
	r = buf_add_span(&path, rel);
	if (r < 0)
		return r;
	ref.rel = buf_span(&path);
	return db_ref_id(&ref, ret);
}

/* Remember the directory of one of our own files. A base leads to another database. */
static int note_dir(struct check *c, const struct ocdbt_ref *ref)
{
	const uint8_t *slash = ref->rel.n ? memrchr(ref->rel.p, '/', ref->rel.n) : NULL;
	struct span dir = span_of(ref->rel.p, slash ? (size_t)(slash - ref->rel.p) + 1 : 0);

	for (size_t i = 0; i < c->n_dirs; i++)
		if (span_eq(c->dir[i], dir))
			return 0;
	if (ref->base.n || c->n_dirs == MAX_DIRS)
		return 0;
	c->dir[c->n_dirs].p = arena_dup(&c->dirs_arena, dir);
	if (!c->dir[c->n_dirs].p)
		return fail(-ENOMEM, "cannot remember a directory");
	c->dir[c->n_dirs++].n = dir.n;
	return 0;
}

/* Get the size of a referenced file. The first time, an unusable file is a finding. */
static int note_file(struct check *c, const struct ocdbt_ref *ref, uint64_t *ret_size)
{
	struct ocdbt_ref whole = { .base = ref->base, .rel = ref->rel };
	auto_of(io_file) struct io_file *file = NULL;
	struct visited_item *item;
	uint64_t id[2], size;
	int r = check_path_id(ref->base, ref->rel, id), opened;

	if (r < 0)
		return r;
	r = visited_get(&c->files, id, &item);
	if (r < 0)
		return r;
	if (r > 0) {
		*ret_size = item->value;
		return 0;
	}
	c->stats.files++;
	/* An empty range at the start: only the file itself can be at fault. */
	opened = db_file(c->db, &whole, &file);
	size = opened < 0 ? UINT64_MAX : file->size;
	if (item)
		item->value = size;
	*ret_size = size;
	r = note_dir(c, ref);
	return r < 0 || opened >= 0 ? r : failed_at(c, "file", &whole, opened);
}

static int check_stored_value(struct check *c, const struct visit *v, uint32_t i)
{
	struct ocdbt_value value;
	uint64_t size;
	char text[128];
	int r;

	ocdbt_node_value(v->node, i, &value);
	if (value.kind == OCDBT_INLINE || value.ref.len == 0)
		return 0;
	c->stats.value_bytes += value.ref.len;
	r = note_file(c, &value.ref, &size);
	/* An unusable file counts as endless, since it was reported already. */
	if (r || value.ref.off + value.ref.len <= size)
		return r;
	snprintf(text, sizeof(text),
		 "value of key %u ends beyond the %" PRIu64 " bytes of its file", i, size);
	return found_at(c, "value", &value.ref, text);
}

/* ---- the tree ---- */

static int visit_node(struct check *c, const struct ocdbt_ref *ref, unsigned height,
		      const struct visit *as);

/* Visit child i. Its upper bound is the next key or, for the last child, the node's own bound. */
static int visit_child(struct check *c, const struct visit *v, uint32_t i)
{
	auto_buf prefix = { 0 }, high = { 0 };
	bool is_last = i + 1 == v->node->n;
	struct ocdbt_child child;
	struct visit down = { 0 };

	ocdbt_node_child(v->node, i, &child);
	if (buf_add_span(&prefix, v->prefix) < 0 || buf_add(&prefix, child.key.p, child.cut) < 0)
		return -ENOMEM;
	if (!is_last && (buf_add_span(&high, v->prefix) < 0 ||
			 buf_add_span(&high, ocdbt_node_key(v->node, i + 1)) < 0))
		return -ENOMEM;
	/* Prefixes longer than the limit of keys would only grow further down. */
	if (prefix.n > LIMIT_KEY_BYTES)
		return found_at(c, "btreenode", &child.ref,
				"its keys are longer than any key may be");
	down.claimed = child.stats;
	down.prefix = buf_span(&prefix);
	down.low = span_from(child.key, child.cut);
	down.high = is_last ? v->high : buf_span(&high);
	return visit_node(c, &child.ref, v->node->height - 1, &down);
}

/* is_known: the node's subtree was traversed before. */
static int check_below(struct check *c, const struct visit *v, bool is_known)
{
	int r = 0;

	if (v->node->height == 0) {
		if (is_known)
			return 0;
		c->stats.keys += v->node->n;
		for (uint32_t i = 0; i < v->node->n && r == 0; i++)
			r = check_stored_value(c, v, i);
		return r;
	}
	/* In a known subtree, only the right edge may have another bound this time. */
	for (uint32_t i = is_known ? v->node->n - 1 : 0; i < v->node->n && r == 0; i++)
		r = visit_child(c, v, i);
	return r;
}

/*
 * Recursion is bounded: db_pin() ensures that the height decreases, and the height of the root is
 * limited.
 */
static int visit_node(struct check *c, const struct ocdbt_ref *ref, unsigned height,
		      const struct visit *as)
{
	struct visit v = *as;
	struct visited_item *item;
	struct db_pin pin;
	uint64_t id[2], size;
	int r = db_ref_id(ref, id), known;

	if (r < 0)
		return r;
	known = visited_get(&c->nodes, id, &item);
	if (known < 0)
		return known;
	c->stats.nodes += !known;
	r = note_file(c, ref, &size);
	if (r || size == UINT64_MAX)
		return r;
	r = db_pin(c->db, ref, height, &c->walk, &pin);
	if (r < 0)
		return failed_at(c, "btreenode", ref, r);
	v.ref = ref;
	v.node = pin.node;
	for (size_t i = 0; i < ARRAY_LEN(node_checks) && r == 0; i++) {
		r = node_checks[i](&v);
		if (r < 0)
			r = failed_at(c, "btreenode", ref, r);
	}
	if (r == 0)
		r = check_below(c, &v, known);
	db_unpin(c->db, &pin);
	return r;
}

/* ---- versions ---- */

static int check_version(struct check *c, const struct ocdbt_version *v)
{
	struct visit top = { .claimed = v->stats };
	char text[128];
	int r = 0;

	if (c->stats.versions++ &&
	    (v->generation <= c->generation || v->commit_time <= c->commit_time)) {
		snprintf(text, sizeof(text),
			 "does not follow generation %" PRIu64 " of time %" PRIu64, c->generation,
			 c->commit_time);
		r = found_in_version(c, v, text);
	}
	c->generation = v->generation;
	c->commit_time = v->commit_time;
	if (r || ocdbt_version_is_empty(v))
		return r;
	if (v->root_height <= LIMIT_BTREE_HEIGHT)
		return visit_node(c, &v->root, v->root_height, &top);
	snprintf(text, sizeof(text), "height %u, the limit is %d", v->root_height,
		 LIMIT_BTREE_HEIGHT);
	return found_in_version(c, v, text);
}

/* Check the claims of a reference about the versions below it. */
static int check_claims(struct check *c, const struct ocdbt_version_ref *ref,
			const struct ocdbt_vnode *v)
{
	uint64_t n = v->height ? 0 : v->n;
	uint64_t time = v->height ? v->children[0].commit_time : v->versions[0].commit_time;
	char text[160];

	for (size_t i = 0; i < v->n && v->height; i++)
		if (!add_fits(n, v->children[i].num_generations, &n))
			n = UINT64_MAX;
	if (n == ref->num_generations && time == ref->commit_time)
		return 0;
	snprintf(text, sizeof(text),
		 "%" PRIu64 " generations from time %" PRIu64 ", the reference says %" PRIu64
		 " from %" PRIu64,
		 n, time, ref->num_generations, ref->commit_time);
	return found_at(c, "versionnode", &ref->node, text);
}

/* Recursion is bounded by the height; db_vnode() checks that it decreases. */
static int visit_vnode(struct check *c, const struct ocdbt_version_ref *ref)
{
	auto_vnode v = { 0 };
	uint64_t size;
	int r = note_file(c, &ref->node, &size);

	c->stats.version_nodes++;
	if (r || size == UINT64_MAX)
		return r;
	r = db_vnode(c->db, ref, &v);
	if (r < 0)
		return failed_at(c, "versionnode", &ref->node, r);
	r = db_walk_visit(&c->walk, v.arena.total);
	if (r < 0)
		return r;
	r = check_claims(c, ref, &v);
	for (size_t i = 0; i < v.n && r == 0; i++)
		r = v.height ? visit_vnode(c, &v.children[i]) : check_version(c, &v.versions[i]);
	return r;
}

static int check_versions(struct check *c)
{
	const struct ocdbt_manifest *m = &c->db->manifest;
	size_t first = 0;
	int r = 0;

	if (!c->opts->all_versions)
		first = m->n_versions ? m->n_versions - 1 : 0;
	for (size_t i = 0; i < m->n_nodes && r == 0 && c->opts->all_versions; i++)
		r = visit_vnode(c, &m->nodes[i]);
	for (size_t i = first; i < m->n_versions && r == 0; i++)
		r = check_version(c, &m->versions[i]);
	return r;
}

/* ---- unreferenced files ---- */

struct listing {
	struct check *c;
	struct span dir; /* with a slash */
	bool is_ended;   /* ended by the caller's function, or by a failure */
};

static int find_unused_file(struct check *c, struct span dir, const char *name)
{
	auto_buf where = { 0 };
	uint64_t id[2];
	int r = check_path_id(dir, span_str(name), id);

	if (r < 0 || visited_has(&c->files, id))
		return r;
	r = buf_addf(&where, "file:%.*s%s", SPAN_ARG(dir), name);
	return r < 0 ? r : found(c, OCDBT_INFO, &where, "nothing refers to this data file");
}

static int check_listed(void *arg, const char *name, unsigned char type)
{
	struct listing *l = arg;
	int r;

	if (strlen(name) != 32 || strspn(name, "0123456789abcdef") != 32)
		return 0;
	r = find_unused_file(l->c, l->dir, name);
	l->is_ended = r != 0;
	return r;
}

static int check_dir(struct check *c, struct span dir)
{
	struct listing l = { .c = c, .dir = dir };
	struct ocdbt_ref ref = { .rel = dir };
	auto_free char *path = dir.n ? span_dup_str(span_of(dir.p, dir.n - 1)) : strdup(".");
	int r = path ? io_list(c->db->dir, path, check_listed, &l) : -ENOMEM;

	/* A server that cannot list is not a fault: the referenced files were found. */
	if (r == -ENOENT && !l.is_ended && io_dir_in_store(c->db->dir)) {
		err_clear();
		return 0;
	}
	return r >= 0 || l.is_ended ? r : failed_at(c, "file", &ref, r);
}

int ocdbt_check(struct ocdbt *db, const struct ocdbt_check_opts *opts,
		struct ocdbt_check_stats *ret)
{
	struct check c = { .db = db, .opts = opts };
	int r = check_versions(&c);

	/* A node that could not be read may refer to a file that seems unused. */
	if (opts->unused_files && opts->all_versions && c.stats.errors == 0 &&
	    !visited_is_full(&c.files))
		for (size_t i = 0; i < c.n_dirs && r == 0; i++)
			r = check_dir(&c, c.dir[i]);
	visited_release(&c.nodes);
	visited_release(&c.files);
	arena_release(&c.dirs_arena);
	*ret = c.stats;
	return r;
}
