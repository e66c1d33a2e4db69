/*
 * straight.h - arrays read chunk by chunk past the cache, for who goes through all of them once.
 *
 * What nobody reads again needs no pages of its own: it is decoded into the buffer of its reader, which
 * stays in the processor's own cache.
 */
#ifndef PYTREEFS_STRAIGHT_H
#define PYTREEFS_STRAIGHT_H

#include "core/codec/codec.h"
#include "core/zarr/chunk.h"
#include "tools/tiling.h"

#define STRAIGHT_PIECE (256 * KiB)	/* of stored bytes that are read at a time */
/* A decoder of each thread may remember so much: frames of the usual levels need less. */
#define STRAIGHT_WINDOW (9 * MiB)

/* The stored bytes of a located chunk, for codec_stream_open(). */
struct straight_input {
	const struct chunk *c;		/* borrowed */
	void *buf;			/* of STRAIGHT_PIECE; borrowed */
	uint64_t fed;
};
int straight_pull(void *arg, struct span *ret);

/* A chunk under way. Zeroed it is none; of one thread. */
struct straight {
	struct zarr *z;			/* borrowed while there is a decoder */
	struct chunk c;
	struct straight_input in;
	struct codec_stream *decoder;
	void *buf;
	uint64_t next;			/* number of the element that comes next in the chunk */
};

/*
 * One tile into buf, as zarr_read_into() does. Tiles in the order of a tiling whose tasks are chunks of z
 * come straight from the decoder; all others, and chunks that want a large window, by way of the cache.
 */
int straight_read(struct straight *s, struct zarr *z, const struct tile *tile, const struct zarr_view *view,
		  void *buf);
void straight_release(struct straight *s);
#define auto_straight __attribute__((cleanup(straight_release))) struct straight

#endif
