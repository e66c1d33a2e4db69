/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_digest.h - the SHA-256 of a leaf's value, and the name that it has in `.sha256sums`.
 *
 * What is hashed is what LEAF.bin shows in a mount: the elements of an array or number in C order,
 * little-endian, without a header; the bytes of a text. None, and what only a plugin knows, have
 * no digest.
 */
#ifndef PYTREEFS_LEAF_DIGEST_H
#define PYTREEFS_LEAF_DIGEST_H

#include "core/tree/digests.h"
#include "handlers/leaf/leaf.h"

/* "params/w.bin", below the item; appended. */
int leaf_digest_name(const struct tree_node *leaf, struct buf *ret);
/* 1; 0: such a value has none. Reads all of it, piece by piece; any thread. */
int leaf_digest(const struct value *v, uint8_t ret[DIGEST_BYTES]);
/*
 * 1 and the digest that the item's `.sha256sums` records for a leaf; 0 when it has none, also when
 * the file is damaged, which the log says, or the item is shown as another tree than the stored
 * one.
 */
int leaf_digest_recorded(struct item *item, const struct tree_node *leaf,
			 uint8_t ret[DIGEST_BYTES]);

#endif
