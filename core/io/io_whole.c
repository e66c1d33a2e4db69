/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_whole.c - operations that consist of several requests and changes of names: exact reads, whole
 * small files and the directories on the path to them; and hints, which bypass the engine.
 *
 * Nothing here calls an engine directly; io.c does.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/io/bucket_mount.h"
#include "core/io/io_engine.h"

#define LARGE_PAGE ((size_t)(2 * MiB)) /* the largest page of most processors */

int io_mkdir(struct io_dir *dir, const char *rel, unsigned mode)
{
	int r = io_dirop(dir, IO_MKDIR, rel, NULL, mode);

	if (r != -EEXIST)
		return r;
	err_clear();
	return 0;
}

int io_make_parents(struct io_dir *dir, const char *rel, unsigned mode)
{
	int r = 0;

	for (const char *at = rel; (at = strchr(at, '/')) && r >= 0; at++) {
		auto_free char *parent = span_dup_str(span_of(rel, (size_t)(at - rel)));

		r = parent ? io_mkdir(dir, parent, mode) :
			     fail(-ENOMEM, "cannot make the directories of '%s'", rel);
	}
	return r;
}

int io_sync_parents(struct io_dir *dir, const char *rel)
{
	auto_free char *at = strdup(rel);
	char *slash;
	int r = at ? 0 : fail(-ENOMEM, "cannot sync the directories of '%s'", rel);

	while (r >= 0 && (slash = strrchr(at, '/'))) {
		*slash = '\0';
		r = io_dirop(dir, IO_SYNC_DIR, at, NULL, 0);
	}
	return r;
}

struct io_walking {
	struct io_dir *dir;
	const char *rel;
	bool after;
	unsigned depth;
	io_list_fn *each;
	void *arg;
};

static int io_walk_entry(void *arg, const char *name, unsigned char type)
{
	struct io_walking in = *(const struct io_walking *)arg;
	auto_free char *path = NULL;
	int r = path_join(in.rel, span_str(name), &path);

	if (r < 0)
		return r;
	r = type == DT_DIR && in.after ? 0 : in.each(in.arg, path, type);
	if (r != 0 || type != DT_DIR)
		return MIN(r, 0);
	if (in.depth++ == LIMIT_DIR_DEPTH)
		return fail(-EFBIG, "'%s' is deeper than %d directories", in.rel, LIMIT_DIR_DEPTH);
	in.rel = path;
	r = io_list(in.dir, path, io_walk_entry, &in);
	return r < 0 || !in.after ? r : MIN(in.each(in.arg, path, type), 0);
}

int io_walk(struct io_dir *dir, const char *rel, bool after, io_list_fn *each, void *arg)
{
	struct io_walking top = { dir, rel, after, 0, each, arg };

	return io_list(dir, rel, io_walk_entry, &top);
}

int io_why_bad(int r, struct io_file *file)
{
	uint8_t start[LFS_START_BYTES];
	struct err_note note;
	int better = 0;

	if ((r != -EUCLEAN && r != -EBADMSG) || !file || file->size < LFS_START_BYTES ||
	    file->size >= LFS_POINTER_MAX)
		return r;
	err_save(r, &note);
	if (io_read_exact(file, start, LFS_START_BYTES, 0) >= 0)
		better = lfs_check(file->name, span_of(start, LFS_START_BYTES));
	return better < 0 ? better : err_restore(&note);
}

int io_read_file(struct io_dir *dir, const char *rel, uint64_t limit, struct buf *ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	int r = io_file_open_range(dir, rel, 0, IO_FIRST_BYTES, &f);

	/* The path should name a file, but is a directory. */
	if (r == -EISDIR)
		return fail(-EUCLEAN, "'%s' is not a regular file", rel);
	if (r < 0)
		return r;
	if (f->size > limit)
		return fail(-EFBIG, "'%s' has %llu bytes, the limit is %llu", rel,
			    (unsigned long long)f->size, (unsigned long long)limit);
	/*
	 * The document is about to be parsed, so it is metered; a sparse file counts with its full
	 * size.
	 */
	ret->metered |= ret->cap == 0;
	r = buf_reserve(ret, f->size);
	if (r < 0)
		return err_at(r, "'%s', which has %llu bytes", rel, (unsigned long long)f->size);
	if (f->size)
		r = io_read_exact(f, buf_end(ret), f->size, 0);
	if (r < 0)
		return r;
	ret->n += f->size;
	return lfs_check(rel, span_of(buf_end(ret) - f->size, f->size));
}

static int check_exact(struct io_req *req, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		if ((size_t)req[i].result != req[i].n)
			r = io_cut_short(&req[i]);
	return r;
}

int io_run_exact(struct io_engine *io, struct io_req *req, size_t n)
{
	int r = io_run(io, req, n);

	return r < 0 ? r : check_exact(req, n);
}

int io_wait_exact(struct io_engine *io, struct io_req *req, size_t n)
{
	int r = io_wait(io, req, n);

	return r < 0 ? r : check_exact(req, n);
}

int io_read_exact(struct io_file *file, void *p, size_t n, uint64_t off)
{
	struct io_req req = { .op = IO_READ, .file = file, .p = p, .n = n, .off = off };

	return io_run_exact(file->io, &req, 1);
}

int io_write_exact(struct io_file *file, const void *p, size_t n, uint64_t off)
{
	/* The engine does not write to the buffer. */
	struct io_req req = {
		.op = IO_WRITE, .file = file, .p = (void *)(uintptr_t)p, .n = n, .off = off
	};

	return n ? io_run(file->io, &req, 1) : 0;
}

bool io_file_data(const struct io_file *file, uint64_t off, uint64_t *ret_from, uint64_t *ret_to)
{
	off_t from, to;

	if (off >= file->size)
		return false;
	/* An object has no holes. */
	if (file->fd < 0) {
		*ret_from = off;
		*ret_to = file->size;
		return true;
	}
	from = lseek(file->fd, (off_t)off, SEEK_DATA);
	if (from < 0 && errno == ENXIO)
		return false;
	/* On a file system that cannot find holes, the whole file counts as data. */
	to = from < 0 ? -1 : lseek(file->fd, from, SEEK_HOLE);
	*ret_from = MIN(from < 0 ? off : (uint64_t)from, file->size);
	*ret_to = to < 0 ? file->size : MIN((uint64_t)to, file->size);
	return *ret_from < *ret_to;
}

int io_file_check_size(struct io_file *file)
{
	struct stat st;

	/* Each read of an object checks that the object is the one that was opened. */
	if (file->fd < 0)
		return 0;
	if (fstat(file->fd, &st) < 0)
		return err_sys("cannot look at", file->name);
	if ((uint64_t)st.st_size >= file->size)
		return 0;
	io_file_doubt(file);
	return fail(-EUCLEAN, "'%s' ends at byte %llu, and had %llu bytes when it was opened",
		    file->name, (unsigned long long)st.st_size, (unsigned long long)file->size);
}

int io_write_file(struct io_dir *dir, const char *rel, struct span content)
{
	auto_of(io_file) struct io_file *f = NULL;
	int r = io_file_open(dir, rel, O_RDWR | O_CREAT | O_TRUNC, IO_FILE_MODE, &f);

	if (r < 0)
		return r;
	r = io_write_exact(f, content.p, content.n, 0);
	return r < 0 ? r : io_file_finish(f);
}

int io_copy_range(struct io_file *from, struct io_file *to, uint64_t off, uint64_t n)
{
	auto_free uint8_t *piece = malloc(MIN(n, MiB) + 1);

	if (!piece)
		return fail(-ENOMEM, "cannot copy '%s'", from->name);
	for (uint64_t at = off; at < off + n; at += MiB) {
		size_t part = (size_t)MIN(MiB, off + n - at);
		int r = io_read_exact(from, piece, part, at);

		if (r < 0)
			return r;
		r = io_write_exact(to, piece, part, at);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- hints ---- */

void io_file_fill_cache(struct io_file *file, uint64_t off, uint64_t n)
{
	uint64_t from = off - off % LARGE_PAGE, to = MIN(off + n, file->size);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *map;

	if (file->fd < 0 || from >= to)
		return;
	/* It has no large pages. */
	if (file->bucket) {
		posix_fadvise(file->fd, (off_t)off, (off_t)n, POSIX_FADV_WILLNEED);
		return;
	}
	map = mmap(NULL, to - from, PROT_READ, MAP_SHARED, file->fd, (off_t)from);
	if (map == MAP_FAILED)
		return;
	madvise(map, to - from, MADV_HUGEPAGE);
	/*
	 * A page that is not there comes with all of its large page. mincore(2) would not do: of a
	 * file of another user it says that everything is there.
	 */
	for (size_t at = 0, part; at < to - from; at += part) {
		part = MIN(LARGE_PAGE, (size_t)(to - from) - at);
		madvise(map + at + part / 2 / page * page, page, MADV_POPULATE_READ);
	}
	munmap(map, to - from);
}

void io_file_write_behind(struct io_file *file, uint64_t off, uint64_t n)
{
	/* This bypasses the engine, since it does not change what is durable, nor when. */
	if (n && file->fd >= 0 && !file->io->is_scratch)
		sync_file_range(file->fd, (off_t)off, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

int io_file_flush_range(struct io_file *file, uint64_t off, uint64_t n)
{
	const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			      SYNC_FILE_RANGE_WAIT_AFTER;

	if (file->io->keeps_written || !n)
		return 0;
	if (sync_file_range(file->fd, (off_t)off, (off_t)n, wait) < 0)
		/*
		 * Any other error means that the file system does not support it; its pages stay.
		 */
		return errno == EIO || errno == ENOSPC || errno == EDQUOT ? -errno : 0;
	io_file_drop_cache(file, off, n);
	return 0;
}

void io_file_drop_cache(struct io_file *file, uint64_t off, uint64_t n)
{
	if (!file->io->keeps_written && n && file->fd >= 0)
		posix_fadvise(file->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
}

int io_file_sync(struct io_file *file)
{
	struct io_req req = { .op = IO_SYNC, .file = file };

	return file->io->is_scratch ? 0 : io_run(file->io, &req, 1);
}

int io_file_finish(struct io_file *file)
{
	int r = io_file_sync(file), fd;

	if (r < 0 || !file->bucket)
		return r;
	/* Closing any descriptor of the open file has the file written (FUSE_FLUSH). */
	fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || close(fd) < 0)
		return fail(-errno, "cannot write '%s': %s%s", file->name, strerror(errno),
			    bucket_mount_advice(file->bucket, -errno, false));
	return 0;
}

void io_file_reread(struct io_file *file)
{
	if (file->fd >= 0)
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
}

void io_keep_written(struct io_engine *io)
{
	io->keeps_written = true;
}

void io_never_sync(struct io_engine *io)
{
	io->keeps_written = true;
	io->is_scratch = true;
}

void io_file_punch(struct io_file *file, uint64_t off, uint64_t n)
{
	/* This bypasses the engine, too: nobody reads these bytes. */
	if (n)
		fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			  (off_t)n);
}

/* ---- paths ---- */

int io_path_check(struct span rel, const char *what)
{
	struct span rest = rel;

	if (memchr(rel.p, 0, rel.n) || rel.n > LIMIT_PATH_BYTES)
		return fail(-EUCLEAN, "%s: path of %zu bytes is not usable", what, rel.n);
	do {
		const uint8_t *slash = memchr(rest.p, '/', rest.n);
		struct span part = span_of(rest.p, slash ? (size_t)(slash - rest.p) : rest.n);

		if (part.n == 0 || span_eq(part, span_str(".")) || span_eq(part, span_str("..")))
			return fail(-EUCLEAN, "%s: path '%.*s' is not inside the checkpoint", what,
				    SPAN_ARG(rel));
		rest = span_from(rest, part.n + 1);
		if (!slash)
			return 0;
	} while (true);
}

static int any_entry(void *arg, const char *name, unsigned char type)
{
	return 1;
}

int io_dir_is_empty(struct io_dir *dir, const char *rel)
{
	int r = io_list(dir, rel, any_entry, NULL);

	return r < 0 ? r : r == 0;
}
