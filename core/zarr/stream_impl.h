/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_impl.h - a stream and the table of streams: shared by stream.c and stream_table.c only.
 */
#ifndef PYTREEFS_STREAM_IMPL_H
#define PYTREEFS_STREAM_IMPL_H

#include <pthread.h>

#include "core/base/err.h"
#include "core/zarr/spill.h"
#include "core/zarr/stream.h"

#define STREAM_INPUT_BYTES ((size_t)512 << 10)

#define STREAM_WAITS 16

struct stream {
	struct stream *next; /* in the table, most recently used first; protected by its lock */
	unsigned holds;      /* protected by the table's lock */
	struct streams *table;
	struct zarr *z;         /* a reference */
	uint64_t owner, number; /* z->owner and z->tag with it make the key */
	struct kv_loc loc;      /* where the value is; immutable */
	uint64_t off, len;      /* the chunk's stored bytes inside it */
	uint64_t bytes, pieces; /* decoded */

	pthread_mutex_t lock;               /* protects all below but what the driver owns */
	pthread_cond_t moved[STREAM_WAITS]; /* by the piece that is waited for: few wake for each */
	bool driving, job_posted;
	struct zarr_guess *guess; /* a reference; NULL: readers have come, or nobody has */
	unsigned behind;          /* readers that wait for a piece that the driver has passed */
	uint64_t pos, want;       /* next piece to decode; a job stops after want */
	uint64_t spilled;
	bool may_spill;         /* a reader jumped, and there may be a spill file */
	bool second_pass;       /* all was decoded, and a reader began again at the first piece */
	struct err_note failed; /* the bytes are broken; code 0 when not */
	_Atomic int64_t
		failed_at; /* when reading or decoding failed the last time; clock_ns(), 0: never */

	/* The driver's own; while nobody drives, of who holds both locks. */
	struct codec_stream *decoder;
	uint64_t reserved; /* bytes of decoder_used that are this stream's */
	uint64_t fed;      /* stored bytes given to the decoder */
	uint32_t crc;      /* of those */
	uint64_t advised;  /* and those for which the kernel was asked to read ahead */
	uint8_t *input;
	struct spill *spill; /* readable by all once spilled > 0 */

	struct pool_job job;
};

struct streams {
	pthread_mutex_t lock; /* protects all below */
	struct stream *first;
	unsigned n;
	char *spill_dir;
	uint64_t spill_limit, spill_used; /* all temporary files, other users' included */
	struct streams_user *users, **users_end;
	unsigned n_users;
	uint64_t window_limit, decoder_limit; /* immutable */
	uint64_t decoder_used, decoder_peak;
	pthread_cond_t room; /* a decoder was closed, or a driver stopped */
	unsigned waiting;    /* for room */
	atomic_ullong restarts, spill_reads;
};

/* stream_spill.c: whether this chunk may have a spill file; its bytes are taken from the limit. */
bool stream_spill_reserve(struct stream *s);
void stream_spill_give_back(struct stream *s);
/* stream_table.c: takes one that nobody holds out. Called with the table's lock held; freed later,
 * without it. */
void stream_table_remove(struct streams *t, struct stream **at, struct stream **out);
void stream_free_all(struct stream *s);
/* One more holder of a stream that is held. */
void stream_hold(struct stream *s);
/*
 * Memory for a decoder with that much history, by the driver, which has none; waits while others
 * decode. After opening, what it does not need is given back; so is all of it when the decoder
 * closes.
 */
void stream_room_take(struct stream *s, uint64_t window);
void stream_room_shrink(struct stream *s, uint64_t bytes);
/* Whether there is so much that readers do not miss what a guess takes. */
bool stream_room_is_ample(struct streams *t, uint64_t window);
/* A driver has stopped: its decoder may be taken. Called without the stream's lock. */
void stream_room_wake(struct streams *t);
/* stream.c */
void stream_job_run(struct pool_job *job);
/* Does not give room back. */
void stream_decoder_free(struct stream *s);

#endif
