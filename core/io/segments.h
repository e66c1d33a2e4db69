/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.h - the bytes of an answer, wherever they lie, without copying them.
 *
 * A read of a file in the mount is answered by a list of segments: memory that
 * is pinned in the cache, memory of its own, zeros, or a range of a data file
 * that the kernel can splice. The reply layer sends them as they are; a tool
 * copies them out.
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
	struct cache_entry *pin; /* given back at release; or NULL */
	void *own;               /* freed at release; or NULL */
	size_t own_n;            /* a block of blocks.h of this size; 0: from malloc */
};

#define SEGMENT_INLINE 6

struct segments {
	struct cache *cache; /* where pins go back; borrowed */
	struct segment *seg;
	size_t n, cap;
	uint64_t bytes; /* sum of the segments */
	size_t fence;   /* nothing is merged into the segments before this one */
	struct segment few[SEGMENT_INLINE];
};

void segments_init(struct segments *g, struct cache *cache);
/* Gives back all pins, files and memory; the list is empty and usable again. */
void segments_release(struct segments *g);

/*
 * Segments that are added from now on are not merged with earlier ones, so that a caller can trim
 * what it added.
 */
static inline void segments_fence(struct segments *g)
{
	g->fence = g->n;
}

/* Each takes its resource whether it succeeds or not. */
int segments_add_pinned(struct segments *g, struct cache_entry *pin, const void *p, size_t n);
int segments_add_file(struct segments *g, struct io_file *file, uint64_t off, size_t n);
int segments_add_block(struct segments *g, void *block, size_t block_n, size_t n);
int segments_add_copy(struct segments *g, const void *p, size_t n);
int segments_add_zero(struct segments *g, size_t n);
/*
 * Copy the part of a text (which begins at 0) that lies in [off, off + n); nothing after its end.
 */
int segments_add_part(struct segments *g, struct span of, uint64_t off, size_t n);

/* All bytes into p, which has room for g->bytes; file ranges are read in one batch. */
int segments_copy(const struct segments *g, void *p);
/* How many slots of a pipe the bytes take: one for each page that a segment touches. */
size_t segments_pages(const struct segments *g);
/*
 * All bytes into an empty pipe that has the room, without copying them: file ranges as pages of the
 * page cache, memory as it is, so that it must stay until the pipe was emptied or closed. 1: not
 * possible here; copy them. After any result but 0 the pipe must be closed.
 */
int segments_splice(const struct segments *g, int pipe);

#endif
