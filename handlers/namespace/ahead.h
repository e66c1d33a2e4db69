/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - decode-ahead across the leaves of an item: who reads leaves one after the other finds
 * the next ones decoded.
 *
 * Who reads a leaf in order tells when it has begun. Each reader (a thread of a program), and all
 * of them together (a pool of threads that share the work), are followed in each of the orders of
 * leaf_order.h by a cursor. A cursor that was moved to the next leaf AHEAD_HITS times in a row is
 * trusted: the leaves that come next in its order are guesses (core/zarr/guess.h), of which as many
 * are decoded as the window holds. A guess ends when its leaf is begun, or when no trusted cursor
 * expects it any more: then nothing more of it is decoded, and what was, is the first to leave the
 * cache.
 *
 * The window is a quarter of the cache, no more than a quarter of read_budget, and no more than
 * keeps the threads busy, in decoded bytes that nobody has asked for. Less than AHEAD_LEAST:
 * nothing is guessed, since memory is short.
 *
 * A leaf of less than AHEAD_SMALL moves cursors, and nothing is guessed after it: decoding it takes
 * no longer than asking for it, and a program that copies a step reads just its numbers.
 *
 * Readers that follow others take what those had decoded from the cache, as long as it is
 * there. So that it is, what all have read to its end leaves the cache first (ahead_passed()).
 *
 * A guess is a hint: what goes wrong is met again, and told, by who reads the leaf.
 */
#ifndef PYTREEFS_AHEAD_H
#define PYTREEFS_AHEAD_H

#include "core/step/item.h"

#define AHEAD_HITS 2
#define AHEAD_LEAST (8 * MiB)
#define AHEAD_SMALL (128 * KiB)

struct ahead;

/* Decoded bytes that may be ahead of all readers now; 0 when memory is short. */
uint64_t ahead_window(const struct ckpt *c);

/* Of one item, which is counted as long as there are jobs. */
int ahead_new(struct item *item, struct ahead **ret);
/* All guesses end; jobs that are under way free the rest. Accepts NULL. */
void ahead_free(struct ahead *a);
/* A reader in order (file.reader) has begun with a leaf, whose file has so many bytes. Any thread. */
void ahead_begun(struct ahead *a, uint32_t reader, const struct tree_node *leaf, uint64_t bytes);
/* Whether several readers are under way that read the same leaves. */
bool ahead_is_shared(const struct ahead *a);
/*
 * It has read the leaf to its end. True when several readers are under way and all of them have:
 * then what was decoded of it is of no use to those who follow.
 */
bool ahead_passed(struct ahead *a, uint32_t reader, const struct tree_node *leaf);

#endif
