/* SPDX-License-Identifier: Apache-2.0 */
/*
 * db.c - an opened database: which manifest is current, and nodes by reference.
 *
 * versions.c finds versions, lookup.c finds keys.
 *
 * Invariant: the lock is not held while a file is opened, closed or read.
 */
#include "core/ocdbt/db.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/refusal.h"

/* ---- limits of a traversal ---- */

static int too_much(const char *what, uint64_t limit)
{
	return fail(-EFBIG, "one traversal of the database met more than %" PRIu64 " %s", limit,
		    what);
}

static int walk_bytes(struct db_walk *w, uint64_t n)
{
	w->bytes += n;
	return w->bytes > LIMIT_WALK_BYTES ? too_much("bytes", LIMIT_WALK_BYTES) : 0;
}

int db_walk_visit(struct db_walk *w, uint64_t bytes)
{
	if (++w->visits > LIMIT_NODE_VISITS)
		return too_much("nodes", LIMIT_NODE_VISITS);
	return walk_bytes(w, bytes);
}

int db_walk_key(struct db_walk *w, size_t key_n)
{
	if (++w->keys > LIMIT_WALK_KEYS)
		return too_much("keys", LIMIT_WALK_KEYS);
	return walk_bytes(w, key_n);
}

bool db_walk_is_over(const struct db_walk *w)
{
	return w->visits > LIMIT_NODE_VISITS || w->keys > LIMIT_WALK_KEYS ||
	       w->bytes > LIMIT_WALK_BYTES;
}

int db_read(struct ocdbt *db, const struct ocdbt_ref *ref, uint64_t limit, struct buf *ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	int r;

	if (ref->len > limit)
		return fail(-EFBIG, "%" PRIu64 " bytes, the limit is %" PRIu64, ref->len, limit);
	r = db_file(db, ref, &file);
	if (r < 0 || ref->len == 0)
		return r;
	r = buf_reserve(ret, ref->len);
	if (r < 0)
		return r;
	r = io_read_exact(file, ret->p + ret->n, ref->len, ref->off);
	if (r < 0)
		return r;
	ret->n += ref->len;
	return r;
}

/* ---- nodes ---- */

int db_err_at(int r, const char *kind, const struct ocdbt_ref *ref)
{
	struct err_note note;
	auto_buf at = { 0 };

	/* Making the address may fail, too; the first failure is reported. */
	err_save(r, &note);
	if (ocdbt_ref_text(&at, kind, ref) < 0 || !buf_str(&at))
		return err_restore(&note);
	err_restore(&note);
	return err_at(r, "%s", (const char *)at.p);
}

/* The mark of the file of a node as it is now. */
static int node_mark(struct ocdbt *db, const struct ocdbt_ref *ref, uint64_t *ret)
{
	auto_buf path = { 0 };
	uint64_t bytes = 0;
	int r = db_file_path(ref, &path);

	if (r >= 0)
		*ret = io_mark(db->dir, (const char *)path.p, 1, &bytes);
	return r;
}

/* The error of a node that was refused recently: decoding it again may be expensive. */
static int ask_refusal(struct ocdbt *db, const struct ocdbt_ref *ref, struct refusal_key key)
{
	uint64_t mark;
	int r;

	if (!refusal_is_likely(key))
		return 0;
	r = node_mark(db, ref, &mark);
	return r < 0 ? r : refusal_ask(key, mark);
}

/*
 * A shortage of memory is remembered only if it took long to find; any other error always, since
 * every look-up of a key of the node meets it.
 */
static int keep_refusal(struct ocdbt *db, const struct ocdbt_ref *ref, struct refusal_key key,
			int64_t began, int r)
{
	struct err_note note;
	uint64_t mark;

	err_save(r, &note);
	db_file_doubt(db, ref);
	if (node_mark(db, ref, &mark) < 0)
		return err_restore(&note);
	err_restore(&note);
	return refusal_keep(key, mark, r == -ENOMEM ? began : 0, r);
}

static int node_read(struct ocdbt *db, const struct ocdbt_ref *ref, struct ocdbt_node **ret)
{
	auto_buf stored = { .metered = true };
	int64_t began = clock_ns();
	struct refusal_key key;
	uint64_t id[2];
	int r = db_ref_id(ref, id);

	if (r < 0)
		return r;
	key = refusal_key(db->owner, span_of(id, sizeof(id)), 0);
	r = ask_refusal(db, ref, key);
	if (r < 0)
		return r;
	r = db_read(db, ref, LIMIT_NODE_BYTES, &stored);
	if (r < 0)
		return r;
	r = ocdbt_node_parse(buf_span(&stored), ref->base, ret);
	/* Before the free memory is noted. */
	buf_release(&stored);
	return r < 0 ? keep_refusal(db, ref, key, began, r) : 0;
}

static int node_load(struct ocdbt *db, const struct ocdbt_ref *ref, struct ocdbt_node **ret)
{
	int r = node_read(db, ref, ret);

	if (r < 0)
		return db_err_at(r, "btreenode", ref);
	trace(TRACE_OCDBT, "node %.*s%.*s:%" PRIu64 ":%" PRIu64 " height %u, %u entries",
	      SPAN_ARG(ref->base), SPAN_ARG(ref->rel), ref->off, ref->len, (*ret)->height,
	      (*ret)->n);
	return 0;
}

static void node_free(void *value)
{
	ocdbt_node_free(value);
}

/* Through the cache, so that only one thread decodes a node. */
static int node_cached(struct ocdbt *db, const struct ocdbt_ref *ref, struct cache_entry **ret,
		       uint64_t *ret_decoded)
{
	struct ocdbt_node *node = NULL;
	struct cache_entry *e;
	uint64_t id[2];
	int r = db_ref_id(ref, id), state;

	if (r < 0)
		return r;
	state = cache_begin(db->cache, &(struct cache_key){ db->owner, id[0], id[1] }, &e);
	if (state < 0)
		return state;
	if (state == CACHE_BUSY) {
		r = cache_wait(db->cache, e);
	} else if (state == CACHE_MINE) {
		r = node_load(db, ref, &node);
		if (r < 0) {
			cache_fail(db->cache, e, r);
		} else {
			*ret_decoded = ocdbt_node_charge(node);
			ocdbt_node_unmeter(node);
			cache_fill(db->cache, e, node, *ret_decoded, node_free);
		}
	}
	if (r < 0) {
		cache_put(db->cache, e);
		return r;
	}
	*ret = e;
	return 0;
}

int db_pin(struct ocdbt *db, const struct ocdbt_ref *ref, unsigned height, struct db_walk *walk,
	   struct db_pin *ret)
{
	struct ocdbt_node *own = NULL;
	struct db_pin pin = { 0 };
	uint64_t decoded = 0;
	int r;

	if (db->cache) {
		r = node_cached(db, ref, &pin.entry, &decoded);
		if (r < 0)
			return r;
		pin.node = pin.entry->value;
	} else {
		r = node_load(db, ref, &own);
		if (r < 0)
			return r;
		decoded = ocdbt_node_charge(own);
		pin.node = own;
	}
	r = db_walk_visit(walk, decoded);
	/* R10 */
	if (r >= 0 && pin.node->height != height)
		r = db_err_at(fail(-EUCLEAN, "height %u, should be %u", pin.node->height, height),
			      "btreenode", ref);
	if (r < 0) {
		db_unpin(db, &pin);
		return r;
	}
	*ret = pin;
	return 0;
}

void db_unpin(struct ocdbt *db, struct db_pin *pin)
{
	if (pin->entry)
		cache_put(db->cache, pin->entry);
	else
		ocdbt_node_free((struct ocdbt_node *)(uintptr_t)pin->node);
	*pin = (struct db_pin){ 0 };
}

/* R6: check a version node against the reference to it. */
static int check_vnode(const struct ocdbt *db, const struct ocdbt_version_ref *ref,
		       const struct ocdbt_vnode *v)
{
	uint64_t last = v->height ? v->children[v->n - 1].generation :
				    v->versions[v->n - 1].generation;

	if (v->arity_log2 != db->manifest.config.arity_log2)
		return fail(-EUCLEAN, "arity 2^%u, the database has 2^%u", v->arity_log2,
			    db->manifest.config.arity_log2);
	if (v->height != ref->height)
		return fail(-EUCLEAN, "height %u, should be %u", v->height, ref->height);
	if (last != ref->generation)
		return fail(-EUCLEAN, "last generation %" PRIu64 ", should be %" PRIu64, last,
			    ref->generation);
	return 0;
}

static int vnode_read(struct ocdbt *db, const struct ocdbt_version_ref *ref,
		      struct ocdbt_vnode *ret)
{
	auto_buf stored = { .metered = true };
	int r = db_read(db, &ref->node, LIMIT_MANIFEST_BYTES, &stored);

	if (r < 0)
		return r;
	r = ocdbt_vnode_parse(buf_span(&stored), ref->node.base, ret);
	return r < 0 ? r : check_vnode(db, ref, ret);
}

int db_vnode(struct ocdbt *db, const struct ocdbt_version_ref *ref, struct ocdbt_vnode *ret)
{
	auto_vnode v = { 0 };
	int r = vnode_read(db, ref, &v);

	if (r < 0)
		return db_err_at(r, "versionnode", &ref->node);
	*ret = v;
	v = (struct ocdbt_vnode){ 0 };
	return 0;
}

/* ---- manifests ---- */

#define MANIFEST "manifest.ocdbt"
#define MANIFEST_TRIES 100 /* a numbered manifest may disappear before it is read */

static int manifest_load(struct io_dir *dir, const char *name, struct ocdbt_manifest *ret)
{
	auto_buf stored = { 0 };
	int r = io_read_file(dir, name, LIMIT_MANIFEST_BYTES, &stored);

	if (r < 0)
		return r;
	r = ocdbt_manifest_parse(buf_span(&stored), ret);
	return r < 0 ? err_at(r, "'%s/%s'", dir->path, name) : 0;
}

/* "manifest." and 16 digits, not 0. As in TensorStore, the first digit is not a letter. */
static bool numbered_name(const char *name, uint64_t *ret)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t n = 0;

	if (strncmp(name, "manifest.", 9) || strlen(name) != 25 || name[9] > '9')
		return false;
	for (size_t i = 9; i < 25; i++) {
		const char *d = strchr(digits, name[i]);

		if (!d)
			return false;
		n = n << 4 | (uint64_t)(d - digits);
	}
	*ret = n;
	return n != 0;
}

static int find_newest(void *arg, const char *name, unsigned char type)
{
	uint64_t *newest = arg, n;

	if (numbered_name(name, &n))
		*newest = MAX(*newest, n);
	return 0;
}

static bool same_config(const struct ocdbt_config *a, const struct ocdbt_config *b)
{
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) &&
	       a->max_inline_value_bytes == b->max_inline_value_bytes &&
	       a->max_decoded_node_bytes == b->max_decoded_node_bytes &&
	       a->arity_log2 == b->arity_log2 && a->compression == b->compression &&
	       a->zstd_level == b->zstd_level;
}

/* R7: check a numbered manifest against its name and the manifest that announced it. */
static int check_numbered(const struct ocdbt_manifest *m, const struct ocdbt_manifest *announced,
			  const char *path, uint64_t number)
{
	if (m->config.kind != OCDBT_SINGLE)
		return fail(-EUCLEAN,
			    "'%s': a numbered manifest holds versions itself, this one does not",
			    path);
	if (m->versions[m->n_versions - 1].generation != number)
		return fail(-EUCLEAN, "'%s': last generation is %" PRIu64, path,
			    m->versions[m->n_versions - 1].generation);
	if (!same_config(&m->config, &announced->config))
		return fail(-EUCLEAN, "'%s': configuration differs from that of '%s'", path,
			    MANIFEST);
	return 0;
}

/*
 * Replace a manifest that announces numbered ones by the newest of them; if there are none, it
 * stays.
 */
static int load_numbered(struct ocdbt *db)
{
	for (int i = 0; i < MANIFEST_TRIES; i++) {
		auto_manifest m = { 0 };
		uint64_t newest = 0;
		char name[32];
		int r = io_list(db->dir, ".", find_newest, &newest);

		if (r < 0 || newest == 0)
			return r;
		snprintf(name, sizeof(name), "manifest.%016" PRIx64, newest);
		r = manifest_load(db->dir, name, &m);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		r = check_numbered(&m, &db->manifest, name, newest);
		if (r < 0)
			return r;
		buf_clear(&db->manifest_name);
		r = buf_add(&db->manifest_name, name, strlen(name) + 1);
		if (r < 0)
			return r;
		ocdbt_manifest_release(&db->manifest);
		db->manifest = m;
		m = (struct ocdbt_manifest){ 0 };
		return 0;
	}
	return fail(-EIO, "'%s': the newest manifest is removed each time before it is read",
		    db->dir->path);
}

static int db_load(struct ocdbt *db)
{
	int r = manifest_load(db->dir, MANIFEST, &db->manifest);

	if (r == -ENOENT)
		return fail(r, "no database in '%s': '%s' is absent", db->dir->path, MANIFEST);
	if (r < 0)
		return r;
	r = buf_add(&db->manifest_name, MANIFEST, sizeof(MANIFEST));
	if (r < 0)
		return r;
	if (db->manifest.config.kind == OCDBT_NUMBERED)
		r = load_numbered(db);
	return r;
}

int ocdbt_db_open(struct io_dir *dir, struct cache *cache, struct ocdbt **ret)
{
	struct ocdbt *db = calloc(1, sizeof(*db));
	int r;

	if (!db)
		return fail(-ENOMEM, "cannot open the database in '%s'", dir->path);
	pthread_mutex_init(&db->lock, NULL);
	db->dir = dir;
	db->cache = cache;
	db->owner = cache_owner();
	r = db_load(db);
	io_pins_begin(&db->pins, dir);
	if (r < 0) {
		db->dir = NULL; /* it is still the caller's */
		ocdbt_db_close(db);
		return r;
	}
	trace(TRACE_OCDBT, "open '%s/%s': %zu versions", dir->path,
	      (const char *)db->manifest_name.p, db->manifest.n_versions);
	*ret = db;
	return 0;
}

void ocdbt_db_close(struct ocdbt *db)
{
	if (!db)
		return;
	ocdbt_db_close_files(db);
	io_pins_release(&db->pins);
	if (db->cache)
		cache_drop(db->cache, db->owner);
	pthread_mutex_destroy(&db->lock);
	ocdbt_manifest_release(&db->manifest);
	buf_release(&db->manifest_name);
	io_dir_close(db->dir);
	free(db);
}

const struct ocdbt_manifest *ocdbt_db_manifest(const struct ocdbt *db)
{
	return &db->manifest;
}

const char *ocdbt_db_manifest_name(const struct ocdbt *db)
{
	return (const char *)db->manifest_name.p;
}
