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
 * than AHEAD_LEAST, memory is short, and nothing is guessed.
 *
 * In a store (core/io/io_store.h) each leaf that was not fetched ahead costs round trips. There an
 * eighth of the window is used after the first leaf of a reader, and half of it after the second.
 * After two jumps of a reader nothing more is guessed in this way.
 *
 * A leaf smaller than AHEAD_SMALL moves cursors, but nothing is guessed after it: decoding it takes
 * no longer than requesting it, and a program that copies a step reads only its numbers.
 *
 * Errors of a guess are ignored: the program that reads the leaf gets them.
 */
#ifndef PYTREEFS_AHEAD_H
#define PYTREEFS_AHEAD_H

#include "core/step/item.h"

#define AHEAD_HITS 2
#define AHEAD_LEAST (8 * MiB)
#define AHEAD_SMALL (128 * KiB)

struct ahead;

/*
 * Returns the number of decoded bytes that may be ahead of all readers now; 0 when memory is short.
 */
uint64_t ahead_window(const struct ckpt *c);

/* Make the decode-ahead of an item. Jobs hold a reference to the item. */
int ahead_new(struct item *item, struct ahead **ret);
/* End all guesses. Jobs in progress free the rest. Accepts NULL. */
void ahead_free(struct ahead *a);
/* Decode the first n bytes of a leaf, for no reader in particular. Any thread may call this. */
void ahead_leaf(struct ahead *a, const struct tree_node *leaf, uint64_t n);
/*
 * A sequential reader (file.reader) has begun a leaf, whose file has `bytes` bytes. Any thread may
 * call this.
 */
void ahead_begun(struct ahead *a, uint32_t reader, const struct tree_node *leaf, uint64_t bytes);

#endif
