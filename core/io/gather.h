/*
 * gather.h - the bytes of an answer, wherever they lie, without copying them.
 *
 * A read of a file in the mount is answered by a list of segments: memory that
 * is pinned in the cache, memory of its own, zeros, or a range of a data file
 * that the kernel can splice. The reply layer sends them as they are; a tool
 * copies them out.
 */
#ifndef PYTREEFS_GATHER_H
#define PYTREEFS_GATHER_H

#include "core/base/cache.h"
#include "core/io/io.h"

enum gather_kind { GATHER_MEM, GATHER_FILE };

struct gather_seg {
	enum gather_kind kind;
	size_t n;
	const void *p;			/* GATHER_MEM */
	struct io_file *file;		/* GATHER_FILE; counted */
	uint64_t off;
	struct cache_entry *pin;	/* given back at release; or NULL */
	void *own;			/* freed at release; or NULL */
	size_t own_n;			/* a block of blocks.h of this size; 0: from malloc */
};

#define GATHER_INLINE 6

struct gather {
	struct cache *cache;		/* where pins go back; borrowed */
	struct gather_seg *seg;
	size_t n, cap;
	uint64_t bytes;			/* sum of the segments */
	size_t fence;			/* nothing is merged into the segments before this one */
	struct gather_seg few[GATHER_INLINE];
};

void gather_init(struct gather *g, struct cache *cache);
/* Gives back all pins, files and memory; the gather is empty and usable again. */
void gather_release(struct gather *g);

/* What is added from now on stays apart from what is there: for who trims what it added. */
static inline void gather_fence(struct gather *g)
{
	g->fence = g->n;
}

/* Each takes its resource whether it succeeds or not. */
int gather_add_pinned(struct gather *g, struct cache_entry *pin, const void *p, size_t n);
int gather_add_file(struct gather *g, struct io_file *file, uint64_t off, size_t n);
int gather_add_block(struct gather *g, void *block, size_t block_n, size_t n);
int gather_add_copy(struct gather *g, const void *p, size_t n);
int gather_add_zero(struct gather *g, size_t n);
/* What [off, off + n) has of a text that begins at 0, copied; nothing behind its end. */
int gather_add_part(struct gather *g, struct span of, uint64_t off, size_t n);

/* All bytes into p, which has room for g->bytes; file ranges are read in one batch. */
int gather_copy(const struct gather *g, void *p);

#endif
