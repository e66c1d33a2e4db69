/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h - (file, offset) -> bytes: the only way to the disk.
 *
 * An engine carries out requests; engines stack ("trace:fault(read:eio:1%):ring",
 * right-most is real), which is how errors and crashes are tested. *Every* change
 * to the disk, names included, goes through an engine.
 *
 * I/O is per thread: a batch belongs to the calling thread from io_submit()
 * until io_wait() returns, and nothing is left in flight when an operation
 * returns. There are no callbacks.
 *
 * All paths are relative to a struct io_dir and resolved beneath it by the
 * kernel (openat2): absolute paths, ".." above it and symbolic links that leave
 * it fail with -EUCLEAN. Only regular files are opened.
 *
 * Directories and files of a store (io_store.h: a bucket, a web server) are the same without a
 * descriptor: they are read, and never written (-EROFS).
 */
#ifndef PYTREEFS_IO_H
#define PYTREEFS_IO_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "core/base/buf.h"

struct io_engine;

/* An open file. Counted: io_file_ref/unref; closed with the last reference. */
struct io_file {
	struct io_engine *io;
	int fd;        /* -1: in a store (io_store.h) */
	char *name;    /* path below its io_dir, for messages */
	char *key;     /* in a store: from its root on; NULL: a local file */
	char *tag;     /* of what was opened there */
	uint64_t size; /* when it was opened, or grown through io_file_grew() */
	struct timespec mtime;
	uint64_t dev, ino;
	atomic_uint refs;
	atomic_bool doubtful; /* io_file_doubt() */
	/* Called when the last reference is gone; may be NULL. */
	void (*closed)(struct io_file *file);
	void *closed_arg;
};

/* A directory that paths are resolved beneath. Owned by the caller that opened it. */
struct io_dir {
	struct io_engine *io;
	int fd;       /* O_PATH or O_DIRECTORY; -1: in a store */
	char *path;   /* as given, for messages */
	char *prefix; /* in a store: from its root on, "" the root itself; NULL: a local one */
	bool owned;   /* io_dir_own() */
	uid_t uid;
	gid_t gid;
};

#define IO_FILE_MODE 0666 /* of every file of a checkpoint, under the umask */

enum io_op { IO_READ, IO_WRITE, IO_SYNC };

struct io_req {
	enum io_op op;
	struct io_file *file; /* borrowed; must outlive the wait */
	void *p;              /* read into, or written from */
	size_t n;
	uint64_t off;
	int64_t result; /* bytes (fewer than n only at the end of file), or -errno */

	/* Private to the engines. */
	size_t done; /* bytes of earlier short transfers */
	struct io_req *next;
	void *under_way; /* a store's */
	char *why;       /* it failed, when the code does not say it; freed by io_wait() */
};

enum io_dirop {
	IO_MKDIR,      /* from: path; mode */
	IO_RENAME,     /* from -> to; replaces a file */
	IO_RENAME_NEW, /* from -> to; -EEXIST when to exists */
	IO_EXCHANGE,   /* each gets the other's name; -EINVAL where the file system cannot */
	IO_UNLINK,
	IO_RMDIR,
	IO_SYNC_DIR, /* from: path of a directory, "." for the io_dir itself */
};

/*
 * Open the engine stack: "auto" (uring, or sync with one notice when the kernel
 * refuses io_uring), "uring", "sync", with "trace:" and "fault(...):" in front.
 * Threads and rings are made on first use, so an engine may be opened before a
 * fork. -EINVAL with the accepted names.
 */
int io_engine_open(const char *stack, struct io_engine **ret);
void io_engine_close(struct io_engine *io);
/*
 * Make what that many threads need, now: from here on no more is made, whichever way a thread that
 * gets nothing then works. For a process that is about to give up making it (core/sandbox).
 */
void io_reserve(struct io_engine *io, unsigned threads);
/*
 * End the threads and connections of a store, until they are used again: before a process gives up
 * rights, which belong to threads. Nothing may be under way.
 */
void io_quiesce(struct io_engine *io);
/* The real engine at the bottom: "uring" or "sync". */
const char *io_engine_name(const struct io_engine *io);

/* Begin the batch, then wait for it. io_wait: 0 when no request failed, else the first error with a
 * note naming file, offset and length; each result stays in its request. Short reads inside the
 * file are continued by the engine. */
int io_submit(struct io_engine *io, struct io_req *req, size_t n);
int io_wait(struct io_engine *io, struct io_req *req, size_t n);
/* io_submit and io_wait. */
int io_run(struct io_engine *io, struct io_req *req, size_t n);
/*
 * The same, and -EUCLEAN naming the file, its end and the range when the file ends before one of
 * them.
 */
int io_run_exact(struct io_engine *io, struct io_req *req, size_t n);
/* The same for one read. */
int io_read_exact(struct io_file *file, void *p, size_t n, uint64_t off);
/*
 * The same into a pipe, without a copy and without waiting for room. 1: the file system cannot do
 * it, or the pipe has not enough room. After any result but 0 the pipe holds a part of the range,
 * or nothing.
 */
int io_splice_exact(struct io_file *file, uint64_t off, size_t n, int pipe);

int io_dir_open(struct io_engine *io, const char *path, struct io_dir **ret);
/* A directory beneath dir, itself a root for paths. */
int io_dir_sub(struct io_dir *dir, const char *rel, struct io_dir **ret);
void io_dir_close(struct io_dir *dir);

/* flags: O_RDONLY, or O_RDWR|O_CREAT|O_EXCL and the like; mode for O_CREAT. -ENOENT when absent. */
int io_file_open(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		 struct io_file **ret);
/*
 * io_file_open() to read, for a caller that reads this range next, as far as the file has it: a
 * store that has to ask its server for the file gets the range in the same answer.
 */
#define IO_FIRST_BYTES (64 << 10) /* the range for a file that is probably small */
int io_file_open_range(struct io_dir *dir, const char *rel, uint64_t off, size_t n,
		       struct io_file **ret);
/* An unlinked file in dir, or in the path tmpdir when dir is NULL. */
int io_file_temp(struct io_engine *io, struct io_dir *dir, const char *tmpdir,
		 struct io_file **ret);
struct io_file *io_file_ref(struct io_file *file);
void io_file_unref(struct io_file *file);
/*
 * Mark a file whose bytes are broken, or could not be read (io.c marks these itself): it may be
 * repaired by putting another file in its place, so a caller that keeps files open opens this one
 * again.
 */
void io_file_doubt(struct io_file *file);
bool io_file_is_doubtful(const struct io_file *file);
/* Content and metadata durable. */
int io_file_sync(struct io_file *file);
/* A hint: the disk may begin to write a range. It does not wait, and makes nothing durable. */
void io_file_write_behind(struct io_file *file, uint64_t off, uint64_t n);
/*
 * A save writes as much as memory holds, and once: the page cache has better use for its pages, and
 * new pages may cost more than encoding did (in a virtual machine the host provides them).
 *
 * io_file_flush_range: wait until the disk has what was written to the range, and drop it from the
 * page cache. -EIO, -ENOSPC or -EDQUOT, without a note, when some of the file did not reach the
 * disk: it is reported once, in place of the next sync, and nothing is dropped.
 * io_file_drop_cache: the same for what was synced. Both do nothing after io_keep_written().
 */
int io_file_flush_range(struct io_file *file, uint64_t off, uint64_t n);
void io_file_drop_cache(struct io_file *file, uint64_t off, uint64_t n);
void io_keep_written(struct io_engine *io);
/*
 * From now on no symbolic link is followed below a directory (-EUCLEAN): for callers that read on
 * behalf of users who could make a link to what they may not read themselves.
 */
void io_follow_no_links(struct io_engine *io);
/* Drop a file that was synced from the page cache: later reads come from the disk, as far as the
 * kernel allows. */
void io_file_reread(struct io_file *file);
/*
 * A hint: the range is not read any more, and its space may be given back. Its bytes are undefined
 * afterwards.
 */
void io_file_punch(struct io_file *file, uint64_t off, uint64_t n);
int io_file_truncate(struct io_file *file, uint64_t size);
/*
 * The next range from off on outside of holes; false when there is none before the end, or when the
 * file has been cut to less: io_file_check_size() tells.
 */
bool io_file_data(const struct io_file *file, uint64_t off, uint64_t *ret_from, uint64_t *ret_to);
/* -EUCLEAN when it is shorter now than when it was opened. */
int io_file_check_size(struct io_file *file);

int io_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to, unsigned mode);
/* IO_MKDIR, and 0 also when the name exists. */
int io_mkdir(struct io_dir *dir, const char *rel, unsigned mode);
/*
 * The directories on the way to rel, not rel itself: made when they do not exist, and made durable,
 * except dir itself.
 */
int io_make_parents(struct io_dir *dir, const char *rel, unsigned mode);
int io_sync_parents(struct io_dir *dir, const char *rel);
/* Follows symbolic links that stay beneath dir. */
int io_stat(struct io_dir *dir, const char *rel, struct stat *ret);
/*
 * What tells a file from what it was or will be, mixed into seed: its identity, size and times, or
 * the error of looking. Its size is added to *bytes. Leaves no note.
 */
uint64_t io_mark(struct io_dir *dir, const char *rel, uint64_t seed, uint64_t *bytes);
/*
 * io_stat(), with the least rights that any member of the group, and any other user, has: an access
 * list may give less than the mode says. Bits as in 07.
 */
int io_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
		unsigned *ret_other);
/*
 * Files and directories that are made in dir from now on, and in directories opened beneath it,
 * belong to that user. Only for root.
 */
void io_dir_own(struct io_dir *dir, uid_t uid, gid_t gid);
/* One call per entry but "." and "..", in no order; type is DT_*, and known wherever the
 * entry can be looked at. Ends early with a non-zero return. */
typedef int io_list_fn(void *arg, const char *name, unsigned char type);
int io_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg);
/* A file outside of a checkpoint by its path, to be read: a descriptor. What is not a regular file
 * is not opened: -EISDIR or -EUCLEAN. */
int io_open_regular(const char *path);
/* A whole small file, appended to ret. -EFBIG above limit. -ENOENT when absent; -EUCLEAN for a
 * directory. */
int io_read_file(struct io_dir *dir, const char *rel, uint64_t limit, struct buf *ret);
/* Write n bytes at off. */
int io_write_exact(struct io_file *file, const void *p, size_t n, uint64_t off);
/* The same range of another file, a piece at a time. */
int io_copy_range(struct io_file *from, struct io_file *to, uint64_t off, uint64_t n);
/* Write a whole file: create, write, sync. The name is durable only after IO_SYNC_DIR. */
int io_write_file(struct io_dir *dir, const char *rel, struct span content);
/* Remove a file, or a directory with all that is in it; links are removed, not followed. 0 when
 * absent. */
int io_remove_tree(struct io_dir *dir, const char *rel);
/*
 * After a sync of the directory failed: the kernel may have dropped the names that it was to write,
 * so each is renamed there and back before the next sync: io_rewrite_name() one entry,
 * io_rewrite_names_in() all entries of a directory. Nobody else may work in the
 * directory. On failure a name may be left with the ending ".pytreefs-again"; the next call
 * restores it.
 */
int io_rewrite_name(struct io_dir *dir, const char *rel);
int io_rewrite_names_in(struct io_dir *dir, const char *rel);
/* rel joined from untrusted parts: -EUCLEAN when it is absolute, has an empty, "." or ".."
 * component or NUL. */
int io_path_check(struct span rel, const char *what);

struct io_stats {
	atomic_ullong reads, read_bytes, writes, write_bytes, syncs, opens;
	atomic_ullong failed_dir_syncs;
};
const struct io_stats *io_engine_stats(const struct io_engine *io);
/*
 * Whether half of the descriptors that the process may have are files opened here: a caller that
 * keeps files open for later should then keep no more.
 */
bool io_files_are_many(void);
/* Whether files and directories together have three quarters of them: whoever can close some does. */
bool io_descriptors_are_short(void);
/*
 * fn(arg) is called, in any thread, each time that an open finds all descriptors in use, before it
 * is tried again for about a second; it must not wait. One for the process; NULL: not any more, and
 * no call of it is under way.
 */
void io_when_descriptors_run_out(void (*fn)(void *arg), void *arg);

DEFINE_AUTO(io_file, struct io_file, io_file_unref);
DEFINE_AUTO(io_dir, struct io_dir, io_dir_close);

#endif
