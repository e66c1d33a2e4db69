/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_impl.h - a stream and the table of streams: shared by stream.c, stream_blocks.c,
 * stream_spill.c and stream_table.c only.
 */
#ifndef PYTREEFS_STREAM_IMPL_H
#define PYTREEFS_STREAM_IMPL_H

#include <pthread.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/zarr/spill.h"
#include "core/zarr/stream.h"

#define STREAM_INPUT_BYTES ((size_t)512 << 10)
/* The most at once from a server, where each read waits for a round trip. */
#define STREAM_REMOTE_BYTES ((size_t)4 << 20)

#define STREAM_WAITS 16

/* How its pieces are decoded: one after the other, or each alone (stream_blocks.c). */
enum stream_way { WAY_UNKNOWN, WAY_OPENING, WAY_IN_ORDER, WAY_BLOCKS };

struct piece_sum {
	uint32_t crc; /* of the stored bytes */
	bool known;
};

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

	bool suspect; /* one before it failed: the whole value is compared first; immutable */
	enum stream_way way;
	struct codec_blocks *blocks; /* WAY_BLOCKS: immutable */
	struct piece_sum *sums;      /* of each piece; NULL: the value has no checksum */
	uint64_t summed;             /* of them, known */
	uint32_t head_crc;           /* of what lies before the blocks */
	uint64_t ahead[2]; /* WAY_BLOCKS: pieces before it were posted, for readers and for guesses */

	/* The driver's own; while nobody drives, of who holds both locks. */
	struct codec_stream *decoder;
	uint64_t reserved; /* bytes of decoder_used that are this stream's */
	uint64_t fed;      /* stored bytes given to the decoder */
	uint32_t crc;      /* of those */
	uint64_t advised;  /* and those for which the kernel was asked to read ahead */
	uint8_t *input;
	size_t input_size;
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

static inline size_t piece_size(const struct stream *s, uint64_t piece)
{
	return (size_t)MIN((uint64_t)PIECE_BYTES, s->bytes - piece * PIECE_BYTES);
}

static inline void piece_free_full(void *p)
{
	block_free(p, PIECE_BYTES);
}

/* Stored elements -> elements as we show them. */
static inline void piece_fix(const struct stream *s, void *p, size_t n)
{
	const struct dtype_info *t = dtype_info(s->z->meta.dtype);

	if (s->z->leaf->big_endian)
		cast_swap(s->z->meta.dtype, p, n / t->size);
	cast_canonical(s->z->meta.dtype, p, n / t->size);
}

/* stream_blocks.c: whether its pieces are decoded each alone; opens it the first time. */
int stream_has_blocks(struct stream *s);
/* The error of a chunk that is known to be damaged: its pieces in the cache are refused, too. */
int stream_blocks_refuse(struct stream *s);
/* Such a piece: 1, pinned; 0: its pieces are decoded in order after all. */
int stream_blocks_piece(struct stream *s, uint64_t piece, struct cache_entry **ret);
/* Let jobs of the pool decode pieces first to last. */
void stream_blocks_ahead(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess);
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
