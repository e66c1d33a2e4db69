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

struct stream {
	struct stream *next;		/* in the table, most recently used first; protected by its lock */
	unsigned holds;			/* protected by the table's lock */
	struct streams *table;
	struct zarr *z;			/* a reference */
	uint64_t owner, number;		/* z->owner and z->tag with it make the key */
	struct kv_loc loc;		/* where the value is; immutable */
	uint64_t off, len;		/* the chunk's stored bytes inside it */
	uint64_t bytes, pieces;		/* decoded */

	pthread_mutex_t lock;		/* protects all below but what the driver owns */
	pthread_cond_t moved;
	bool driving, job_posted;
	uint64_t pos, want;		/* next piece to decode; a job stops behind want */
	uint64_t spilled;
	bool may_spill;			/* a reader jumped, and there may be a spill file */
	struct err_note failed;		/* sticky: the bytes are broken; code 0 when not */

	/* The driver's own. */
	struct codec_stream *decoder;
	uint64_t fed;			/* stored bytes given to the decoder */
	uint8_t *input;
	struct spill *spill;		/* readable by all once spilled > 0 */

	struct pool_job job;
};

struct streams {
	pthread_mutex_t lock;		/* protects all below */
	struct stream *first;
	unsigned n;
	char *spill_dir;
	uint64_t spill_limit, spill_used;
	uint64_t window_limit;
	struct streams_stats stats;
};

/* stream_table.c: whether this chunk may have a spill file; its bytes are taken from the limit. */
bool stream_spill_reserve(struct stream *s);
void stream_spill_give_back(struct stream *s);
/* One more holder of a stream that is held. */
void stream_hold(struct stream *s);
/* stream.c */
void stream_job_run(struct pool_job *job);
void stream_decoder_close(struct stream *s);

#endif
