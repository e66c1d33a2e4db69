/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_store_dir.c - leaves of a directory store: one directory per leaf, with a temporary name
 * until the commit.
 *
 * The thread that encoded a file writes and syncs it, so a commit syncs only directories.
 */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/lock.h"
#include "core/commit/item_store_impl.h"

/* Files of at least this size are written back or dropped from the page cache when complete. */
#define BEHIND_BYTES ((uint64_t)1 << 20)

/* The checksum of a value that was written. */
struct sum {
	struct span key;
	/* in the order of writing; if a key was written again, its last sum counts */
	size_t number;
	uint32_t crc;
	bool unchecked; /* the value has none */
};

struct leaf {
	struct kv base;
	struct item_store *store; /* a reference */
	pthread_mutex_t lock;
	bool made;         /* protected by lock */
	struct arena keys; /* of sums; protected by lock */
	struct sum *sum;   /* protected by lock */
	size_t n_sums, sum_cap;
	/*
	 * Read-locked while files are located. The commit, which is a single thread, locks it for
	 * writing while it renames the files, since a file that is not found counts as zeros.
	 */
	pthread_rwlock_t place;
	char *path; /* of the leaf's directory, relative to the item's */
	/*
	 * some or all files are in the item's own directory; path is the leaf's previous directory
	 */
	bool bare;
};

static struct leaf *store_dir_leaf_of(struct kv *kv)
{
	assert(kv->ops == &item_store_dir_ops);
	return container_of(kv, struct leaf, base);
}

/* ---- values in pieces ---- */

struct piecewise {
	struct kv_stream base;
	struct leaf *leaf;
	struct io_file *file;
	struct span key; /* allocated in the leaf's arena */
	uint64_t at;
	uint32_t crc;
};

static int remember_sum(struct leaf *l, struct sum sum)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&l->lock);

	if (l->n_sums == l->sum_cap) {
		/* Most leaves have few values, so this begins with less than array_reserve(). */
		size_t cap = l->sum_cap ? 2 * l->sum_cap : 4;
		struct sum *more = reallocarray(l->sum, cap, sizeof(*more));

		if (!more)
			return fail(-ENOMEM, "cannot remember %zu checksums", cap);
		l->sum = more;
		l->sum_cap = cap;
	}
	sum.number = l->n_sums;
	l->sum[l->n_sums++] = sum;
	return 0;
}

static int store_dir_piecewise_add(struct kv_stream *s, struct span piece)
{
	struct piecewise *p = container_of(s, struct piecewise, base);
	int r = io_write_exact(p->file, piece.p, piece.n, p->at);

	if (r < 0)
		return r;
	p->at += piece.n;
	p->crc = crc32c_more(p->crc, piece);
	return 0;
}

static void store_dir_piecewise_abort(struct kv_stream *s)
{
	struct piecewise *p = container_of(s, struct piecewise, base);

	io_file_unref(p->file);
	free(p);
}

static int store_dir_piecewise_close(struct kv_stream *s)
{
	struct piecewise *p = container_of(s, struct piecewise, base);
	bool unsynced = p->leaf->store->opts.unsynced;
	int r = unsynced ? 0 : io_file_sync(p->file);

	if (r < 0)
		return r;
	r = remember_sum(p->leaf,
			 (struct sum){ .key = p->key, .crc = p->crc, .unchecked = s->unchecked });
	if (r < 0)
		return r;
	if (p->at >= BEHIND_BYTES) {
		if (unsynced)
			io_file_write_behind(p->file, 0, p->at);
		else
			io_file_drop_cache(p->file, 0, p->at);
	}
	store_dir_piecewise_abort(s);
	return 0;
}

static const struct kv_stream_ops piecewise_ops = { .add = store_dir_piecewise_add,
						    .close = store_dir_piecewise_close,
						    .abort = store_dir_piecewise_abort };

static int store_dir_leaf_put_open(struct kv *kv, struct span key, struct kv_stream **ret)
{
	struct leaf *l = store_dir_leaf_of(kv);
	auto_free struct piecewise *p = calloc(1, sizeof(*p));
	auto_free char *path = str_fmt("%s/%.*s", l->path, SPAN_ARG(key));
	bool made;
	int r;

	if (!p || !path)
		return fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
	pthread_mutex_lock(&l->lock);
	made = l->made;
	r = arena_keep(&l->keys, key, &p->key);
	pthread_mutex_unlock(&l->lock);
	if (r >= 0 && (!made || memchr(key.p, '/', key.n)))
		r = io_make_parents(l->store->dir, path, l->store->opts.dir_mode);
	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	l->made = true;
	pthread_mutex_unlock(&l->lock);
	r = io_file_open(l->store->dir, path, O_RDWR | O_CREAT | O_TRUNC, IO_FILE_MODE, &p->file);
	if (r < 0)
		return r;
	p->base.ops = &piecewise_ops;
	p->leaf = l;
	*ret = &take(p)->base;
	return 0;
}

static int store_dir_leaf_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_stream *s;
	int r = store_dir_leaf_put_open(kv, key, &s);

	if (r < 0)
		return r;
	r = store_dir_piecewise_add(s, value);
	if (r >= 0)
		r = store_dir_piecewise_close(s);
	if (r < 0)
		store_dir_piecewise_abort(s);
	return r;
}

/* ---- reading back ---- */

static int store_dir_leaf_locate(struct kv *kv, const struct span *key, struct kv_loc *ret,
				 size_t n)
{
	struct leaf *l = store_dir_leaf_of(kv);
	int r = 0;

	pthread_rwlock_rdlock(&l->place);
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_buf path = { 0 };
		struct span full;

		r = buf_addf(&path, "%s/%.*s", l->path, SPAN_ARG(key[i]));
		full = buf_span(&path);
		if (r < 0)
			break;
		r = kv_locate(l->store->files, &full, &ret[i], 1);
		if (r < 0)
			break;
		if (ret[i].where == KV_ABSENT && l->bare)
			r = kv_locate(l->store->files, &key[i], &ret[i], 1);
	}
	pthread_rwlock_unlock(&l->place);
	return r;
}

struct listing {
	size_t skip;
	kv_each_fn *each;
	void *arg;
};

static int store_dir_list_one(void *arg, struct span key, uint64_t len)
{
	struct listing *ls = arg;

	return ls->each(ls->arg, span_from(key, ls->skip), len);
}

static int store_dir_leaf_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct leaf *l = store_dir_leaf_of(kv);
	struct listing ls = { .each = each, .arg = arg };
	auto_buf full = { 0 };
	int r;

	pthread_rwlock_rdlock(&l->place);
	ls.skip = strlen(l->path) + 1;
	r = buf_addf(&full, "%s/%.*s", l->path, SPAN_ARG(prefix));
	if (r >= 0)
		r = kv_list(l->store->files, buf_span(&full), store_dir_list_one, &ls);
	pthread_rwlock_unlock(&l->place);
	return r;
}

static int store_dir_leaf_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct leaf *l = store_dir_leaf_of(kv);
	int r;

	pthread_rwlock_rdlock(&l->place);
	r = buf_addf(ret, "value:%s/%.*s", l->path, SPAN_ARG(key));
	pthread_rwlock_unlock(&l->place);
	return r;
}

static void store_dir_leaf_free(struct kv *kv)
{
	struct leaf *l = store_dir_leaf_of(kv);

	item_store_free(l->store);
	arena_release(&l->keys);
	free(l->sum);
	pthread_rwlock_destroy(&l->place);
	pthread_mutex_destroy(&l->lock);
	free(l->path);
	free(l);
}

const struct kv_ops item_store_dir_ops = {
	.name = "draft",
	.locate = store_dir_leaf_locate,
	.list = store_dir_leaf_list,
	.put = store_dir_leaf_put,
	.put_open = store_dir_leaf_put_open,
	.where_text = store_dir_leaf_where_text,
	.free = store_dir_leaf_free,
};

int item_store_dir_leaf(struct item_store *s, struct kv **ret)
{
	struct leaf *l = calloc(1, sizeof(*l));

	if (l) {
		l->base.name = strdup("draft");
		l->path = str_fmt(ITEM_STORE_LEAF_TMP "%u", atomic_fetch_add(&s->next_leaf, 1));
	}
	if (!l || !l->base.name || !l->path) {
		if (l) {
			free(l->base.name);
			free(l->path);
		}
		free(l);
		return fail(-ENOMEM, "cannot write a leaf to '%s'", s->dir->path);
	}
	l->base.ops = &item_store_dir_ops;
	l->base.io = s->dir->io;
	l->store = item_store_ref(s);
	pthread_mutex_init(&l->lock, NULL);
	pthread_rwlock_init(&l->place, NULL);
	*ret = &l->base;
	return 0;
}

static int store_dir_by_key(const void *a, const void *b)
{
	const struct sum *x = a, *y = b;
	int d = span_cmp(x->key, y->key);

	return d ? d : (x->number > y->number) - (x->number < y->number);
}

int item_store_leaf_each_sum(struct kv *kv, item_store_sum_fn *each, void *arg)
{
	struct leaf *l = store_dir_leaf_of(kv);
	int r = 0;

	if (l->n_sums)
		qsort(l->sum, l->n_sums, sizeof(*l->sum), store_dir_by_key);
	for (size_t i = 0; i < l->n_sums && r >= 0; i++)
		if (!l->sum[i].unchecked &&
		    (i + 1 == l->n_sums || !span_eq(l->sum[i].key, l->sum[i + 1].key)))
			r = each(arg, l->sum[i].key, l->sum[i].crc);
	return r;
}

int item_store_leaf_entry(struct kv *kv, struct buf *ret)
{
	const char *path = kv->ops == &item_store_dir_ops ? store_dir_leaf_of(kv)->path : "d";

	return buf_add(ret, path, strcspn(path, "/"));
}

/* Sync every directory above path, except the item's own, which is synced once for all leaves. */
static int sync_up(struct item_store *s, const char *path)
{
	return s->opts.unsynced ? 0 : io_sync_parents(s->dir, path);
}

static int sync_directory(void *dir, const char *path, unsigned char type)
{
	return type == DT_DIR ? io_dirop(dir, IO_SYNC_DIR, path, NULL, 0) : 0;
}

/* Sync the leaf's own directory and those in it, which v3 keys have. */
static int sync_leaf(struct leaf *l)
{
	struct io_dir *dir = l->store->dir;
	int r;

	if (l->store->opts.unsynced)
		return 0;
	r = io_walk(dir, l->path, true, sync_directory, dir);
	return r < 0 ? r : io_dirop(dir, IO_SYNC_DIR, l->path, NULL, 0);
}

static int move_up(void *arg, const char *name, unsigned char type)
{
	struct leaf *l = arg;
	auto_free char *from = str_fmt("%s/%s", l->path, name);

	return from ? io_dirop(l->store->dir, IO_RENAME_NEW, from, name, 0) : -ENOMEM;
}

static int move_down(void *arg, const char *name, unsigned char type)
{
	struct leaf *l = arg;
	auto_free char *to = str_fmt("%s/%s", l->path, name);

	/* Other files of an item have names that zarr does not use in an array's directory. */
	if ((name[0] < '0' || name[0] > '9') && strcmp(name, ".zarray") &&
	    strcmp(name, "zarr.json") && strcmp(name, "c"))
		return 0;
	return to ? io_dirop(l->store->dir, IO_RENAME_NEW, name, to, 0) : -ENOMEM;
}

int item_store_leaf_unplace(struct kv *kv)
{
	struct leaf *l = kv->ops == &item_store_dir_ops ? store_dir_leaf_of(kv) : NULL;
	int r;

	if (!l || !l->bare)
		return 0;
	r = io_make_parents(l->store->dir, l->path, l->store->opts.dir_mode);
	if (r < 0)
		return r;
	r = io_mkdir(l->store->dir, l->path, l->store->opts.dir_mode);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&l->place);
	r = io_list(l->store->dir, ".", move_down, l);
	l->bare = r < 0;
	pthread_rwlock_unlock(&l->place);
	return r;
}

/* Rename the leaf's directory to *name, which it takes on success. */
static int rename_leaf(struct leaf *l, char **name)
{
	int r;

	pthread_rwlock_wrlock(&l->place);
	r = io_dirop(l->store->dir, IO_RENAME_NEW, l->path, *name, 0);
	if (r >= 0) {
		free(l->path);
		l->path = take(*name);
	}
	pthread_rwlock_unlock(&l->place);
	return r;
}

bool item_store_is_temporary(const char *entry)
{
	return !strncmp(entry, ITEM_STORE_LEAF_TMP, strlen(ITEM_STORE_LEAF_TMP));
}

int item_store_leaf_displace(struct kv *kv, struct span param)
{
	struct leaf *l = store_dir_leaf_of(kv);
	auto_free char *temp = NULL;

	if (item_store_is_temporary(l->path) || span_eq(span_str(l->path), param))
		return 0;
	temp = str_fmt(ITEM_STORE_LEAF_TMP "%u", atomic_fetch_add(&l->store->next_leaf, 1));
	if (!temp)
		return fail(-ENOMEM, "cannot name leaf '%.*s'", SPAN_ARG(param));
	return rename_leaf(l, &temp);
}

int item_store_leaf_copy(struct kv *kv, struct span key, struct io_dir *to, const char *path)
{
	struct leaf *l = store_dir_leaf_of(kv);
	auto_of(io_file) struct io_file *in = NULL, *out = NULL;
	auto_free char *from = str_fmt("%s/%.*s", l->path, SPAN_ARG(key));
	int r;

	if (!from)
		return fail(-ENOMEM, "cannot copy '%s'", path);
	r = io_file_open(l->store->dir, from, O_RDONLY, 0, &in);
	if (r < 0)
		return r;
	r = io_file_open(to, path, O_RDWR | O_CREAT | O_TRUNC, IO_FILE_MODE, &out);
	if (r < 0)
		return r;
	r = io_copy_range(in, out, 0, in->size);
	return r < 0 ? r : io_file_sync(out);
}

int item_store_leaf_check(struct span param)
{
	int r = param.n ? io_path_check(param, "leaf") : 0;

	/* Readers use two files to determine the store and the leaves of an item. */
	if (r < 0 || span_eq(param, span_str("_METADATA")) ||
	    span_eq(param, span_str("manifest.ocdbt")))
		return fail(
			-EINVAL,
			"'%.*s' cannot be the name of a directory, and with ocdbt=off each leaf "
			"is one; use ocdbt=on",
			SPAN_ARG(param));
	for (struct span rest = param; rest.n;) {
		const uint8_t *slash = memchr(rest.p, '/', rest.n);
		size_t n = slash ? (size_t)(slash - rest.p) : rest.n;

		if (n > LIMIT_NAME_BYTES)
			return fail(-ENAMETOOLONG,
				    "'%.*s' is the name of a directory with ocdbt=off, and has %zu "
				    "bytes, and "
				    "the limit is %d; use ocdbt=on",
				    SPAN_ARG(param), n, LIMIT_NAME_BYTES);
		rest = span_from(rest, MIN(n + 1, rest.n));
	}
	return 0;
}

int item_store_leaf_place(struct kv *kv, struct span param)
{
	struct leaf *l = store_dir_leaf_of(kv);
	struct io_dir *dir = l->store->dir;
	auto_free char *name = span_dup_str(param);
	int r;

	if (!name)
		return fail(-ENOMEM, "cannot name leaf '%.*s'", SPAN_ARG(param));
	r = item_store_leaf_check(param);
	if (r < 0)
		return r;
	r = sync_leaf(l);
	if (r < 0)
		return r;
	/* If the tree is one bare leaf, its files are in the item's own directory. */
	if (!param.n) {
		pthread_rwlock_wrlock(&l->place);
		/* If the move fails midway, the files are looked up in both places. */
		l->bare = true;
		r = io_list(dir, l->path, move_up, l);
		pthread_rwlock_unlock(&l->place);
		return r < 0 ? r : io_dirop(dir, IO_RMDIR, l->path, NULL, 0);
	}
	/* A failed commit gave it this name, but may not have made it durable. */
	if (!strcmp(name, l->path))
		return sync_up(l->store, name);
	r = io_make_parents(dir, name, l->store->opts.dir_mode);
	if (r < 0)
		return r;
	r = rename_leaf(l, &name);
	/* The directory has its name now, even if the sync fails. */
	return r < 0 ? r : sync_up(l->store, l->path);
}
