/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc.h - what codec_blosc.c and codec_blosc_decoder.c share: a blosc object's header.
 */
#ifndef PYTREEFS_CODEC_BLOSC_H
#define PYTREEFS_CODEC_BLOSC_H

#include "core/codec/codec_impl.h"
#include "core/codec/compression.h"

#define BLOSC_HEAD_BYTES 16
#define BLOSC_NO_SPLIT 0x10 /* flag: blocks are not split */
#define BLOSC_SPLITS_MAX 16 /* format: a larger element is not split */

struct blosc_head {
	uint8_t bytes[BLOSC_HEAD_BYTES];
	uint32_t nbytes, blocksize, cbytes;
	uint32_t blocks; /* 0: stored as it is */
	uint32_t body;   /* where blocks may begin */
};

/* decoded: bytes that the object should have, or CODEC_SIZE_UNKNOWN. */
int blosc_head_parse(const uint8_t bytes[BLOSC_HEAD_BYTES], uint64_t decoded,
		     struct blosc_head *ret);
/* Where a block begins, from the index. */
int blosc_start_check(const struct blosc_head *h, uint32_t start);
/* Decoded bytes of block i, and the pieces that it is in. */
uint32_t blosc_block_bytes(const struct blosc_head *h, uint32_t i);
uint32_t blosc_block_splits(const struct blosc_head *h, uint32_t i);
/*
 * Most compressed bytes of a piece of n: an encoder stores what does not get smaller as it is, but
 * snappy's may get this much larger.
 */
uint32_t blosc_piece_most(uint32_t n);
/* The length in front of a piece of block i. */
int blosc_piece_check(const struct blosc_head *h, uint32_t i, uint32_t csize);
/* Most bytes of a block: its pieces and their lengths. */
uint32_t blosc_block_most(const struct blosc_head *h);
/* Block i, which lies within in: -ERANGE when it does not. */
int blosc_block_check(const struct blosc_head *h, uint32_t i, struct span in);
/* A whole object that has been checked, in blocks of that header -> exactly n bytes. */
int blosc_run(const struct blosc_head *h, const void *object, void *out, size_t n);

/* For compression.c: whether this libblosc has the codec; a codec for writing; and what one is. */
bool blosc_has(const char *cname);
int blosc_new(struct arena *arena, const struct compression *c, enum codec_dialect dialect,
	      size_t item_bytes, const struct codec **ret);
bool blosc_settings(const struct codec *c, struct compression *ret);

int blosc_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
		      uint64_t window, struct decoder_stage **ret);

#endif
