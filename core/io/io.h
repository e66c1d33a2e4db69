/*
 * io.h - (file, offset) -> bytes: the only way to the disk.
 *
 * An engine does what it is asked; engines stack ("trace:fault(read:eio:1%):ring",
 * right-most is real), which is how errors and crashes are tested. *Every*
 * change to the disk, names included, goes through an engine.
 *
 * I/O is per thread: a batch belongs to the calling thread from io_submit()
 * until io_wait() returns, and nothing is left in flight when an operation
 * returns. There are no callbacks.
 *
 * All paths are relative to a struct io_dir and resolved beneath it by the
 * kernel (openat2): absolute paths, ".." above it and symbolic links that leave
 * it fail with -EUCLEAN. Only regular files are opened.
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
	int fd;
	char *name;			/* path below its io_dir, for messages */
	uint64_t size;			/* when it was opened, or grown through io_file_grew() */
	struct timespec mtime;
	uint64_t dev, ino;
	atomic_uint refs;
	/* Who counts it, told when the last reference is gone. NULL: nobody. */
	void (*closed)(struct io_file *file);
	void *closed_arg;
};

/* A directory that paths are resolved beneath. Owned by who opened it. */
struct io_dir {
	struct io_engine *io;
	int fd;				/* O_PATH or O_DIRECTORY */
	char *path;			/* as given, for messages */
};

#define IO_FILE_MODE 0666		/* of all that a checkpoint keeps, under the umask */

enum io_op { IO_READ, IO_WRITE, IO_SYNC };

struct io_req {
	enum io_op op;
	struct io_file *file;		/* borrowed; must outlive the wait */
	void *p;			/* read into, or written from */
	size_t n;
	uint64_t off;
	int64_t result;			/* bytes (fewer than n only at the end of file), or -errno */

	/* Private to the engines. */
	size_t done;			/* bytes of earlier short transfers */
	struct io_req *next;
};

enum io_dirop {
	IO_MKDIR,			/* from: path; mode */
	IO_RENAME,			/* from -> to; replaces a file */
	IO_RENAME_NEW,			/* from -> to; -EEXIST when to exists */
	IO_UNLINK,
	IO_RMDIR,
	IO_SYNC_DIR,			/* from: path of a directory, "." for the io_dir itself */
};

/*
 * Open the engine stack: "auto" (uring, or sync with one notice when the kernel
 * refuses io_uring), "uring", "sync", with "trace:" and "fault(...):" in front.
 * Threads and rings are made on first use, so an engine may be opened before a
 * fork. -EINVAL with the accepted names.
 */
int io_engine_open(const char *stack, struct io_engine **ret);
void io_engine_close(struct io_engine *io);
/* The real engine at the bottom: "uring" or "sync". */
const char *io_engine_name(const struct io_engine *io);

/* Begin the batch, then wait for it. io_wait: 0 when no request failed, else the first error with a
 * note naming file, offset and length; each result stays in its request. Short reads inside the file
 * are continued by the engine. */
int io_submit(struct io_engine *io, struct io_req *req, size_t n);
int io_wait(struct io_engine *io, struct io_req *req, size_t n);
/* io_submit and io_wait. */
int io_run(struct io_engine *io, struct io_req *req, size_t n);
/* The same, and -EUCLEAN naming the file, its end and the range when one of them is cut short. */
int io_run_exact(struct io_engine *io, struct io_req *req, size_t n);
/* The same for one read. */
int io_read_exact(struct io_file *file, void *p, size_t n, uint64_t off);

int io_dir_open(struct io_engine *io, const char *path, struct io_dir **ret);
/* A directory beneath dir, itself a root for paths. */
int io_dir_sub(struct io_dir *dir, const char *rel, struct io_dir **ret);
void io_dir_close(struct io_dir *dir);

/* flags: O_RDONLY, or O_RDWR|O_CREAT|O_EXCL and the like; mode for O_CREAT. -ENOENT when absent. */
int io_file_open(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		 struct io_file **ret);
/* An unlinked file in dir, or in the path tmpdir when dir is NULL. */
int io_file_temp(struct io_engine *io, struct io_dir *dir, const char *tmpdir,
		 struct io_file **ret);
struct io_file *io_file_ref(struct io_file *file);
void io_file_unref(struct io_file *file);
/* Content and metadata durable. */
int io_file_sync(struct io_file *file);
/* A hint: the disk may begin with a range that was written; nothing is durable by it, nor waited for. */
void io_file_write_behind(struct io_file *file, uint64_t off, uint64_t n);
/*
 * What is saved is written once and as large as memory is: the page cache has better use for its pages, and
 * new ones may cost more than encoding did (a virtual machine's host lends them).
 *
 * io_file_settle: wait until the disk has what was written to the range, and let the page cache forget it. -EIO,
 * -ENOSPC or -EDQUOT, without a note, when some of the file did not reach the disk: told once, in place of the next
 * sync, and nothing is forgotten. io_file_forget: the same for what was synced. Both do nothing after
 * io_keep_written().
 */
int io_file_settle(struct io_file *file, uint64_t off, uint64_t n);
void io_file_forget(struct io_file *file, uint64_t off, uint64_t n);
void io_keep_written(struct io_engine *io);
/* Of a file that was synced: what is read next comes from the disk, as far as the kernel allows. */
void io_file_reread(struct io_file *file);
/* A hint: nobody reads the range any more, and its space may be given back. What it reads as is undefined. */
void io_file_punch(struct io_file *file, uint64_t off, uint64_t n);
int io_file_truncate(struct io_file *file, uint64_t size);

int io_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to, unsigned mode);
/* IO_MKDIR, and 0 also when there is something of that name. */
int io_mkdir(struct io_dir *dir, const char *rel, unsigned mode);
/* The directories on the way to rel, not rel itself: made when they are not there; made durable, but for dir itself. */
int io_make_parents(struct io_dir *dir, const char *rel, unsigned mode);
int io_sync_parents(struct io_dir *dir, const char *rel);
/* Follows symbolic links that stay beneath dir. */
int io_stat(struct io_dir *dir, const char *rel, struct stat *ret);
/* One call per entry but "." and "..", in no order; type is DT_*. Ends early with a non-zero return. */
typedef int io_list_fn(void *arg, const char *name, unsigned char type);
int io_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg);
/* A whole small file, appended to ret. -EFBIG above limit. -ENOENT when absent; -EUCLEAN for a directory. */
int io_slurp(struct io_dir *dir, const char *rel, uint64_t limit, struct buf *ret);
/* Write a whole file: create, write, sync. The name is durable only after IO_SYNC_DIR. */
int io_spit(struct io_dir *dir, const char *rel, struct span content);
/* Remove a file, or a directory with all that is in it; links are removed, not followed. 0 when absent. */
int io_remove_tree(struct io_dir *dir, const char *rel);
/*
 * After a sync of the directory failed: the kernel may have dropped the names that it was to write, so
 * each (or this one) is renamed there and back before the next sync. Nobody else works in it. When it fails a name
 * may be left with ".pytreefs-again" behind it, and the next call gives it its own back.
 */
int io_name_again(struct io_dir *dir, const char *rel);
int io_names_again(struct io_dir *dir, const char *rel);
/* rel joined from untrusted parts: -EUCLEAN when it is absolute, has an empty, "." or ".." component or NUL. */
int io_path_check(struct span rel, const char *what);

struct io_stats {
	atomic_ullong reads, read_bytes, writes, write_bytes, syncs, opens;
	atomic_ullong failed_dir_syncs;
};
const struct io_stats *io_engine_stats(const struct io_engine *io);
/*
 * Half of the descriptors that the process may have are files opened here: whoever keeps files open for later
 * keeps no more of them.
 */
bool io_files_are_many(void);

DEFINE_AUTO(io_file, struct io_file, io_file_unref);
DEFINE_AUTO(io_dir, struct io_dir, io_dir_close);

#endif
