/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_scan.h - arrays read chunk by chunk past the cache, for who goes through all of them once.
 *
 * What nobody reads again needs no pages of its own: it is decoded into the buffer of its reader,
 * which stays in the processor's own cache.
 */
#ifndef PYTREEFS_CHUNK_SCAN_H
#define PYTREEFS_CHUNK_SCAN_H

#include "core/codec/codec.h"
#include "core/zarr/chunk.h"
#include "tools/scan/tiling.h"

#define SCAN_PIECE (256 * KiB) /* of stored bytes that are read at a time */
/* A decoder of each thread may remember so much: frames of the usual levels need less. */
#define SCAN_WINDOW (9 * MiB)

/* The stored bytes of a located chunk, for codec_stream_open(). */
struct chunk_scan_input {
	const struct chunk *c; /* borrowed */
	void *buf;             /* of SCAN_PIECE; borrowed */
	uint64_t fed;
	uint32_t crc; /* of what was fed */
};
int chunk_scan_pull(void *arg, struct span *ret);

/* A chunk under way. Zeroed it is not one. Not thread-safe. */
struct chunk_scan {
	struct zarr *z; /* borrowed while there is a decoder */
	struct chunk c;
	struct chunk_scan_input in;
	struct codec_stream *decoder;
	void *buf;
	uint64_t next; /* number of the element that comes next in the chunk */
};

/*
 * One tile into buf, as zarr_read_into() does. Tiles in the order of a tiling whose tasks are
 * chunks of z come straight from the decoder; all others, and chunks that want a large window, by
 * way of the cache.
 */
int chunk_scan_read(struct chunk_scan *s, struct zarr *z, const struct tile *tile,
		    const struct zarr_view *view, void *buf);
void chunk_scan_release(struct chunk_scan *s);
#define auto_chunk_scan __attribute__((cleanup(chunk_scan_release))) struct chunk_scan

#endif
