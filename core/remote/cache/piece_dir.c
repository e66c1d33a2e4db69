/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_dir.c - opens, writes, touches and removes the files of the cache on disk.
 *
 * A file is DIR/v1/ab/NAME; the 256 directories, by the first byte of the hash, grow evenly.
 * piece_room.c decides which files are evicted; piece.c has their format.
 */
#include "core/remote/cache/piece_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/remote/cache/piece_room.h"

#define TOP "v1"
/* Backup programs skip a directory with this file (bford.info/cachedir). It is in DIR/v1, since DIR
 * may have other files. */
#define TAG_NAME "CACHEDIR.TAG"
#define TAG_TEXT                                                                                  \
	"Signature: 8a477f597d28d172789f06886806bc55\n# Pieces of checkpoints in buckets, which " \
	"pytreefs fetches again when they are not here.\n"
#define USED_NS (60 * SECOND_NS) /* a use is noted if the last note is older */

struct piece_dir {
	struct io_dir *top; /* DIR/v1 */
	char *path;
	struct piece_room *room; /* NULL: there is no limit */
	char own[2 * 8 + 1];     /* random digits, for names that no other process makes */
	atomic_ullong made;
	atomic_bool is_stopped; /* a write failed, and no more pieces are stored */
	atomic_ullong stored, damaged;
};

/* ---- opening ---- */

int piece_dir_make(const char *path)
{
	/* A plain mkdir(): a lost cache is not an error, so the directory is not synced. */
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys("cannot make the directory of cache_dir=", path);
	return 0;
}

/* Open DIR/v1, and give it its tag. */
static int open_top(struct piece_dir *d, struct io_engine *io)
{
	auto_of(io_dir) struct io_dir *dir = NULL;
	auto_of(io_file) struct io_file *tag = NULL;
	uint8_t random[8];
	struct stat st;
	int r = piece_dir_make(d->path);

	if (r < 0)
		return r;
	r = io_dir_open(io, d->path, &dir);
	if (r < 0)
		return r;
	/* Other users who may write there could not damage reads, which are checked, but fill the
	 * disk. */
	r = io_stat(dir, ".", &st);
	if (r < 0)
		return r;
	if (st.st_uid != geteuid())
		return fail(-EPERM,
			    "cache_dir='%s' belongs to user %u, and this process to user %u: each "
			    "user has a directory of his own",
			    d->path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & 022)
		return fail(
			-EPERM,
			"cache_dir='%s' may be written by others (mode %04o): 'chmod go-w' takes "
			"that right away",
			d->path, (unsigned)st.st_mode & 07777);
	r = io_mkdir(dir, TOP, 0700);
	if (r < 0)
		return r;
	r = io_dir_sub(dir, TOP, &d->top);
	if (r < 0)
		return r;
	if (io_file_open(d->top, TAG_NAME, O_RDWR | O_CREAT | O_EXCL, 0600, &tag) >= 0)
		io_write_exact(tag, TAG_TEXT, strlen(TAG_TEXT), 0);
	err_clear();
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_sys("cannot get random bytes for", "cache_dir=");
	hex_text(span_of(random, sizeof(random)), d->own);
	return 0;
}

int piece_dir_open(struct io_engine *io, const char *path, uint64_t limit, struct piece_dir **ret)
{
	auto_of(piece_dir) struct piece_dir *d = calloc(1, sizeof(*d));
	int r;

	if (d)
		d->path = strdup(path);
	r = d && d->path ? open_top(d, io) : fail(-ENOMEM, "cannot open cache_dir='%s'", path);
	if (r < 0)
		return r;
	r = limit ? piece_room_new(d->top, limit, &d->room) : 0;
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

void piece_dir_close(struct piece_dir *d)
{
	if (!d)
		return;
	piece_room_free(d->room);
	io_dir_close(d->top);
	free(d->path);
	free(d);
}

/* ---- reading ---- */

static void piece_dir_count(atomic_ullong *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void piece_dir_damaged(struct piece_dir *d, const struct piece_id *id)
{
	char name[PIECE_NAME_MAX];

	piece_dir_count(&d->damaged);
	piece_name(id, name);
	/* If another process replaced the file meanwhile, a good one is lost, and fetched once
	 * more. */
	io_dirop(d->top, IO_UNLINK, name, NULL, 0);
	err_clear();
}

struct io_file *piece_dir_get(struct piece_dir *d, const struct piece_id *id, size_t n)
{
	struct io_file *f = NULL;
	char name[PIECE_NAME_MAX];
	int r;

	piece_name(id, name);
	r = io_file_open(d->top, name, O_RDONLY, 0, &f);
	if (r < 0) {
		err_clear();
		return NULL;
	}
	if (f->size == n + piece_tail_bytes(n))
		return f;
	piece_dir_damaged(d, id);
	io_file_unref(f);
	return NULL;
}

void piece_dir_used(struct piece_dir *d, struct io_file *file)
{
	/* Set the time of change, since some file systems do not keep times of reads. A hint only,
	 * so the call does not go through the engine. */
	if (d->room && !clock_is_near(clock_ns_of(file->mtime), USED_NS))
		futimens(file->fd, NULL);
}

/* ---- writing ---- */

static int piece_dir_write_piece(struct piece_dir *d, const struct piece_id *id, struct span data,
				 const char *temporary)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL;
	const char dir[3] = { temporary[0], temporary[1] };
	auto_of(io_file) struct io_file *f = NULL;
	uint8_t tail[PIECE_TAIL_MAX];
	struct io_req req[] = {
		{ .op = IO_WRITE, .p = (void *)(uintptr_t)data.p, .n = data.n },
		{ .op = IO_WRITE, .p = tail, .n = piece_tail_bytes(data.n), .off = data.n },
	};
	int r = io_file_open(d->top, temporary, flags, 0600, &f);

	if (r == -ENOENT) {
		r = io_mkdir(d->top, dir, 0700);
		if (r >= 0)
			r = io_file_open(d->top, temporary, flags, 0600, &f);
	}
	if (r < 0)
		return r;
	piece_tail_pack(id, data, tail);
	req[0].file = req[1].file = f;
	return io_run(f->io, req, ARRAY_LEN(req));
}

static int piece_dir_add(struct piece_dir *d, const struct piece_id *id, struct span data)
{
	char name[PIECE_NAME_MAX], temporary[PIECE_ROOM_NAME_MAX];
	struct err_note why;
	int r;

	piece_name(id, name);
	snprintf(temporary, sizeof(temporary), "%.3s" PIECE_ROOM_TEMPORARY "%s-%llx", name, d->own,
		 (unsigned long long)atomic_fetch_add(&d->made, 1));
	r = piece_dir_write_piece(d, id, data, temporary);
	if (r >= 0)
		r = io_dirop(d->top, IO_RENAME, temporary, name, 0);
	if (r >= 0)
		return 0;
	err_save(r, &why);
	io_dirop(d->top, IO_UNLINK, temporary, NULL, 0);
	return err_restore(&why);
}

void piece_dir_put(struct piece_dir *d, const struct piece_id *id, struct span data)
{
	int r;

	if (atomic_load_explicit(&d->is_stopped, memory_order_relaxed) ||
	    (d->room && !piece_room_make(d->room, id->hash[0], data.n)))
		return;
	r = piece_dir_add(d, id, data);
	if (d->room)
		piece_room_written(d->room, id->hash[0], data.n);
	if (r >= 0) {
		piece_dir_count(&d->stored);
		return;
	}
	/* A shortage that passes, or a directory of its name, affects only this piece. */
	if (r != -ENOMEM && r != -EMFILE && r != -ENFILE && r != -EISDIR &&
	    !atomic_exchange(&d->is_stopped, true))
		log_warn("cache_dir='%s' gets nothing more until it is opened again; reads go on: "
			 "%s",
			 d->path, err_text(r));
	err_clear();
}

void piece_dir_stats(struct piece_dir *d, struct piece_dir_stats *ret)
{
	*ret = (struct piece_dir_stats){ .stored = atomic_load(&d->stored),
					 .evicted = d->room ? piece_room_evicted(d->room) : 0,
					 .damaged = atomic_load(&d->damaged) };
}
