/*
 * io_engine.h - what an engine implements. Included by the files of core/io only.
 *
 * Rules of the idiom: ops is static const and never NULL, every member is
 * required, and only io.c calls through it.
 */
#ifndef PYTREEFS_IO_ENGINE_H
#define PYTREEFS_IO_ENGINE_H

#include "core/io/io.h"

/* result of a request that is still under way */
#define IO_PENDING INT64_MIN

struct io_engine_ops {
	const char *name;
	/* The batch is the calling thread's until wait returns for the same requests. */
	int (*submit)(struct io_engine *io, struct io_req *req, size_t n);
	/* All results are set; the return is about the engine itself, not about requests. */
	int (*wait)(struct io_engine *io, struct io_req *req, size_t n);
	/* Below a directory descriptor, already checked. open returns a descriptor. */
	int (*open)(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode);
	int (*dirop)(struct io_engine *io, enum io_dirop op, int dirfd, const char *from, const char *to,
		     unsigned mode);
	int (*truncate)(struct io_engine *io, struct io_file *file, uint64_t size);
	void (*free)(struct io_engine *io);
};

struct io_engine {
	const struct io_engine_ops *ops;
	struct io_engine *below;	/* the engine that this one wraps; NULL for a real one */
	struct io_stats *stats;		/* owned by the top of the stack */
	bool keeps_written;		/* of the top: io_keep_written() */
};

/*
 * Rings and threads do not survive a fork. This number changes in the child; who keeps per-thread
 * state compares it and starts afresh.
 */
unsigned io_fork_generation(void);

int io_sync_new(struct io_engine **ret);
/* -ENOSYS, -EPERM and the like when the kernel or the container refuses io_uring. */
int io_ring_new(struct io_engine **ret);
int io_trace_new(struct io_engine *below, struct io_engine **ret);
/* rules: the text between the parentheses of "fault(...)"; io_fault.c describes them. */
int io_fault_new(const char *rules, struct io_engine *below, struct io_engine **ret);

/* what: "keep@N" and the like, behind "fault(crash:"; io_crash.c describes it. */
int io_crash_new(const char *what, struct io_engine *below, struct io_engine **ret);
/* Power losses of this process whose disk could not be made: what was found after them says nothing. */
unsigned io_crash_failures(void);

/* The plain system calls that both real engines share (io_plain.c). One request, once: result is set. */
void io_plain_run(struct io_req *req);
int io_plain_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode);
int io_plain_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from, const char *to,
		   unsigned mode);
/* The directory that holds path, opened with O_PATH, and path's last component. */
int io_plain_parent(struct io_engine *io, int dirfd, const char *path, const char **ret_last);
int io_plain_truncate(struct io_engine *io, struct io_file *file, uint64_t size);

#endif
