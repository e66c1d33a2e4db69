/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_digest.h - the SHA-256 of a leaf's value, and the leaf's name in `.sha256sums`.
 *
 * The digest covers the bytes of LEAF.bin in a mount: the elements of an array or number in C
 * order, little-endian, without a header, or the bytes of a text. None, and values whose format
 * only a plugin knows, have no digest.
 */
#ifndef PYTREEFS_LEAF_DIGEST_H
#define PYTREEFS_LEAF_DIGEST_H

#include "core/tree/digests.h"
#include "handlers/leaf/leaf.h"

/* Append the name of a leaf below its item: "params/w.bin". */
int leaf_digest_name(const struct tree_node *leaf, struct buf *ret);
/*
 * Compute the digest of a value. Returns 1, or 0 when a value of this kind has none. Reads the
 * whole value, piece by piece. Any thread may call it.
 */
int leaf_digest(const struct value *v, uint8_t ret[DIGEST_BYTES]);
/*
 * Look up the digest that the item's `.sha256sums` records for a leaf. Returns 1 and sets ret, or
 * 0: there is none, the file is damaged (which is logged), or the mount shows another tree than the
 * stored one.
 */
int leaf_digest_recorded(struct item *item, const struct tree_node *leaf,
			 uint8_t ret[DIGEST_BYTES]);

#endif
