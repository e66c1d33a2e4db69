/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_impl.h - a stream and the table of streams; shared by stream.c and stream_*.c only.
 */
#ifndef PYTREEFS_STREAM_IMPL_H
#define PYTREEFS_STREAM_IMPL_H

#include <pthread.h>

#include "core/base/blocks.h"
#include "core/base/budget.h"
#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/zarr/stream.h"

#define STREAM_INPUT_BYTES ((size_t)512 << 10)
/* The most to read at once from a server, where each read takes a round trip. */
#define STREAM_REMOTE_BYTES ((size_t)4 << 20)

#define STREAM_WINDOW_USUAL ((uint64_t)2 * MiB) /* history of frames of the usual levels */

#define STREAM_WAITS 16

/* How pieces are decoded: one after the other, or independently (stream_blocks.c). */
enum stream_way { WAY_UNKNOWN, WAY_OPENING, WAY_IN_ORDER, WAY_BLOCKS };

struct piece_sum {
	uint32_t crc; /* of the stored bytes */
	bool known;
};

struct stream {
	/* in the table, most recently used first; protected by the table's lock */
	struct stream *next;
	unsigned holds; /* protected by the table's lock */
	struct streams *table;
	struct zarr *z;          /* a reference */
	uint64_t owner, number;  /* z->owner, z->tag and number are the key */
	struct chunk_source src; /* immutable */
	uint64_t bytes, pieces;  /* size and number of pieces when decoded */

	pthread_mutex_t lock; /* protects everything below except the driver's members */
	/* indexed by the piece that is waited for, so that few threads wake for each */
	pthread_cond_t moved[STREAM_WAITS];
	bool driving, job_posted;
	struct zarr_guess *guess; /* a reference; NULL when a reader has come, or without a guess */
	unsigned behind;    /* number of readers that wait for a piece that the driver has passed */
	uint64_t pos, want; /* next piece to decode; a job stops after want */
	uint64_t spilled;
	bool may_spill;         /* a reader has jumped, so a spill file is allowed */
	bool second_pass;       /* all was decoded, and a reader began again at the first piece */
	struct err_note failed; /* the bytes are damaged; code 0: they are not */
	_Atomic int64_t
		failed_at; /* time (clock_ns()) of the last failure to read or decode; 0: none */

	/*
	 * an earlier stream of this chunk failed, so the whole value is compared first; immutable
	 */
	bool suspect;
	enum stream_way way;
	struct codec_blocks *blocks; /* WAY_BLOCKS: immutable */
	struct piece_sum *sums;      /* for each piece; NULL: the value has no checksum */
	uint64_t summed;             /* number of known ones */
	uint32_t head_crc;           /* of the bytes before the blocks */
	/* WAY_BLOCKS: pieces before these were queued, for readers and for guesses */
	uint64_t ahead[2];

	/* The driver's members. When no thread drives, they belong to a holder of both locks. */
	struct codec_stream *decoder;
	struct cache_entry *before; /* held: the previous piece, while the decoder needs it */
	uint64_t reserved;          /* bytes of `decoders` that this stream has taken */
	struct chunk_input input;   /* of the decoder */
	uint64_t filled;            /* end of the bytes that were brought into the page cache */
	struct io_file *spill;      /* any thread may read it once spilled > 0 */

	struct pool_job job;

	uint64_t fetch_to;      /* stored bytes before it were claimed; protected by the lock */
	atomic_ullong input_at; /* stored bytes that the decoder has, or is reading */
};

struct streams {
	pthread_mutex_t lock; /* protects all below */
	struct stream *first;
	unsigned n;
	char *spill_dir;
	struct streams_user *users, **users_end;
	unsigned n_users;
	uint64_t window_limit;  /* immutable */
	struct budget decoders; /* memory; those that nobody drives are reclaimed */
	/* bytes of all temporary files, including those of other users; idle ones are reclaimed */
	struct budget spill;
	atomic_ullong restarts, spill_reads;
};

static inline size_t piece_size(const struct stream *s, uint64_t piece)
{
	return (size_t)MIN((uint64_t)STREAM_PIECE_BYTES, s->bytes - piece * STREAM_PIECE_BYTES);
}

/* Whether the cache has the piece, or some thread is filling it. */
static inline bool stream_piece_is_there(const struct stream *s, uint64_t piece)
{
	struct cache_key key = stream_piece_key(s->z, s->number, piece);

	return cache_has(s->z->env->cache, &key, CACHE_READY_OR_BUSY);
}

static inline void piece_free_full(void *p)
{
	block_free(p, STREAM_PIECE_BYTES);
}

/*
 * stream_decoder.c: decoding from piece 0 on. Called by the driver; stream_decoder_free(), which
 * does not return the decoder's room, also by a holder of both locks or at the end.
 */
int stream_decoder_open(struct stream *s);
/* Decode the next piece to p. */
int stream_decoder_read(struct stream *s, void *p, size_t n);
/* The piece that was read last is in this pinned entry: hold it if the decoder refers to it. */
void stream_decoder_retain(struct stream *s, struct cache_entry *e);
void stream_decoder_close(struct stream *s);
void stream_decoder_free(struct stream *s);
/* stream_fetch.c: whether the stored bytes are fetched ahead of the decoder. */
bool stream_is_fetched(const struct stream *s);
/*
 * Claim the stored bytes that are needed to decode pieces up to `last`, from *ret_from to the
 * result. The caller passes both to stream_fetch_post(), without the lock. Called with the lock
 * held.
 */
uint64_t stream_fetch_claim(struct stream *s, uint64_t last, uint64_t *ret_from);
void stream_fetch_post(struct stream *s, uint64_t from, uint64_t to, struct zarr_guess *guess);
/* Called by the driver: how many of n stored bytes from `at` on were fetched; p has them. */
size_t stream_fetch_take(struct stream *s, uint64_t at, uint8_t *p, size_t n);
/* stream_blocks.c: whether pieces are decoded independently. Opens the blocks the first time. */
int stream_has_blocks(struct stream *s);
/* The error of a chunk that is known to be damaged: pieces in the cache are refused, too. */
int stream_blocks_refuse(struct stream *s);
/*
 * Get such a piece. Returns 1 with the piece pinned; 0 when pieces must be decoded in order after
 * all.
 */
int stream_blocks_piece(struct stream *s, uint64_t piece, struct cache_entry **ret);
/* Let jobs of the pool decode pieces first to last. */
void stream_blocks_ahead(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess);
/* stream_spill.c: close a temporary file that nobody uses, to reclaim its bytes. arg: the table. */
bool stream_spill_reclaim(void *arg);
/*
 * stream_table.c: move a stream that is not held from the table to the list out. Called with the
 * table's lock held; the caller frees the list without it.
 */
void stream_table_remove(struct streams *t, struct stream **at, struct stream **out);
void stream_free_all(struct stream *s);
/* Add a holder to a stream that is held. */
void stream_hold(struct stream *s);
/*
 * Let a job of the pool call work() for pieces first to last, ahead of a reader, with a hold on the
 * stream. It is not called when the guess is over, or takes memory that readers need.
 */
typedef void stream_work_fn(struct stream *s, uint64_t first, uint64_t last, bool is_guess);
void stream_post(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess,
		 stream_work_fn *work);
/*
 * Reserve memory for a decoder with that much history. Called by the driver, which has no decoder;
 * waits while others decode. After opening, stream_room_shrink() returns what the decoder does not
 * need, and the rest when it closes.
 */
void stream_room_take(struct stream *s, uint64_t window);
void stream_room_shrink(struct stream *s, uint64_t bytes);
/* Whether there is so much room that readers do not need what a guess takes. */
bool stream_room_is_ample(struct streams *t, uint64_t window);
/* stream.c */
void stream_job_run(struct pool_job *job);

#endif
