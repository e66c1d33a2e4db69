/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h - (file, offset) -> bytes: the only way to the disk.
 *
 * An engine carries out requests. Engines stack ("trace:fault(read:eio:1%):uring"; the right-most
 * one is real), which is how errors and crashes are tested. *Every* change to the disk, including
 * changes of names, goes through an engine.
 *
 * I/O is per thread: a batch belongs to the calling thread from io_submit() until io_wait()
 * returns, and nothing is in flight when an operation returns. There are no callbacks.
 *
 * All paths are relative to a struct io_dir, and the kernel resolves them beneath it (openat2):
 * absolute paths, ".." above it and symbolic links that leave it fail with -EUCLEAN, but for links
 * in the cache of the Hugging Face hub (io_hub.c). Only regular files are opened.
 *
 * Directories and files of a store (io_store.h: a bucket, a web server) have the same types but no
 * descriptor. They can be read but not written (-EROFS).
 */
#ifndef PYTREEFS_IO_H
#define PYTREEFS_IO_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "core/base/buf.h"

struct bucket_mount;
struct io_engine;
struct io_hub;

/*
 * An open file with a reference count (io_file_ref(), io_file_unref()); closed with the last
 * reference.
 */
struct io_file {
	struct io_engine *io;
	int fd;        /* -1: in a store (io_store.h) */
	char *name;    /* path below its io_dir, for messages */
	char *key;     /* in a store: path from its root; NULL: a local file */
	char *tag;     /* in a store: tag of the object that was opened */
	uint64_t size; /* when it was opened; the only writer of a file of ours raises it */
	struct timespec mtime;
	uint64_t dev, ino;
	atomic_uint refs;
	atomic_bool doubtful;              /* set by io_file_doubt() */
	const struct bucket_mount *bucket; /* of its directory */
	/* Called when the last reference is gone; may be NULL. */
	void (*closed)(struct io_file *file);
	void *closed_arg;
};

/* A directory beneath which paths are resolved. Owned by the caller that opened it. */
struct io_dir {
	const struct io_dir_ops *ops; /* io_engine.h; chosen when the directory is opened */
	struct io_engine *io;
	int fd;       /* O_PATH or O_DIRECTORY; -1: in a store */
	char *path;   /* as given, for messages */
	char *prefix; /* in a store: path from its root, "" for the root; NULL: a local directory */
	const struct bucket_mount *bucket; /* the file system, if it is such (bucket_mount.h) */
	struct io_hub *hub;                /* of whose files it has links (io_hub.c); or NULL */
	bool owned;                        /* new files belong to uid and gid: io_dir_own() */
	uid_t uid;
	gid_t gid;
};

#define IO_FILE_MODE 0666 /* mode of every file of a checkpoint, before the umask */
#define IO_DIR_MODE 0777  /* the same of directories, unless a mode was requested */

/* The mode of new directories, before the umask: the one that was requested; 0: none was. */
static inline unsigned io_dir_mode(uint64_t requested)
{
	return requested ? (unsigned)requested : IO_DIR_MODE;
}

enum io_op { IO_READ, IO_WRITE, IO_SYNC };

struct io_req {
	enum io_op op;
	struct io_file *file; /* borrowed; must outlive the wait */
	void *p;              /* read into, or written from */
	size_t n;
	uint64_t off;
	int64_t result; /* bytes (fewer than n only at the end of file), or -errno */

	/* Private to the engines. */
	bool at_once;    /* its batch is waited for as soon as it is submitted: io_run() */
	bool is_refused; /* the engine did not begin it, and has nothing to wait for */
	size_t done;     /* bytes of earlier short transfers */
	struct io_req *next;
	void *under_way; /* a store's state of the request */
	char *why; /* reason of a failure, when the code does not say it; freed by io_wait() */
};

enum io_dirop {
	IO_MKDIR,      /* from: path; mode */
	IO_RENAME,     /* from -> to; replaces a file */
	IO_RENAME_NEW, /* from -> to; -EEXIST when to exists */
	IO_EXCHANGE,   /* exchange the two names; -EINVAL where the file system cannot */
	IO_UNLINK,
	IO_RMDIR,
	IO_SYNC_DIR, /* from: path of a directory, "." for the io_dir itself */
};

/*
 * Open an engine stack: "auto" (uring, or sync with one notice when the kernel refuses io_uring),
 * "uring" or "sync", with "trace:" and "fault(...):" in front. Threads and rings are created on
 * first use, so an engine may be opened before a fork. -EINVAL with the accepted names.
 */
int io_engine_open(const char *stack, struct io_engine **ret);
void io_engine_close(struct io_engine *io);
/*
 * Create the rings of that many threads now. From then on no more are created; a thread without one
 * uses plain system calls. For a process that is about to lose the right to create rings
 * (core/sandbox).
 */
void io_reserve(struct io_engine *io, unsigned threads);
/*
 * End the threads and connections of a store until they are used again. Call it before the process
 * drops rights, which belong to threads. No request may be in flight.
 */
void io_quiesce(struct io_engine *io);
/* The real engine at the bottom: "uring" or "sync". */
const char *io_engine_name(const struct io_engine *io);
/* Whether an engine lies above the real one, which is to see every read. */
bool io_is_wrapped(const struct io_engine *io);

/*
 * Begin the batch; wait for it, in one call for all of it. io_wait() returns 0 when no request
 * failed, else the first error with a note that names file, offset and length; each request has its
 * own result. A batch that could not be begun fails there, too. Short reads inside the file are
 * continued.
 */
void io_submit(struct io_engine *io, struct io_req *req, size_t n);
int io_wait(struct io_engine *io, struct io_req *req, size_t n);
/* io_submit() and io_wait(). */
int io_run(struct io_engine *io, struct io_req *req, size_t n);
/*
 * Like io_run(), but -EUCLEAN, naming the file, its end and the range, when the file ends inside a
 * range.
 */
int io_run_exact(struct io_engine *io, struct io_req *req, size_t n);
/* The same check after io_submit(). */
int io_wait_exact(struct io_engine *io, struct io_req *req, size_t n);
/* io_run_exact() for one read. */
int io_read_exact(struct io_file *file, void *p, size_t n, uint64_t off);
/*
 * Read a range into a pipe without copying it and without waiting for room. Returns 1 when the file
 * system cannot do that, or the pipe has too little room. After any result but 0 the pipe may hold
 * a part of the range.
 */
int io_splice_exact(struct io_file *file, uint64_t off, size_t n, int pipe);

int io_dir_open(struct io_engine *io, const char *path, struct io_dir **ret);
/* Open a directory beneath dir, beneath which paths are resolved in turn. */
int io_dir_sub(struct io_dir *dir, const char *rel, struct io_dir **ret);
void io_dir_close(struct io_dir *dir);
/* A descriptor of the directory outside of dir in which links in it may end; -1: there is none. */
int io_dir_blobs(const struct io_dir *dir);

/* flags: O_RDONLY, or O_RDWR|O_CREAT|O_EXCL and the like; mode for O_CREAT. -ENOENT when absent. */
int io_file_open(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		 struct io_file **ret);
/*
 * Like io_file_open() to read, for a caller that reads this range next, as far as the file has it:
 * a store that has to ask its server about the file receives the range in the same answer.
 */
#define IO_FIRST_BYTES (64 << 10) /* the range for a file that is probably small */
int io_file_open_range(struct io_dir *dir, const char *rel, uint64_t off, size_t n,
		       struct io_file **ret);
/* An unlinked file in dir, or in the directory tmpdir when dir is NULL. */
int io_file_temp(struct io_engine *io, struct io_dir *dir, const char *tmpdir,
		 struct io_file **ret);
struct io_file *io_file_ref(struct io_file *file);
void io_file_unref(struct io_file *file);
/*
 * Mark a file whose bytes are broken or could not be read (io.c does so itself when a read fails).
 * Someone may replace the file by a good one, so a caller that keeps files open opens this one
 * again.
 */
void io_file_doubt(struct io_file *file);
bool io_file_is_doubtful(const struct io_file *file);
/* Make content and metadata durable. */
int io_file_sync(struct io_file *file);
/*
 * io_file_sync(), and the error that close(2) returns where a file is written then
 * (bucket_mount.h). Nothing may be written afterwards.
 */
int io_file_finish(struct io_file *file);
/* A hint: the disk may begin to write a range. It does not wait, and makes nothing durable. */
void io_file_write_behind(struct io_file *file, uint64_t off, uint64_t n);
/*
 * A save writes more than memory holds, and does not read it again: the page cache has better use
 * for those pages, and fresh pages may cost more than encoding did (in a virtual machine the host
 * provides them).
 *
 * io_file_flush_range() waits until the range is on disk, and drops it from the page cache. It
 * returns -EIO, -ENOSPC or -EDQUOT, without a note, when a part of the file could not be written.
 * The kernel reports such an error once, so the next sync will not report it; nothing is dropped
 * then. io_file_drop_cache() drops a range that was synced. Neither does anything after
 * io_keep_written().
 */
int io_file_flush_range(struct io_file *file, uint64_t off, uint64_t n);
void io_file_drop_cache(struct io_file *file, uint64_t off, uint64_t n);
void io_keep_written(struct io_engine *io);
/*
 * Files written through this engine need not survive a crash, as those of a step on its way to a
 * bucket: from now on io_file_sync() and IO_SYNC_DIR do nothing, and no hint is given to the disk.
 * Implies io_keep_written().
 */
void io_never_sync(struct io_engine *io);
/*
 * From now on follow no symbolic link below a directory (-EUCLEAN), but those to a blob of their
 * own owner (io_hub.c). For callers that read on behalf of users, who could link to a file that
 * they may not read themselves.
 */
void io_follow_no_links(struct io_engine *io);
/*
 * Drop a synced file from the page cache, so that later reads come from the disk, as far as the
 * kernel allows.
 */
void io_file_reread(struct io_file *file);
/*
 * A hint: the range will not be read any more, and its space may be freed. Its bytes are undefined
 * afterwards.
 */
void io_file_punch(struct io_file *file, uint64_t off, uint64_t n);
int io_file_truncate(struct io_file *file, uint64_t size);
/*
 * Find the next range with data at or after off. False when only a hole is left, or when the file
 * was truncated meanwhile; io_file_check_size() distinguishes these.
 */
bool io_file_data(const struct io_file *file, uint64_t off, uint64_t *ret_from, uint64_t *ret_to);
/*
 * Bring what is not there of a range of a local file into the page cache, by steps of 2 MiB, in
 * pages as large as the file system has them. The kernel by itself takes pages of 4 KiB when
 * threads read several parts of a file, which take two to three times as long to read, and again
 * each time that they are copied or mapped. Waits for the disk; errors are left to the read. A
 * file of a bucket's mount is only announced to the kernel.
 * Benchmark: python_cold.
 */
void io_file_fill_cache(struct io_file *file, uint64_t off, uint64_t n);
/* -EUCLEAN when the file is shorter now than when it was opened. */
int io_file_check_size(struct io_file *file);

int io_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to, unsigned mode);
/* IO_MKDIR, but returns 0 also when the name exists. */
int io_mkdir(struct io_dir *dir, const char *rel, unsigned mode);
/* Create, or sync, all directories on the path to rel, without rel and dir themselves. */
int io_make_parents(struct io_dir *dir, const char *rel, unsigned mode);
int io_sync_parents(struct io_dir *dir, const char *rel);
/* Follows symbolic links as an open does. */
int io_stat(struct io_dir *dir, const char *rel, struct stat *ret);
/*
 * Mix the identity, size and times of a file, or the error of the look-up, into seed: two marks of
 * a path differ if the file was changed or replaced between them. Adds the size to *bytes. Makes no
 * note.
 */
uint64_t io_mark(struct io_dir *dir, const char *rel, uint64_t seed, uint64_t *bytes);
/*
 * io_stat(), with the rights that every member of the group, and every other user, has at least: an
 * access list may grant less than the mode. Bits as in 07.
 */
int io_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
		unsigned *ret_other);
/*
 * Files and directories created in dir from now on, and in directories opened beneath it, belong to
 * that user. Only root may do this.
 */
void io_dir_own(struct io_dir *dir, uid_t uid, gid_t gid);
/*
 * Called once per entry except "." and "..", in no particular order. type is DT_*; it is DT_UNKNOWN
 * only if the entry cannot be examined. A non-zero result ends the listing and is returned.
 */
typedef int io_list_fn(void *arg, const char *name, unsigned char type);
int io_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg);
/*
 * io_list() of a directory and of the directories in it, with paths below dir in place of names;
 * links are not followed. each() gets a directory before its entries, or (after) when it got all of
 * them. A positive result ends nothing, and leaves out the entries of a directory. -EFBIG: deeper
 * than LIMIT_DIR_DEPTH.
 */
int io_walk(struct io_dir *dir, const char *rel, bool after, io_list_fn *each, void *arg);
/* Whether the directory has no entry: 1 or 0. */
int io_dir_is_empty(struct io_dir *dir, const char *rel);
/*
 * Open a regular file outside of a checkpoint to read, and return a descriptor. Anything else is
 * not opened: -EISDIR or -EUCLEAN.
 */
int io_open_regular(const char *path);
/*
 * Append a whole small file to ret. -EFBIG above limit, -ENOENT when absent, -EUCLEAN for a
 * directory.
 */
int io_read_file(struct io_dir *dir, const char *rel, uint64_t limit, struct buf *ret);
/*
 * The reason why a file could not be decoded: r, whose note stays, or -EUCLEAN when the file is a
 * Git LFS pointer (lfs.h). file NULL: the value was not in a file of its own.
 */
int io_why_bad(int r, struct io_file *file);
/* Write n bytes at off. */
int io_write_exact(struct io_file *file, const void *p, size_t n, uint64_t off);
/* Copy a range of one file to the same range of another, a piece at a time. */
int io_copy_range(struct io_file *from, struct io_file *to, uint64_t off, uint64_t n);
/* Create, write and sync a whole file. Its name is durable only after IO_SYNC_DIR. */
int io_write_file(struct io_dir *dir, const char *rel, struct span content);
/*
 * Remove a file, or a directory with everything in it. Symbolic links are removed, not followed.
 * Returns 0 when rel does not exist.
 */
int io_remove_tree(struct io_dir *dir, const char *rel);
/* Remove the entries of a directory, with their contents, except those that `keeps` chooses. */
int io_remove_entries(struct io_dir *dir, const char *rel,
		      bool (*keeps)(void *arg, const char *name), void *arg);
/*
 * For use after a failed sync of a directory: the kernel may have dropped the names that it failed
 * to write, so they are written again by renaming each entry there and back. io_rewrite_name() does
 * so for one entry, io_rewrite_names_in() for all entries of a directory, in which nobody else may
 * work meanwhile. Then sync again. A failure may leave a name with the ending ".pytreefs-again";
 * the next call restores it.
 */
int io_rewrite_name(struct io_dir *dir, const char *rel);
int io_rewrite_names_in(struct io_dir *dir, const char *rel);
/*
 * Check a path that was joined from untrusted parts: -EUCLEAN when it is absolute or has a NUL or
 * an empty, "." or ".." component.
 */
int io_path_check(struct span rel, const char *what);

struct io_stats {
	atomic_ullong reads, read_bytes, writes, write_bytes, syncs, opens;
	atomic_ullong failed_dir_syncs;
};
const struct io_stats *io_engine_stats(const struct io_engine *io);
/*
 * Whether half of the process's descriptors are files opened here. A caller that keeps files open
 * for later use should then keep no more.
 */
bool io_files_are_many(void);
/*
 * Reserve n files that are opened together, n > 0; returns n, or 1 where half of the descriptors
 * would not do. io_files_unreserve() takes the result once they are open.
 */
size_t io_files_reserve(size_t n);
void io_files_unreserve(size_t n);
/*
 * Whether files and directories use three quarters of the descriptors, so that callers should close
 * idle ones.
 */
bool io_descriptors_are_short(void);
/*
 * Have fn(arg) called, in any thread, each time an open finds all descriptors in use, before the
 * open is retried for about a second. fn must not wait. There is one fn per process; NULL removes
 * it, and no call of it is in progress afterwards.
 */
void io_when_descriptors_run_out(void (*fn)(void *arg), void *arg);

DEFINE_AUTO(io_engine, struct io_engine, io_engine_close);
DEFINE_AUTO(io_file, struct io_file, io_file_unref);
DEFINE_AUTO(io_dir, struct io_dir, io_dir_close);

#endif
