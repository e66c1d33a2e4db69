/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - decode-ahead across the leaves of an item: a program that reads leaf after leaf finds
 * the next ones decoded.
 *
 * A sequential reader of a leaf reports when it has begun it. A cursor follows each reader (a
 * thread of a program), and another one all readers together (a pool of threads that share the
 * work), in each of the orders of leaf_order.h. A cursor that moved to the next leaf AHEAD_HITS
 * times in a row is trusted: the leaves that come next in its order are guesses
 * (core/zarr/guess.h), and as many of them are decoded as fit the window. A guess ends when its
 * leaf is begun, or when no trusted cursor expects it any more: then no more of it is decoded, and
 * its decoded chunks are the first to leave the cache.
 *
 * The window limits the decoded bytes that no program has requested yet: a quarter of the cache,
 * but not more than a quarter of read_budget, nor than keeps the threads busy. If it is smaller
 * than AHEAD_LEAST, memory is short, and nothing is guessed. A file in memory is not in the cache
 * and has a limit of its own; it takes the part of the window that keeps one thread busy.
 *
 * In a store (core/io/io_store.h) each leaf that was not fetched ahead costs round trips. There an
 * eighth of the window is used after the first leaf of a reader, and half of it after the second.
 * After two jumps of a reader nothing more is guessed in this way.
 *
 * A leaf smaller than AHEAD_SMALL moves cursors, but nothing is guessed after it: decoding it takes
 * no longer than requesting it, and a program that copies a step reads only its numbers.
 *
 * Where the kernel can read files by itself, a leaf of MEMORY_FILE_LEAST to MEMORY_FILE_MOST bytes
 * is decoded into a file in memory (memory_files.h), all of it by one thread, if the reader has
 * read leaves to their ends. open() waits until it is complete.
 *
 * Errors of a guess are ignored: the program that reads the leaf gets them.
 */
#ifndef PYTREEFS_AHEAD_H
#define PYTREEFS_AHEAD_H

#include "core/step/item.h"
#include "handlers/format/format.h"
#include "handlers/namespace/memory_files.h"

#define AHEAD_HITS 2
#define AHEAD_LEAST (8 * MiB)
#define AHEAD_SMALL (128 * KiB)

struct ahead;

/*
 * Returns the number of decoded bytes that may be ahead of all readers now; 0 when memory is short.
 */
uint64_t ahead_window(const struct ckpt *c);

/*
 * Make the decode-ahead of an item. Jobs hold a reference to the item. memory: NULL, or where
 * leaves may be decoded to; it is used until ahead_free(), and by jobs that the pool still has.
 */
int ahead_new(struct item *item, struct memory_files *memory, struct ahead **ret);
/* The same `memory`, before the first reader. Accepts NULL. */
void ahead_use_memory(struct ahead *a, struct memory_files *memory);
/* End all guesses. Jobs in progress free the rest. Accepts NULL. */
void ahead_free(struct ahead *a);
/* Decode the first n bytes of a leaf, for no reader in particular. Any thread may call this. */
void ahead_leaf(struct ahead *a, const struct tree_node *leaf, uint64_t n);
/* The form in which leaves are decoded that a reader is expected to read. */
enum ahead_how {
	AHEAD_CHUNKS, /* chunks, into the cache */
	AHEAD_FILES,  /* files in memory, as far as leaves may be there, if it reads leaves whole */
	AHEAD_IN_FILES /* the same; it has begun a leaf that is in memory */
};
/*
 * A sequential reader (file.reader) has begun a leaf, whose file has `bytes` bytes. Any thread may
 * call this.
 */
void ahead_begun(struct ahead *a, uint32_t reader, const struct tree_node *leaf, uint64_t bytes,
		 enum ahead_how how);
/*
 * It has read the leaf to its end by requests. Only such a reader is expected to want whole leaves
 * in memory: another one may read headers, or parts.
 */
void ahead_ended(struct ahead *a, uint32_t reader, const struct tree_node *leaf);

/* Whether the format of a leaf may be a file in memory: .npy of a whole array, of a size for it. */
bool ahead_is_for_memory(const struct format *f);
/*
 * A reader opens such a leaf. If it is in memory, or the reader was expected and reads leaves
 * whole, so that it is decoded into memory now, it counts as begun, and the result is its file,
 * with a reference. Else NULL. Any thread may call this.
 */
struct memory_file *ahead_open(struct ahead *a, uint32_t reader, const struct tree_node *leaf,
			       const struct format *f);
/*
 * A file of such a leaf is read by requests until ahead_closed(), so that one in memory would have
 * no reader. False: without memory for that, and ahead_closed() is not called.
 */
bool ahead_opened(struct ahead *a, const struct tree_node *leaf);
void ahead_closed(struct ahead *a, const struct tree_node *leaf);

#endif
