/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - data files being written: values in, references out.
 *
 * A thread that adds a value takes a file from the list of idle ones, or creates one, and has it to
 * itself until the value is complete. So no lock is held across I/O, and a value of unknown length
 * is still contiguous.
 *
 * datafile.c handles a single file.
 *
 * Invariants: a file is either idle (in the list), busy (used by one thread) or closed; what a
 * failed sync may have lost is written again before it is trusted (R15); an existing file is never
 * opened (R14).
 */
#include <assert.h>
#include <fcntl.h>
#include <sys/random.h>

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/kv/kv_sum.h"
#include "core/ocdbt/datafile.h"
#include "core/ocdbt/ocdbt.h"

struct ocdbt_data {
	struct io_dir *dir; /* borrowed */
	struct ocdbt_data_opts opts;
	char *prefix; /* owned */

	pthread_mutex_t lock; /* protects the members below; never held across I/O */
	struct datafile *all, *idle;
	unsigned n_busy;
	bool has_new_names; /* files were created since the directories were synced */
	bool names_lost;    /* syncing the directories failed */
	struct ocdbt_data_stats stats;
};

/* ---- the writer ---- */

static int random_name(void *arg, uint8_t ret[16])
{
	if (getrandom(ret, 16, 0) != 16)
		return err_sys("cannot get random bytes for", "a data file's name");
	return 0;
}

int ocdbt_data_new(struct io_dir *dir, const struct ocdbt_data_opts *opts, struct ocdbt_data **ret)
{
	struct ocdbt_data *d = calloc(1, sizeof(*d));

	if (d)
		d->prefix = strdup(opts && opts->prefix ? opts->prefix : "d/");
	if (!d || !d->prefix) {
		free(d);
		return fail(-ENOMEM, "cannot allocate a writer for '%s'", dir->path);
	}
	if (opts)
		d->opts = *opts;
	d->opts.dir_mode = io_dir_mode(d->opts.dir_mode);
	if (!d->opts.name)
		d->opts.name = random_name;
	d->dir = dir;
	pthread_mutex_init(&d->lock, NULL);
	*ret = d;
	return 0;
}

static void forget_files(struct ocdbt_data *d)
{
	while (d->all) {
		struct datafile *next = d->all->next;

		datafile_free(d->all);
		d->all = next;
	}
	d->idle = NULL;
}

void ocdbt_data_free(struct ocdbt_data *d)
{
	if (!d)
		return;
	assert(d->n_busy == 0);
	forget_files(d);
	pthread_mutex_destroy(&d->lock);
	free(d->prefix);
	free(d);
}

/* ---- passing files between threads ---- */

static void give_back(struct ocdbt_data *d, struct datafile *f)
{
	pthread_mutex_lock(&d->lock);
	/* The file used last comes first, so that as few files as possible are in use. */
	if (f && f->file) {
		f->idle_next = d->idle;
		d->idle = f;
	}
	d->n_busy--;
	pthread_mutex_unlock(&d->lock);
}

static int take_new(struct ocdbt_data *d, struct datafile **ret)
{
	uint8_t id[16];
	int r = d->opts.name(d->opts.name_arg, id);

	if (r < 0)
		return r;
	r = datafile_new(d->dir, d->prefix, id, d->opts.dir_mode, &d->opts.watcher, ret);
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	(*ret)->next = d->all;
	d->all = *ret;
	d->has_new_names = true;
	d->stats.files++;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int sync_file(struct datafile *f)
{
	int r = f->is_lost ? datafile_mend(f) : 0;

	return r < 0 ? r : datafile_sync(f);
}

/* Take a file with room, for this thread alone until give_back(). */
static int take_file(struct ocdbt_data *d, struct datafile **ret)
{
	struct datafile *f;
	int r = 0;

	pthread_mutex_lock(&d->lock);
	f = d->idle;
	if (f)
		d->idle = f->idle_next;
	d->n_busy++;
	pthread_mutex_unlock(&d->lock);
	if (f && f->is_lost)
		r = datafile_mend(f);
	if (f && r >= 0 && d->opts.target_size && datafile_end(f) >= d->opts.target_size) {
		r = sync_file(f);
		if (r >= 0)
			datafile_close(take(f));
	}
	if (r >= 0 && !f)
		r = take_new(d, &f);
	if (r < 0) {
		give_back(d, f);
		return r;
	}
	*ret = f;
	return 0;
}

/* Add the checksum of the bytes from start to the end, after them. */
static int add_sum(struct ocdbt_data *d, struct datafile *f, uint64_t start, uint32_t crc)
{
	uint8_t sum[KV_SUM_BYTES];

	if (!d->opts.sums || datafile_end(f) == start)
		return 0;
	kv_sum_pack(crc, sum);
	return datafile_add(f, span_of(sum, sizeof(sum)), NULL);
}

/* Set the reference of the value of len bytes at start, which is complete now. */
static void accept(struct ocdbt_data *d, struct datafile *f, uint64_t start, uint64_t len,
		   struct ocdbt_ref *ret)
{
	*ret = (struct ocdbt_ref){ 0 };
	if (len)
		*ret = (struct ocdbt_ref){ .rel = span_str(f->name), .off = start, .len = len };
	give_back(d, f);
	pthread_mutex_lock(&d->lock);
	d->stats.values++;
	d->stats.bytes += len;
	pthread_mutex_unlock(&d->lock);
}

/* ---- values that programs may map ---- */

/*
 * The padding before n raw bytes. That to a multiple of 8 is less than 1 % of any value that is not
 * inline, and so never brings the file above 1 %.
 */
static size_t padding_of(const struct datafile *f, uint64_t n)
{
	static const uint64_t boundary[] = { 4096, 64 };
	uint64_t end = datafile_end(f);

	for (size_t i = n < OCDBT_PAGE_FROM; i < ARRAY_LEN(boundary); i++) {
		uint64_t padding = -end & (boundary[i] - 1);

		if ((f->padding + padding) * 100 <= end + padding + n)
			return (size_t)padding;
	}
	return (size_t)(-end & 7);
}

static int pad(struct datafile *f, uint64_t n)
{
	static const uint8_t zeros[4096];
	size_t padding = padding_of(f, n);
	int r = padding ? datafile_add(f, span_of(zeros, padding), NULL) : 0;

	if (r < 0)
		return r;
	f->padding += padding;
	return r;
}

/* Drop a value that begins at `start`, and its padding, which begins at `end`. */
static void drop_value(struct datafile *f, uint64_t end, uint64_t start)
{
	f->padding -= start - end;
	datafile_rewind(f, end);
}

static int data_put(struct ocdbt_data *d, struct span value, bool is_raw, struct ocdbt_ref *ret)
{
	struct datafile *f;
	uint32_t crc = 0;
	uint64_t before, start;
	int r;

	if (value.n == 0) {
		*ret = (struct ocdbt_ref){ 0 };
		return 0;
	}
	r = take_file(d, &f);
	if (r < 0)
		return r;
	before = datafile_end(f);
	r = is_raw ? pad(f, value.n) : 0;
	start = datafile_end(f);
	r = r < 0 ? r : datafile_add(f, value, d->opts.sums ? &crc : NULL);
	r = r < 0 ? r : add_sum(d, f, start, crc);
	if (r < 0) {
		if (datafile_end(f) > before)
			drop_value(f, before, start);
		give_back(d, f);
		return r;
	}
	accept(d, f, start, value.n, ret);
	return 0;
}

int ocdbt_data_put(struct ocdbt_data *d, struct span value, struct ocdbt_ref *ret)
{
	return data_put(d, value, false, ret);
}

int ocdbt_data_put_raw(struct ocdbt_data *d, struct span value, struct ocdbt_ref *ret)
{
	return data_put(d, value, true, ret);
}

/* ---- streams ---- */

struct ocdbt_stream {
	struct ocdbt_data *data; /* borrowed */
	struct datafile *file;   /* busy with this stream */
	uint64_t before, start;  /* of its padding; of the value */
	uint32_t crc;            /* of the bytes added, when the writer adds checksums */
};

int ocdbt_stream_open(struct ocdbt_data *d, uint64_t raw_bytes, struct ocdbt_stream **ret)
{
	struct ocdbt_stream *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return fail(-ENOMEM, "cannot allocate a stream");
	r = take_file(d, &s->file);
	if (r < 0) {
		free(s);
		return r;
	}
	s->data = d;
	s->before = datafile_end(s->file);
	r = raw_bytes ? pad(s->file, raw_bytes) : 0;
	if (r < 0) {
		give_back(d, s->file);
		free(s);
		return r;
	}
	s->start = datafile_end(s->file);
	*ret = s;
	return 0;
}

int ocdbt_stream_add(struct ocdbt_stream *s, struct span piece)
{
	return piece.n ? datafile_add(s->file, piece, s->data->opts.sums ? &s->crc : NULL) : 0;
}

int ocdbt_stream_close(struct ocdbt_stream *s, bool unchecked, struct ocdbt_ref *ret)
{
	uint64_t end = datafile_end(s->file);
	int r = unchecked ? 0 : add_sum(s->data, s->file, s->start, s->crc);

	/*
	 * When a part of it is written, write the rest, so that it can be read back in one piece.
	 */
	if (r >= 0 && s->start < s->file->start)
		r = datafile_flush(s->file);
	if (r < 0) {
		datafile_rewind(s->file, end);
		return r;
	}
	accept(s->data, s->file, s->start, end - s->start, ret);
	free(s);
	return 0;
}

void ocdbt_stream_abort(struct ocdbt_stream *s)
{
	if (!s)
		return;
	drop_value(s->file, s->before, s->start);
	give_back(s->data, s->file);
	free(s);
}

/* ---- sync and discard ---- */

/* Take all idle files, for this thread alone; -EBUSY when a file is busy. */
static int take_all(struct ocdbt_data *d, struct datafile **ret)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->n_busy) {
		r = fail(-EBUSY, "%u %s of '%s' %s still being written", d->n_busy,
			 noun(d->n_busy, "value", "values"), d->dir->path,
			 noun(d->n_busy, "is", "are"));
	} else {
		*ret = d->idle;
		d->idle = NULL;
		d->n_busy = 1;
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}

static void give_all(struct ocdbt_data *d, struct datafile *list)
{
	struct datafile **end = &list;

	while (*end)
		end = &(*end)->idle_next;
	pthread_mutex_lock(&d->lock);
	*end = d->idle;
	d->idle = list;
	d->n_busy--;
	pthread_mutex_unlock(&d->lock);
}

/* Sync the directories that contain the files' names. */
static int sync_dirs(struct ocdbt_data *d, bool again)
{
	const char *slash;
	int r = again ? io_rewrite_names_in(d->dir, ".") : 0;

	for (slash = strchr(d->prefix, '/'); slash && r >= 0; slash = strchr(slash + 1, '/')) {
		auto_free char *dir = span_dup_str(span_of(d->prefix, (size_t)(slash - d->prefix)));

		if (!dir)
			return fail(-ENOMEM, "cannot sync '%s'", d->prefix);
		r = again ? io_rewrite_names_in(d->dir, dir) : 0;
		if (r < 0)
			return r;
		r = io_dirop(d->dir, IO_SYNC_DIR, dir, NULL, 0);
	}
	return r < 0 ? r : io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);
}

static int sync_names(struct ocdbt_data *d)
{
	bool has_new_names, lost;
	int r;

	pthread_mutex_lock(&d->lock);
	has_new_names = d->has_new_names;
	lost = d->names_lost;
	d->has_new_names = false;
	pthread_mutex_unlock(&d->lock);
	if (!has_new_names)
		return 0;
	r = sync_dirs(d, lost);
	pthread_mutex_lock(&d->lock);
	d->names_lost = r < 0;
	d->has_new_names |= r < 0;
	pthread_mutex_unlock(&d->lock);
	return r;
}

int ocdbt_data_sync(struct ocdbt_data *d)
{
	struct datafile *files = NULL;
	int r = take_all(d, &files);

	if (r < 0)
		return r;
	for (struct datafile *f = files; f && r >= 0; f = f->idle_next)
		r = sync_file(f);
	if (r >= 0)
		r = sync_names(d);
	give_all(d, files);
	return r;
}

int ocdbt_data_discard(struct ocdbt_data *d)
{
	struct datafile *files = NULL;
	int r = take_all(d, &files), first = 0;

	if (r < 0)
		return r;
	for (struct datafile *f = d->all; f; f = f->next) {
		r = io_dirop(d->dir, IO_UNLINK, f->name, NULL, 0);
		if (r < 0 && r != -ENOENT && first == 0)
			first = r;
	}
	if (first == 0) {
		forget_files(d);
		files = NULL;
		d->stats = (struct ocdbt_data_stats){ 0 };
		d->has_new_names = false;
		d->names_lost = false;
	}
	give_all(d, files);
	return first;
}

int ocdbt_data_each(struct ocdbt_data *d, ocdbt_data_fn *each, void *arg)
{
	struct datafile *f;
	int r = 0;

	pthread_mutex_lock(&d->lock);
	f = d->all;
	pthread_mutex_unlock(&d->lock);
	/* Files are only ever added at the front. */
	for (; f && r == 0; f = f->next)
		r = each(arg, f->name);
	return r;
}

void ocdbt_data_stats(struct ocdbt_data *d, struct ocdbt_data_stats *ret)
{
	pthread_mutex_lock(&d->lock);
	*ret = d->stats;
	pthread_mutex_unlock(&d->lock);
}

static struct datafile *find_file(struct ocdbt_data *d, const struct ocdbt_ref *ref)
{
	struct datafile *f;

	pthread_mutex_lock(&d->lock);
	f = d->all;
	pthread_mutex_unlock(&d->lock);
	/* Files are only ever added at the front, so the rest of the list does not change. */
	while (f && !(ref->base.n == 0 && span_eq(ref->rel, span_str(f->name))))
		f = f->next;
	return f;
}

int ocdbt_data_locate(struct ocdbt_data *d, const struct ocdbt_ref *ref, struct kv_loc *ret)
{
	struct datafile *f = ref->len ? find_file(d, ref) : NULL;
	auto_kv_loc loc = { .where = KV_INLINE, .len = ref->len };
	bool gathered = true;
	int r = 0;

	if (ref->len && !f)
		return fail(-EINVAL, "'%.*s' is not a data file of this writer",
			    SPAN_ARG(ref->rel));
	if (f)
		r = datafile_peek(f, ref->off, ref->len, &loc.bytes, &gathered);
	if (r < 0)
		return r;
	if (!gathered) {
		loc.where = KV_FILE;
		loc.off = ref->off;
		/* Open it anew: the writer's io_file has the size from when it was created. */
		r = io_file_open(d->dir, f->name, O_RDONLY, 0, &loc.file);
	}
	if (r < 0)
		return r;
	if (!gathered && ref->off + ref->len > loc.file->size)
		return fail(-EINVAL, "'%s' has no %llu bytes at offset %llu", f->name,
			    (unsigned long long)ref->len, (unsigned long long)ref->off);
	*ret = loc;
	loc = (struct kv_loc){ 0 };
	return 0;
}

size_t ocdbt_data_path_len(const struct ocdbt_data *d)
{
	return strlen(d->prefix) + 32;
}
