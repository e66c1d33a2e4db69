/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_impl.h - what read_many.c (rounds and threads), read_many_plan.c (views -> chunks),
 * read_many_chunk.c (one chunk) and read_many_raw.c (one that is stored as it is shown) share.
 */
#ifndef PYTREEFS_READ_MANY_IMPL_H
#define PYTREEFS_READ_MANY_IMPL_H

#include <pthread.h>

#include "core/base/err.h"
#include "core/zarr/chunk.h"
#include "core/zarr/grid.h"
#include "core/zarr/read_many.h"

struct many;

/* One chunk, or a range of a raw one. */
struct many_job {
	struct many_target *t;
	struct kv_loc loc; /* released after its round */
	uint64_t number;   /* of the chunk */
	uint64_t off, len; /* stored bytes inside the value */
	/* Of a raw chunk that several jobs share: bytes of the run that this one reads; 0: all. */
	uint64_t from, n;
};

/* A view that is being read. */
struct many_target {
	struct many *many;
	size_t i; /* its number for the caller */
	struct read_target r;
	struct grid grid;
	struct grid_box box;   /* all of it */
	struct grid_part next; /* the part that is planned next, when there are more */
	bool is_open, more;
	size_t item, out_item;
	struct many_job *job; /* of this round */
	size_t n_jobs, cap_jobs, max_jobs;
	atomic_int failed;     /* negative errno */
	struct err_note *note; /* protected by many->lock */
};

/* How a chunk comes into the result. */
enum many_how {
	MANY_FILL,    /* it is not stored */
	MANY_RAW,     /* its bytes are read into the result */
	MANY_PIECES,  /* so are they, piece by piece: it is large, and has a checksum of them all */
	MANY_WHOLE,   /* its stored bytes are read, or in hand, and decoded at once */
	MANY_STREAM,  /* it is decoded piece by piece */
	MANY_FRONT,   /* so are the elements up to the last one of the part */
	MANY_THROUGH, /* through the cache, after the others */
};

/* A chunk on its way through a thread. */
struct many_work {
	struct many_job *job;
	struct grid_part part;
	enum many_how how;
	bool direct; /* WHOLE, STREAM: the decoded chunk is a run of the result as it is */
	bool all;    /* what is read begins with the value and has its tail */
	bool shown;  /* WHOLE: what is read are elements as we show them, from byte at on */
	uint64_t at; /* RAW, PIECES too: the first byte of the chunk that is read */
	size_t n;    /* bytes that are read */
	size_t need; /* WHOLE, FRONT: bytes of the decoded chunk up to the last one of the part */
	uint8_t *in; /* WHOLE: the bytes */
	int req;     /* its request; -1: none */
	uint64_t reported; /* bytes of the result that `done` counts already */
};

#define MANY_BATCH 64

struct many_batch {
	struct many_work work[MANY_BATCH];
	struct io_req req[MANY_BATCH];
	unsigned n, n_req;
	uint8_t *buf; /* of n_buf bytes: what is read for WHOLE */
	size_t n_buf;
};

/* A thread at work. */
struct many_worker {
	struct pool_job job;
	struct many *many;
	bool is_caller, ended;
	struct many_batch *batch[2];
	uint8_t *scratch; /* of n_scratch bytes: a decoded chunk */
	size_t n_scratch;
};

struct many {
	struct zarr_env *env;
	const struct read_many_ops *ops;
	void *arg;
	atomic_ullong done;      /* bytes of results */
	atomic_ullong in_hand;   /* bytes of stored values that jobs of this round hold */
	atomic_bool stop;        /* nothing new is begun */
	struct err_note stopped; /* why; by the caller */
	int64_t reported_at;     /* when progress was called last; the caller's */

	struct many_target *target; /* READ_MANY_ARRAYS at most */
	size_t n_targets;

	/* One round. */
	uint64_t batch_bytes, big_bytes; /* of one batch; of a chunk that is decoded at once */
	unsigned workers;
	struct many_job **order;
	size_t n_jobs;
	pthread_mutex_t lock; /* protects what follows, notes of targets, and `ended` of workers */
	pthread_cond_t ended;
	size_t next;   /* of order */
	uint64_t left; /* stored bytes of those */
};

/* ---- read_many.c ---- */

/* Remember the first failure of a target, with the thread's note. */
void many_fail(struct many_target *t, int r);
static inline bool many_is_off(const struct many_target *t)
{
	return atomic_load_explicit(&t->failed, memory_order_relaxed) ||
	       atomic_load_explicit(&t->many->stop, memory_order_relaxed);
}
/* The result of a read: an error with its note when it is not all of the bytes. */
int many_read_result(const struct io_req *q);
/* By the calling thread now and then: tell of progress, and stop when that says so. */
void many_tell(struct many *m);

/* ---- read_many_plan.c ---- */

/* pool_fn of a struct many_target *: its next jobs, at most max_jobs. */
int many_plan(void *target);
/* The chunk's place in the grid, and the part of the view that it holds. */
void many_part(const struct many_target *t, uint64_t number, uint64_t *ret_index,
	       struct grid_part *ret);
/* Trailing axes that are one run in the chunk and in the result, and its elements. */
unsigned many_run(const struct many_target *t, const struct grid_part *p, uint64_t *ret_elements);
/* Where the first element of a part goes. */
uint8_t *many_place(const struct many_target *t, const struct grid_part *p);
/* Release what the round's jobs hold. */
void many_jobs_release(struct many_target *t);

/* ---- read_many_chunk.c ---- */

/* Decide how; sets all but in and req. */
void many_work_init(struct many *m, struct many_job *job, struct many_work *ret);
/* What was read is there: bring it into the result. */
int many_work_run(struct many_worker *w, struct many_work *k);
/* MANY_THROUGH: by the caller, when no budget is held. */
int many_through(struct many_job *job);
/* n bytes of elements, decoded: their bytes as we show them. */
void many_fix(const struct zarr *z, void *p, size_t n);
/* Elements of a part of a decoded chunk, whose byte `skip` is the first at `chunk`; NULL: zeros of
 * padding, or the fill value. */
void many_copy(const struct many_target *t, const struct grid_part *p, const uint8_t *chunk,
	       uint64_t skip);
/* Inside of a large chunk, `done` bytes of which are there: the caller tells of progress, and
 * whoever decodes stops when it is to. */
int many_go_on(struct many_worker *w, struct many_work *k, uint64_t done);
/* Context for a failure: the chunk, and where it is stored. */
int many_at(const struct many_job *job, int r);

/* ---- read_many_raw.c ---- */

/* MANY_RAW: what was read is there; compare its checksum. */
int many_run_raw(struct many_work *k);
/* MANY_PIECES: read it, too. */
int many_run_pieces(struct many_worker *w, struct many_work *k);

#endif
