/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_impl.h - shared by read_many.c (rounds and threads), read_many_plan.c (views ->
 * chunks) and read_many_chunk.c (one chunk).
 */
#ifndef PYTREEFS_READ_MANY_IMPL_H
#define PYTREEFS_READ_MANY_IMPL_H

#include <pthread.h>

#include "core/base/err.h"
#include "core/zarr/chunk.h"
#include "core/zarr/read_many/read_many.h"
#include "core/zarr/reading.h"

struct many;

/* One chunk, or a range of a raw one. */
struct many_job {
	struct many_target *t;
	struct chunk_source src; /* released after its round */
	uint64_t number;         /* number of the chunk */
	/* the job of another view that has a part of the same chunk, which is decoded once */
	struct many_job *twin;
	/*
	 * Range of the run that this job reads, when several jobs, which follow each other in the
	 * target, share a raw chunk; n 0: all of it.
	 */
	uint64_t from, n;
	uint32_t sum; /* of these bytes, if it was computed */
	bool is_summed;
	atomic_uint ended; /* in the first one: jobs of the run that are read */
};
#define RAW_RANGE (4 * MiB) /* longer runs of stored elements are shared by several threads */

/* A view that is being read. */
struct many_target {
	struct many *many;
	size_t i; /* its index for the caller */
	struct read_target r;
	struct reading rd;     /* its box is the whole view, its strides are those of r */
	struct grid_part next; /* the part to plan next, if there are more */
	bool is_open, more;
	struct many_job *job; /* jobs of this round */
	size_t n_jobs, cap_jobs, max_jobs;
	atomic_int failed;     /* negative errno */
	struct err_note *note; /* protected by many->lock */
};

/* How a chunk gets into the result. */
enum many_how {
	MANY_FILL,    /* it is not stored */
	MANY_RAW,     /* its bytes are read directly into the result */
	MANY_WHOLE,   /* its stored bytes are read, or in memory, and decoded */
	MANY_STREAM,  /* it is read and decoded piece by piece, up to the part's last element */
	MANY_THROUGH, /* rows of a large raw one are read through the cache, after the others */
};

/* The work of a thread on one chunk. */
struct many_work {
	struct many_job *job;
	struct grid_part part;
	struct strided copy; /* of its elements, from byte `first` of the chunk on, to `to` */
	uint64_t first;
	uint8_t *to;
	enum many_how how;
	bool direct;      /* the decoded chunk is a run of the result */
	bool is_elements; /* the bytes that are read are elements as they are shown, from `first` on
			   */
	uint64_t off;     /* bytes of the file that are read before the work: [off, off + n) */
	size_t n;
	uint64_t need;     /* bytes of the decoded chunk up to the last one of all parts */
	uint64_t bytes;    /* of the results that all parts have */
	uint8_t *in;       /* WHOLE: the bytes that were read */
	int req;           /* index of its request; -1: none */
	uint64_t reported; /* bytes of the result that `done` includes already */
};

#define MANY_BATCH 64

struct many_batch {
	struct many_work work[MANY_BATCH];
	struct io_req req[MANY_BATCH];
	unsigned n, n_req;
	uint8_t *buf; /* n_buf bytes, for the stored bytes of WHOLE chunks */
	size_t n_buf;
};

/* A working thread. */
struct many_worker {
	struct pool_job job;
	struct many *many;
	bool is_caller, ended;
	struct many_batch *batch[2];
	uint8_t *scratch; /* n_scratch bytes, for a decoded chunk */
	size_t n_scratch;
};

struct many {
	struct zarr_env *env;
	const struct read_many_ops *ops;
	void *arg;
	struct pool *pool;       /* NULL: the caller is the only thread */
	atomic_ullong done;      /* bytes of results */
	atomic_ullong in_hand;   /* bytes of inline values that jobs of this round hold */
	atomic_bool stop;        /* no new work is begun */
	struct err_note stopped; /* the reason; set by the caller */
	int64_t reported_at;     /* time of the last call of progress(); used by the caller only */

	struct many_target *target; /* at most READ_MANY_ARRAYS */
	size_t n_targets;

	/* The current round: */
	const struct many_target *first; /* it gets at least one job */
	/* size of one batch; limit for a chunk that is decoded at once */
	uint64_t batch_bytes, big_bytes;
	unsigned workers;
	struct many_job **order;
	size_t n_jobs;
	/* the last long value that was read has no checksum, so that the next one may have none */
	atomic_bool no_sums;
	/* protects the members below, notes of targets, and `ended` of workers */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	size_t next;   /* index in order */
	uint64_t left; /* stored bytes of the jobs that are left */
};

/* ---- read_many.c ---- */

/* Record the first failure of a target, with this thread's note. */
void many_fail(struct many_target *t, int r);
static inline bool many_is_off(const struct many_target *t)
{
	return atomic_load_explicit(&t->failed, memory_order_relaxed) ||
	       atomic_load_explicit(&t->many->stop, memory_order_relaxed);
}
/* Whether no view needs the chunk any more. */
static inline bool many_job_is_off(const struct many_job *job)
{
	while (job && many_is_off(job->t))
		job = job->twin;
	return !job;
}
/* Called by the calling thread now and then: report progress, and stop when progress() fails. */
void many_report_progress(struct many *m);

/*
 * Whether elements up to byte `end` are so much of a chunk that all of it is read or decoded, so
 * that its end and its checksum are checked.
 */
static inline bool many_is_most(const struct zarr *z, uint64_t end)
{
	return end > z->leaf->bytes / 4 * 3;
}

/* ---- read_many_plan.c ---- */

/* A pool_fn for a struct many_target *: plan its next jobs, at most max_jobs. */
int many_plan(void *target);
/* The place of a chunk in the grid, and the part of the view in it. */
void many_part(const struct many_target *t, uint64_t number, uint64_t *ret_index,
	       struct grid_part *ret);
/* Release everything that the round's jobs hold. */
void many_jobs_release(struct many_target *t);

/* ---- read_many_chunk.c ---- */

/* Decide how to read the chunk; sets all members except in and req. */
void many_work_init(struct many *m, struct many_job *job, struct many_work *ret);
/* The reads have completed: decode the chunk into the result. */
int many_work_run(struct many_worker *w, struct many_work *k);
/* MANY_THROUGH: called by the calling thread while it holds no budget. */
int many_through(struct many *m, struct many_work *k);
/* Prefix the note of a failure with the chunk and its place. */
int many_at(const struct many_job *job, int r);

#endif
