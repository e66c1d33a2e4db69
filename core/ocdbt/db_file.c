/* SPDX-License-Identifier: Apache-2.0 */
/*
 * db_file.c - the data files of an opened database; some are kept open.
 *
 * Invariants: no path is opened that R12 forbids; a reference lies inside its file before anything
 * is allocated for it; the lock is not held while a file is opened, closed or read.
 */
#include <fcntl.h>
#include <inttypes.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/kv/kv_sum.h"
#include "core/ocdbt/db.h"

/* R12: refuse names that TensorStore's file driver refuses, or that leave the directory. */
static int check_path(struct span path)
{
	struct span rest = path;
	int r = path.n ? io_path_check(path, "data file") :
			 fail(-EUCLEAN, "data file without a path");

	if (r < 0)
		return r;
	while (rest.n) {
		struct span part = rest;

		/* '\' is not a separator on Linux, but it is one for that driver. */
		for (part.n = 0; part.n < rest.n; part.n++)
			if (rest.p[part.n] == '/' || rest.p[part.n] == '\\')
				break;
		if (part.n == 0 || span_eq(part, span_str(".")) || span_eq(part, span_str("..")) ||
		    span_ends(part, span_str(".__lock")))
			return fail(-EUCLEAN, "data file: '%.*s' is not a usable path",
				    SPAN_ARG(path));
		rest = span_from(rest, part.n + 1);
	}
	return 0;
}

int db_file_path(const struct ocdbt_ref *ref, struct buf *ret)
{
	int r = buf_add_span(ret, ref->base);

	if (r < 0)
		return r;
	r = buf_add_span(ret, ref->rel);
	if (r < 0)
		return r;
	r = check_path(buf_span(ret));
	if (r < 0)
		return r;
	if (!buf_str(ret))
		r = -ENOMEM;
	return r;
}

/*
 * An open file of this path, with a reference for the caller; or NULL. Called with the lock held.
 */
static struct io_file *cached_find(struct ocdbt *db, uint64_t hash, const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(db->file); i++) {
		struct db_file *f = &db->file[i];

		if (!f->file || f->hash != hash || strcmp(f->file->name, path))
			continue;
		/* It may have been repaired: open it anew, and replace this one next. */
		if (io_file_is_doubtful(f->file)) {
			f->used = 0;
			continue;
		}
		f->used = ++db->tick;
		return io_file_ref(f->file);
	}
	return NULL;
}

/*
 * Keep file open, in place of the least recently used one. Returns the reference of the replaced
 * file, or NULL. When the process has many files open, unused slots stay unused.
 */
static struct io_file *cached_add(struct ocdbt *db, uint64_t hash, struct io_file *file)
{
	bool many = io_files_are_many();
	struct db_file *oldest = NULL;
	struct io_file *out;

	for (size_t i = 0; i < ARRAY_LEN(db->file); i++)
		if ((db->file[i].file || !many) && (!oldest || db->file[i].used < oldest->used))
			oldest = &db->file[i];
	if (!oldest)
		return NULL;
	out = oldest->file;
	*oldest = (struct db_file){ hash, ++db->tick, io_file_ref(file) };
	return out;
}

/* A fault of a data file is damage to the database, whatever errno it has. */
static int file_error(int r, const char *path)
{
	switch (r) {
	case -ENOENT:
	case -ENOTDIR:
		return fail(-EUCLEAN, "data file '%s' is absent", path);
	case -EISDIR:
		return fail(-EUCLEAN, "data file '%s' is not a regular file", path);
	case -ENAMETOOLONG:
		return fail(-EUCLEAN, "data file '%s': the name is too long", path);
	default:
		return r;
	}
}

/* The number of bytes that are read of a file, including the checksum that may follow a value. */
static size_t range_of(const struct ocdbt_ref *ref)
{
	return ref->len && ref->len <= SIZE_MAX - KV_SUM_BYTES ? (size_t)ref->len + KV_SUM_BYTES :
								 0;
}

/*
 * Whether an object is still the one that was opened, if a read of it has failed. If it was
 * replaced, the others of the item may have been, too, although none of them has been read yet.
 */
static int check_failed(struct ocdbt *db)
{
	struct io_file *failed = NULL, *now = NULL;
	bool is_stale;
	int r = 0;

	pthread_mutex_lock(&db->lock);
	is_stale = db->pins.is_stale;
	for (size_t i = 0; i < ARRAY_LEN(db->file) && !failed && !is_stale; i++) {
		struct db_file *f = &db->file[i];

		if (f->file && f->file->key && io_file_is_doubtful(f->file))
			failed = take(f->file);
	}
	pthread_mutex_unlock(&db->lock);
	if (is_stale)
		return fail(-ESTALE, "'%s' was replaced since it was opened", db->dir->path);
	if (!failed)
		return 0;
	/* One that was removed has an error of its own; others can be read. */
	if (io_file_open(db->dir, failed->name, O_RDONLY, 0, &now) >= 0) {
		pthread_mutex_lock(&db->lock);
		r = io_pins_check(&db->pins, db->dir, now);
		pthread_mutex_unlock(&db->lock);
	} else {
		err_clear();
	}
	io_file_unref(failed);
	io_file_unref(now);
	return r;
}

/* Open a file to read what ref names. */
static int open_file(struct ocdbt *db, const char *path, const struct ocdbt_ref *ref,
		     struct io_file **ret)
{
	uint64_t hash = hash64(span_str(path), 0);
	struct io_file *file, *out, *other;
	int r;

	pthread_mutex_lock(&db->lock);
	file = cached_find(db, hash, path);
	pthread_mutex_unlock(&db->lock);
	if (file) {
		*ret = file;
		return 0;
	}
	r = check_failed(db);
	if (r < 0)
		return r;
	r = io_file_open_range(db->dir, path, ref->off, range_of(ref), &file);
	if (r < 0)
		return file_error(r, path);
	pthread_mutex_lock(&db->lock);
	r = io_pins_check(&db->pins, db->dir, file);
	/* Another thread may have opened it meanwhile; then use its file. */
	other = r < 0 ? NULL : cached_find(db, hash, path);
	out = other || r < 0 ? file : cached_add(db, hash, file);
	pthread_mutex_unlock(&db->lock);
	io_file_unref(out);
	if (r < 0)
		return r;
	*ret = other ? other : file;
	return 0;
}

int db_check_range(struct io_file *file, const struct ocdbt_ref *ref)
{
	/* The parsers have checked that the sum stays below 2^63. */
	if (ref->off + ref->len <= file->size)
		return 0;
	return io_why_bad(fail(-EUCLEAN,
			       "data file '%s' has %" PRIu64 " bytes, %" PRIu64
			       " at offset %" PRIu64 " are referred to",
			       file->name, file->size, ref->len, ref->off),
			  file);
}

int db_file(struct ocdbt *db, const struct ocdbt_ref *ref, struct io_file **ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	auto_buf path = { 0 };
	int r = db_file_path(ref, &path);

	if (r < 0)
		return r;
	r = open_file(db, (const char *)path.p, ref, &file);
	if (r < 0)
		return r;
	r = db_check_range(file, ref);
	if (r < 0) {
		io_file_doubt(file);
		return r;
	}
	*ret = take(file);
	return 0;
}

void db_file_doubt(struct ocdbt *db, const struct ocdbt_ref *ref)
{
	auto_of(io_file) struct io_file *file = NULL;

	if (db_file(db, ref, &file) >= 0)
		io_file_doubt(file);
}

/* Whether the file is the one that ref names. */
static bool is_named(const struct io_file *file, const struct ocdbt_ref *ref)
{
	size_t n = strlen(file->name);

	return n == ref->base.n + ref->rel.n && span_starts(span_of(file->name, n), ref->base) &&
	       span_ends(span_of(file->name, n), ref->rel);
}

int db_file_again(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_ref *ref,
		  struct io_file **ret)
{
	unsigned slot = 0;
	int r;

	for (size_t i = 0; i < 4 && i < ref->rel.n; i++)
		slot = slot * 31 + ref->rel.p[ref->rel.n - 1 - i];
	slot %= ARRAY_LEN(recent->file);
	if (recent->file[slot] && is_named(recent->file[slot], ref)) {
		r = db_check_range(recent->file[slot], ref);
		if (r < 0)
			return r;
	} else {
		struct io_file *file;

		r = db_file(db, ref, &file);
		if (r < 0)
			return r;
		io_file_unref(recent->file[slot]);
		recent->file[slot] = file;
	}
	*ret = io_file_ref(recent->file[slot]);
	return 0;
}

void db_recent_release(struct db_recent *recent)
{
	for (size_t i = 0; i < ARRAY_LEN(recent->file); i++)
		io_file_unref(recent->file[i]);
	*recent = (struct db_recent){ 0 };
}

void ocdbt_db_close_files(struct ocdbt *db)
{
	struct db_file file[ARRAY_LEN(db->file)];

	pthread_mutex_lock(&db->lock);
	memcpy(file, db->file, sizeof(file));
	memset(db->file, 0, sizeof(db->file));
	pthread_mutex_unlock(&db->lock);
	for (size_t i = 0; i < ARRAY_LEN(file); i++)
		io_file_unref(file[i].file);
}
