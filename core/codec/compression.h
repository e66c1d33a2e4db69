/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compression.h - the compression of an array's chunks, as set by options and used for new arrays,
 * and its choice by a sample.
 */
#ifndef PYTREEFS_COMPRESSION_H
#define PYTREEFS_COMPRESSION_H

#include "core/codec/codec.h"

enum compression_kind {
	COMPRESSION_NONE,
	COMPRESSION_ZSTD,
	COMPRESSION_BLOSC,
	COMPRESSION_AUTO, /* chosen by a sample; no codec yet */
};

#define COMPRESSION_ORBAX INT32_MAX /* level of zstd that Orbax uses: 1 in zarr v2, 3 in v3 */

/* Plain data without padding. */
struct compression {
	int kind;  /* enum compression_kind */
	int level; /* of zstd, or of blosc's compressor */
	/* The following are for blosc; 0 otherwise. */
	int cname;         /* index in compression_cnames[] */
	int shuffle;       /* as in zarr v2: -1 by element size, 0 none, 1 bytes, 2 bits */
	uint64_t block;    /* block size in bytes; 0: libblosc chooses */
	uint64_t typesize; /* 0: the element size */
	/*
	 * 1: a crc32c codec follows, which adds a CRC-32C (zarr v3); possible with kind NONE, too.
	 */
	uint64_t summed;
};

/* The names of blosc's compressors in the metadata; NULL-terminated. */
extern const char *const compression_cnames[7];

/*
 * Parse "none", "zstd", "zstd:LEVEL", "blosc", "blosc:CODEC:LEVEL:byte|bit|none" or a start of
 * that, or "auto". -EINVAL, without a note.
 */
int compression_parse(const char *text, struct compression *ret);
/* Whether the members of a struct from another process are within bounds. */
bool compression_is_sound(const struct compression *c);
/* Append the text that parses to c; a block size that another program chose is not part of it. */
int compression_print(const struct compression *c, struct buf *ret);
/*
 * Create the codec for elements of that size. -EINVAL: a level that it does not have, or a
 * compressor that this libblosc does not have.
 */
int compression_codec(const struct compression *c, enum codec_dialect dialect, size_t item_bytes,
		      struct arena *arena, const struct codec **ret);
/*
 * Get the settings of a chain of one of these codecs, possibly with crc32c; false for other chains.
 */
bool compression_of(const struct codec_chain *chain, struct compression *ret);
/* The settings of "blosc", with our block size. */
struct compression compression_blosc(void);
/* Whether a chunk of n bytes can be a blosc object. */
bool compression_blosc_fits(uint64_t n);

/* ---- choice by a sample ---- */

/*
 * Select the sample from the first `region` bytes of an array: up to COMPRESSION_PIECES pieces of
 * piece_bytes each, at most COMPRESSION_SAMPLE in total.
 */
#define COMPRESSION_PIECES 4
#define COMPRESSION_SAMPLE (512 * KiB)
struct compression_sample {
	unsigned n;
	uint64_t at[COMPRESSION_PIECES];
	size_t piece_bytes;
};
void compression_sample(uint64_t region, size_t item_bytes, struct compression_sample *ret);
/*
 * Choose by the concatenated pieces of a sample: blosc when it saves 3 % over zstd, else zstd when
 * that saves 3 %, else no compression. blosc is not tried for elements of one byte, which cannot be
 * shuffled, nor without may_blosc.
 */
int compression_choose(struct span sample, size_t item_bytes, enum codec_dialect dialect,
		       bool may_blosc, struct compression *ret);
/* Choose by the element type alone, for arrays that several processes write. */
struct compression compression_guess(bool is_float, size_t item_bytes);

#endif
