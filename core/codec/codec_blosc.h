/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc.h - the header of a blosc object, for the codec_blosc*.c files.
 */
#ifndef PYTREEFS_CODEC_BLOSC_H
#define PYTREEFS_CODEC_BLOSC_H

#include "core/codec/codec_impl.h"
#include "core/codec/compression.h"

#define BLOSC_HEAD_BYTES 16
#define BLOSC_NO_SPLIT 0x10 /* flag: blocks are not split */
#define BLOSC_SPLITS_MAX 16 /* format: blocks of larger elements are not split */

struct blosc_head {
	uint8_t bytes[BLOSC_HEAD_BYTES];
	uint8_t flags, typesize;
	uint32_t nbytes, blocksize, cbytes;
	uint32_t blocks; /* 0: the bytes are stored uncompressed */
	uint32_t body;   /* lowest offset of a block */
};

/* decoded is the size that the object should have, or CODEC_SIZE_UNKNOWN. */
int blosc_head_parse(const uint8_t bytes[BLOSC_HEAD_BYTES], uint64_t decoded,
		     struct blosc_head *ret);
/* Check the offset of a block from the index. */
int blosc_start_check(const struct blosc_head *h, uint32_t start);
/* The number of decoded bytes of block i, and the number of its pieces. */
uint32_t blosc_block_bytes(const struct blosc_head *h, uint32_t i);
uint32_t blosc_block_splits(const struct blosc_head *h, uint32_t i);
/* Check the length in front of a piece of block i. */
int blosc_piece_check(const struct blosc_head *h, uint32_t i, uint32_t csize);
/* The largest stored size of a block: its pieces and their lengths. */
uint32_t blosc_block_most(const struct blosc_head *h);
/*
 * Put the header of an object of the k blocks from `first` on, which decode to n bytes and are
 * stored in so many. Their index and the blocks follow it.
 */
void blosc_head_put(const struct blosc_head *h, uint32_t first, uint32_t k, size_t n, size_t stored,
		    uint8_t *ret);
/* Check block i, which begins at in.p; -ERANGE when it is longer than in. */
int blosc_block_check(const struct blosc_head *h, uint32_t i, struct span in);
/*
 * Decode a whole object that has been checked, with blocks as in the header h, to exactly n bytes.
 */
int blosc_run(const struct blosc_head *h, const void *object, void *out, size_t n);

/*
 * For compression.c: whether this libblosc has the compressor; create a codec for writing; the
 * settings of a codec.
 */
bool blosc_has(const char *cname);
int blosc_new(struct arena *arena, const struct compression *c, enum codec_dialect dialect,
	      size_t item_bytes, const struct codec **ret);
bool blosc_settings(const struct codec *c, struct compression *ret);

/*
 * Append an object of shuffled bytes, encoded with zstd (codec_blosc_encoder.c). Returns 1; 0 when
 * libblosc has to do it.
 */
int blosc_encode_fast(struct span in, size_t item, uint64_t block, int level, struct buf *ret);
/* Compresses pieces without checksums, one after another (codec_zstd.c). */
struct zstd_pieces;
enum zstd_find {
	ZSTD_FIND_MATCHES, /* bytes that occurred before, as the level says */
	ZSTD_FIND_LETTERS, /* hardly more than frequent bytes: three times as fast */
};
int zstd_pieces_begin(int level, struct zstd_pieces **ret);
/* Returns the number of bytes; 0: it does not become as small as that. */
size_t zstd_piece(struct zstd_pieces *z, enum zstd_find find, struct span in, uint8_t *out,
		  size_t most);
void zstd_pieces_end(struct zstd_pieces *z);

int blosc_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
		      uint64_t window, size_t retained, struct decoder_stage **ret);

#endif
