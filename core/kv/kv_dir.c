/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_dir.c - one file per key below a directory: arrays of the directory-per-leaf layout.
 *
 * TensorStore's lock files (`*.__lock`) are not keys. A key that is not a safe
 * path (absolute, "..", NUL, too long) cannot exist, so it is absent.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io_pins.h"
#include "core/io/io_store.h"
#include "core/kv/kv_table.h"

struct kv_dir {
	struct kv base;
	struct io_dir *dir;
	bool use_table;
	pthread_mutex_t lock; /* protects pins, has_table and, until that is set, table */
	struct io_pins pins;
	bool has_table;
	struct kv_table table;
};

/*
 * Set the value's checksum. A table that could not be read is tried again, since someone may repair
 * it.
 */
static int find_sum(struct kv_dir *d, struct span key, struct kv_loc *ret)
{
	int r = 0;

	if (!d->use_table)
		return 0;
	pthread_mutex_lock(&d->lock);
	if (!d->has_table)
		r = kv_table_load(d->dir, &d->table);
	d->has_table = d->has_table || r >= 0;
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		return r;
	ret->has_sum = kv_table_find(&d->table, key, &ret->sum);
	return 0;
}

/* Open the file of a key: 1; 0: it is absent. */
static int open_value(struct kv_dir *d, const char *path, struct io_file **ret)
{
	int r = io_file_open_range(d->dir, path, 0, IO_FIRST_BYTES, ret);
	/*
	 * A key that names a directory, or has a missing parent, is absent, as in TensorStore's
	 * file store.
	 */
	bool is_absent = r == -ENOENT || r == -ENOTDIR || r == -EISDIR || r == -ENAMETOOLONG;

	if ((r < 0 && !is_absent) || !io_dir_in_store(d->dir))
		return is_absent ? 0 : r < 0 ? r : 1;
	pthread_mutex_lock(&d->lock);
	r = is_absent ? io_pins_absent(&d->pins, d->dir, path) :
			io_pins_check(&d->pins, d->dir, *ret);
	pthread_mutex_unlock(&d->lock);
	if (r < 0 && !is_absent)
		io_file_unref(take(*ret));
	return r < 0 ? r : !is_absent;
}

static int dir_locate_one(struct kv_dir *d, struct span key, struct kv_loc *ret)
{
	auto_free char *path = NULL;
	int r;

	if (io_path_check(key, d->base.name) < 0 || span_ends(key, span_str(".__lock")))
		return 0;
	path = span_dup_str(key);
	if (!path)
		return fail(-ENOMEM, "cannot open '%.*s'", SPAN_ARG(key));
	r = open_value(d, path, &ret->file);
	if (r <= 0)
		return r;
	ret->where = KV_FILE;
	ret->len = ret->file->size;
	return find_sum(d, key, ret);
}

static int dir_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_dir *d = container_of(kv, struct kv_dir, base);

	for (size_t i = 0; i < n; i++) {
		int r = dir_locate_one(d, key[i], &ret[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * One listing. The prefix selects the directory where it starts, and the names in that directory.
 */
struct walk {
	struct kv_dir *d;
	struct span prefix;
	kv_each_fn *each;
	void *arg;
	struct buf path; /* path of the directory being listed, with a slash; "" at the top */
	unsigned depth;
	int r;
};

static int walk_dir(struct walk *w);

static int walk_entry(void *arg, const char *name, unsigned char type)
{
	struct walk *w = arg;
	size_t was = w->path.n;
	struct span key;
	struct stat st;

	if (span_ends(span_str(name), span_str(".__lock")) ||
	    (w->depth == 1 && !strcmp(name, KV_TABLE_DIR)))
		return 0;
	w->r = buf_add_str(&w->path, name);
	if (w->r >= 0 && !buf_str(&w->path))
		w->r = -ENOMEM;
	key = buf_span(&w->path);
	/*
	 * The key begins with the prefix, or, for a directory on the way there, the prefix with the
	 * key.
	 */
	if (w->r >= 0 && !span_starts(key, w->prefix) &&
	    !(type == DT_DIR && span_starts(w->prefix, key))) {
		w->path.n = was;
		return 0;
	}
	/* Links are followed (beneath the source); the type of the target counts. */
	if (w->r >= 0)
		w->r = io_stat(w->d->dir, (const char *)w->path.p, &st);
	/* An entry that was removed meanwhile, or leads out of the source, is not a key. */
	if (w->r == -ENOENT || w->r == -EUCLEAN) {
		w->path.n = was;
		w->r = 0;
		return 0;
	}
	if (w->r >= 0 && S_ISDIR(st.st_mode)) {
		/* TensorStore does not descend into a link to a directory. */
		w->r = type == DT_LNK ? 0 : buf_add_byte(&w->path, '/');
		if (w->r >= 0 && type != DT_LNK)
			w->r = walk_dir(w);
	} else if (w->r >= 0 && S_ISREG(st.st_mode) && span_starts(key, w->prefix)) {
		w->r = w->each(w->arg, key, (uint64_t)st.st_size);
	}
	w->path.n = was;
	/* The directory was removed meanwhile. */
	if (w->r == -ENOENT)
		w->r = 0;
	return w->r;
}

static int walk_dir(struct walk *w)
{
	auto_free char *path =
		span_dup_str(w->path.n ? span_of(w->path.p, w->path.n - 1) : span_str("."));
	int r;

	if (!path)
		return fail(-ENOMEM, "cannot list '%s'", w->d->base.name);
	if (++w->depth > LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "'%s' is deeper than %d directories", path, LIMIT_TREE_DEPTH);
	r = io_list(w->d->dir, path, walk_entry, w);
	w->depth--;
	return r;
}

static int dir_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct walk w = { .d = container_of(kv, struct kv_dir, base),
			  .prefix = prefix,
			  .each = each,
			  .arg = arg };
	const uint8_t *slash = prefix.n ? memrchr(prefix.p, '/', prefix.n) : NULL;
	int r = 0;

	if (slash) {
		struct span parent = span_of(prefix.p, (size_t)(slash - prefix.p));

		if (io_path_check(parent, kv->name) < 0)
			return 0;
		r = buf_add(&w.path, prefix.p, parent.n + 1);
	}
	if (r >= 0)
		r = walk_dir(&w);
	buf_release(&w.path);
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int dir_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	auto_kv_loc loc = { 0 };
	int r = kv_locate(kv, &key, &loc, 1);

	if (r < 0)
		return r;
	if (loc.where == KV_ABSENT)
		return buf_add_str(ret, "absent");
	return buf_addf(ret, "value:%s:0:%llu", loc.file->name, (unsigned long long)loc.len);
}

static void dir_free(struct kv *kv)
{
	struct kv_dir *d = container_of(kv, struct kv_dir, base);

	io_dir_close(d->dir);
	kv_table_release(&d->table);
	io_pins_release(&d->pins);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static const struct kv_ops dir_ops = {
	.name = "dir",
	.locate = dir_locate,
	.list = dir_list,
	.where_text = dir_where_text,
	.free = dir_free,
};

int kv_dir_open(struct io_dir *dir, struct kv **ret)
{
	struct kv_dir *d = calloc(1, sizeof(*d));

	if (d)
		d->base.name = strdup(dir->path);
	if (!d || !d->base.name) {
		free(d);
		return fail(-ENOMEM, "cannot open '%s'", dir->path);
	}
	d->base.ops = &dir_ops;
	d->base.io = dir->io;
	d->base.no_list = !io_dir_can_list(dir);
	d->dir = dir;
	io_pins_begin(&d->pins, dir);
	pthread_mutex_init(&d->lock, NULL);
	*ret = &d->base;
	return 0;
}

int kv_dir_open_in(struct io_dir *dir, const char *rel, struct kv **ret)
{
	struct io_dir *sub;
	int r = io_dir_sub(dir, rel, &sub);

	if (r < 0)
		return r;
	r = kv_dir_open(sub, ret);
	if (r < 0)
		io_dir_close(sub);
	return r;
}

void kv_dir_use_table(struct kv *kv)
{
	container_of(kv, struct kv_dir, base)->use_table = true;
}
