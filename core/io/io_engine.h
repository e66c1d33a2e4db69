/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_engine.h - the interface of an engine. For core/io, and engines of tests.
 *
 * ops is static const and never NULL. Every member is required unless its comment says otherwise,
 * or the plain engine (io_sync.c) has none. io.c, io_store.c, io_stack.c and wrappers call through
 * it.
 */
#ifndef PYTREEFS_IO_ENGINE_H
#define PYTREEFS_IO_ENGINE_H

#include "core/io/io.h"
#include "core/io/io_store.h"

/* result of a request that is in flight */
#define IO_PENDING INT64_MIN

struct io_engine_ops {
	const char *name;
	/*
	 * The batch belongs to the calling thread until wait() returns for the same requests. After
	 * an error none of them is in flight, and wait() is not called.
	 */
	int (*submit)(struct io_engine *io, struct io_req *req, size_t n);
	/*
	 * Sets all results. The return value reports failures of the engine itself, not of
	 * requests.
	 */
	int (*wait)(struct io_engine *io, struct io_req *req, size_t n);
	/*
	 * path is below a directory descriptor, and already checked. open() returns a descriptor.
	 */
	int (*open)(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode);
	int (*dirop)(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		     const char *to, unsigned mode);
	int (*truncate)(struct io_engine *io, struct io_file *file, uint64_t size);
	/*
	 * One splice(2) that does not wait for room. Returns bytes, 0 at the end of the file, or
	 * -errno.
	 */
	int64_t (*splice)(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			  int pipe);
	/* Of a store (io_store.h); NULL in real engines. */
	int (*lookup)(struct io_engine *io, const char *path, const struct io_want *want,
		      struct io_object *ret);
	int (*list)(struct io_engine *io, const char *path, io_store_fn *each, void *arg);
	/* io_quiesce(); NULL when there is nothing to end. */
	void (*quiesce)(struct io_engine *io);
	/* io_reserve(); NULL when there is nothing to create. */
	void (*reserve)(struct io_engine *io, unsigned threads);
	void (*free)(struct io_engine *io);
};

struct io_engine {
	const struct io_engine_ops *ops;
	struct io_engine *below; /* the engine that this one wraps; NULL for a real one */
	struct io_stats *stats;  /* owned by the top of the stack */
	bool keeps_written;      /* io_keep_written(); set in the top engine */
	bool is_scratch;         /* io_never_sync(); set in the top engine */
	bool no_links;           /* io_follow_no_links(); set in all engines */
};

/* Where the next byte of a transfer is. A sync has no memory, and nothing is added to its NULL. */
static inline void *io_remaining(const struct io_req *req)
{
	return req->done ? (uint8_t *)req->p + req->done : req->p;
}

/*
 * Rings and threads do not survive a fork. This number changes in the child: code with per-thread
 * state compares it, and starts anew when it differs.
 */
unsigned io_fork_generation(void);

int io_sync_new(struct io_engine **ret);
/* -ENOSYS, -EPERM and the like when the kernel or the container refuses io_uring. */
int io_ring_new(struct io_engine **ret);
int io_trace_new(struct io_engine *below, struct io_engine **ret);
/* Over a real engine. On success the engine owns the store. */
int io_store_new(struct io_store *store, struct io_engine *below, struct io_engine **ret);
/* rules is the text between the parentheses of "fault(...)"; io_fault.c describes it. */
int io_fault_new(const char *rules, struct io_engine *below, struct io_engine **ret);

/*
 * An engine outside core/io, such as the simulator of power losses in tests/engine:
 * "fault(NAME:WHAT):..." opens it. Registered before any engine is opened, and never removed.
 */
struct io_engine_kind {
	const char *name;
	int (*open)(const char *what, struct io_engine *below, struct io_engine **ret);
	struct io_engine_kind *next; /* private to io_fault.c */
};
void io_register_engine(struct io_engine_kind *kind);

/* io.c: the error of a read that met the end of its file. */
int io_cut_short(const struct io_req *q);

/*
 * The following system calls are shared by both real engines (io_plain.c). io_plain_run() runs one
 * request once, and sets its result.
 */
void io_plain_run(struct io_req *req);
int io_plain_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode);
/* A temporary file without a name, where the file system has no O_TMPFILE. */
int io_plain_unlinked(const char *dir);
int io_plain_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		   const char *to, unsigned mode);
/* Open the directory that contains path with O_PATH, and set ret_last to path's last component. */
int io_plain_parent(struct io_engine *io, int dirfd, const char *path, const char **ret_last);
/* Files or directories were opened, or (n below 0) closed. */
void io_files_count(int n);
void io_dirs_count(int n);
/* Tell who keeps idle files open that no descriptor is left. */
void io_descriptors_ran_out(void);
/* ops->open(), repeated while it is interrupted (io.c). Returns a descriptor. */
int io_open_at(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode);
/*
 * io_open_at() for a path in dir, with an engine of its stack. A link into the cache of a hub is
 * followed to a file that is read (io_hub.c).
 */
int io_open_in(struct io_engine *io, struct io_dir *dir, const char *rel, int flags, unsigned mode);
/* Get the hub that a directory is in, by its path, with a reference. NULL: none, or no memory. */
struct io_hub *io_hub_find(const char *path);
/* Accept NULL. */
struct io_hub *io_hub_ref(struct io_hub *hub);
void io_hub_unref(struct io_hub *hub);
/* 0 for a regular file. Anything else is an error, and is not opened (io_look.c). */
int io_look_first(struct io_dir *dir, const char *rel);
/* -EISDIR or -EUCLEAN, with a note that names the type of the file. */
int io_not_regular(const char *name, mode_t mode);
/* The name for messages: of ".", the path of the directory, since "." would not identify it. */
const char *io_shown(const struct io_dir *dir, const char *rel);
/*
 * Make the note of an open that failed with the code fd: links that leave the source break the
 * checkpoint.
 */
int io_open_failed(int fd, const struct io_dir *dir, const char *what, const char *path);
/*
 * Called before and after something is created in dir, so that it belongs to dir's owner
 * (io_owner.c).
 */
void io_owner_enter(const struct io_dir *dir);
void io_owner_leave(const struct io_dir *dir);
int io_plain_truncate(struct io_engine *io, struct io_file *file, uint64_t size);
int64_t io_plain_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			int pipe);

/*
 * The operations of io.h on a directory and what is below it, which differ for a local directory
 * (io.c) and one of a store (io_store.c). want: the range that is read next, or NULL.
 */
struct io_dir_ops {
	int (*sub)(struct io_dir *dir, const char *rel, struct io_dir **ret);
	int (*open)(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		    const struct io_want *want, struct io_file **ret);
	int (*temp)(struct io_engine *io, struct io_dir *dir, struct io_file **ret);
	int (*dirop)(struct io_dir *dir, enum io_dirop op, const char *from, const char *to,
		     unsigned mode);
	int (*list)(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg);
	int (*stat)(struct io_dir *dir, const char *rel, struct stat *ret);
	int (*stat_acl)(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
			unsigned *ret_other);
};
extern const struct io_dir_ops io_local_dir;

int io_local_stat(struct io_dir *dir, const char *rel, struct stat *ret);
int io_local_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
		      unsigned *ret_other);

#endif
