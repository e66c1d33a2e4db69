/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - the arithmetic of where nodes end. Private to build.c and its test.
 */
#ifndef PYTREEFS_OCDBT_SPLIT_H
#define PYTREEFS_OCDBT_SPLIT_H

#include "core/ocdbt/ocdbt.h"

/*
 * Entries of one level are offered in order, each with its estimated size, including the key. A
 * node ends before an entry that it refuses, and after one that fills it:
 *
 *     split_begin()
 *     for each entry: if split_refuses(): write the node, split_end(), split_begin()
 *                     add it; if split_takes(): the same
 */
struct split {
	uint64_t max; /* max_decoded_node_bytes; 0: no limit */
	/* least number of entries of a node except the last: 1 in leaves, 2 above */
	uint64_t least;
	/* number of bytes that all keys of the level have in common at the start */
	uint64_t common;
	uint64_t n, sum;           /* entries that are in no finished node, and their total size */
	uint64_t node_n, node_sum; /* those of the current node */
	uint64_t target;           /* a node of this size ends */
};
void split_begin(struct split *s);
/* Whether the node ends before this entry. */
bool split_refuses(const struct split *s, uint64_t size);
/* Add the entry; returns whether the node ends after it. */
bool split_takes(struct split *s, uint64_t size);
void split_end(struct split *s);

#endif
