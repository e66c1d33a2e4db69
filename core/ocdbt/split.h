/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - where a node ends, as arithmetic alone. Private to build.c and its test.
 */
#ifndef PYTREEFS_OCDBT_SPLIT_H
#define PYTREEFS_OCDBT_SPLIT_H

#include "core/ocdbt/ocdbt.h"

/*
 * Entries of one level are offered in order, each with its estimated size, key included. A node
 * ends before an entry that it refuses, and after one that fills it:
 *
 *     split_begin()
 *     for each entry: if split_refuses(): write the node, split_end(), split_begin()
 *                     add it; if split_takes(): the same
 */
struct split {
	uint64_t max;              /* max_decoded_node_bytes; 0: no limit */
	uint64_t least;            /* entries of a node but the last: 1 in leaves, 2 above */
	uint64_t common;           /* bytes that all keys of the level begin with */
	uint64_t n, sum;           /* entries in no finished node, and their sizes */
	uint64_t node_n, node_sum; /* those of the node in the making */
	uint64_t target;           /* size that ends it */
};
void split_begin(struct split *s);
/* Whether the node ends before this entry. */
bool split_refuses(const struct split *s, uint64_t size);
/* Count the entry in; whether the node ends with it. */
bool split_takes(struct split *s, uint64_t size);
void split_end(struct split *s);

#endif
