/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h - the bytes of an answer as a list of ranges, without copying
 * them.
 *
 * A read of a file in the mount is answered by a list of segments: memory that
 * is pinned in the cache, memory that the list owns, zeros, or a range of a
 * data file that the kernel can splice. The reply layer sends them as they are;
 * a tool copies them out.
 */
#ifndef PYTREEFS_SEGMENTS_H
#define PYTREEFS_SEGMENTS_H

#include "core/base/cache.h"
#include "core/io/io.h"

enum segment_kind { SEGMENT_MEM, SEGMENT_FILE };

struct segment {
	enum segment_kind kind;
	size_t n;
	const void *p;        /* SEGMENT_MEM */
	struct io_file *file; /* SEGMENT_FILE; counted */
	uint64_t off;
	struct cache_entry *pin; /* put at release; or NULL */
	void *own;               /* freed at release; or NULL */
	size_t own_n;            /* size of a block (blocks.h); 0: memory of malloc() */
};

#define SEGMENT_INLINE 6

struct segments {
	struct cache *cache; /* the cache of the pins; borrowed */
	struct segment *seg;
	size_t n, cap;
	uint64_t bytes; /* sum of the segments */
	size_t fence;   /* no segment is merged into one before this index */
	struct segment few[SEGMENT_INLINE];
};

void segments_init(struct segments *g, struct cache *cache);
/* Release all pins, files and memory; the list is then empty and usable again. */
void segments_release(struct segments *g);
#define auto_segments __attribute__((cleanup(segments_release))) struct segments

/*
 * Do not merge segments that are added from now on with earlier ones, so that the caller can trim
 * what it adds.
 */
static inline void segments_fence(struct segments *g)
{
	g->fence = g->n;
}

/* Each of these takes its resource, even on failure. */
int segments_add_pinned(struct segments *g, struct cache_entry *pin, const void *p, size_t n);
int segments_add_file(struct segments *g, struct io_file *file, uint64_t off, size_t n);
int segments_add_block(struct segments *g, void *block, size_t block_n, size_t n);
int segments_add_copy(struct segments *g, const void *p, size_t n);
int segments_add_zero(struct segments *g, size_t n);
/*
 * Add a copy of the part of `of` (whose first byte is at 0) that lies in [off, off + n); nothing
 * after its end.
 */
int segments_add_part(struct segments *g, struct span of, uint64_t off, size_t n);

/* Copy all bytes to p, which has room for g->bytes. File ranges are read in one batch. */
int segments_copy(const struct segments *g, void *p);
/* The number of pipe slots that the bytes take: one for each page that a segment touches. */
size_t segments_pages(const struct segments *g);
/*
 * Put all bytes into an empty pipe that has enough room, without copying them: file ranges as pages
 * of the page cache, and memory by reference, so that it must not change until the pipe has been
 * emptied or closed. Returns 1 when that is not possible; then copy them. After any result but 0
 * the pipe must be closed.
 */
int segments_splice(const struct segments *g, int pipe);

#endif
