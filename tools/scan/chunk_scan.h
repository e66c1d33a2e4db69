/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_scan.h - reads arrays chunk by chunk without the cache, for commands that read all of them
 * once.
 *
 * Data that is read once needs no pages of the cache: it is decoded into the buffer of the reader,
 * which stays in the cache of the processor.
 */
#ifndef PYTREEFS_CHUNK_SCAN_H
#define PYTREEFS_CHUNK_SCAN_H

#include "core/codec/codec.h"
#include "core/zarr/chunk.h"
#include "tools/scan/tiling.h"

#define SCAN_PIECE (256 * KiB) /* size of one read of stored bytes */
/* Limit of the window of a decoder, per thread; frames of the usual levels need less. */
#define SCAN_WINDOW (9 * MiB)

/* The state of a chunk that is being read; initially zeroed. Not thread-safe. */
struct chunk_scan {
	struct zarr *z; /* borrowed while there is a decoder */
	struct chunk c;
	struct chunk_input in;
	struct codec_stream *decoder;
	void *buf;
	uint64_t next; /* index in the chunk of the next element */
};

/*
 * Read one tile into buf, like zarr_read_into(). Tiles in the order of a tiling whose tasks are
 * chunks of z come directly from the decoder. Other tiles, and chunks that need a large window, are
 * read through the cache.
 */
int chunk_scan_read(struct chunk_scan *s, struct zarr *z, const struct tile *tile,
		    const struct zarr_view *view, void *buf);
void chunk_scan_release(struct chunk_scan *s);
#define auto_chunk_scan __attribute__((cleanup(chunk_scan_release))) struct chunk_scan

#endif
