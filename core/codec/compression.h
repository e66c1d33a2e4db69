/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compression.h - what the chunks of an array are compressed with, as options say it and as arrays
 * are created; and choosing it by a sample.
 */
#ifndef PYTREEFS_COMPRESSION_H
#define PYTREEFS_COMPRESSION_H

#include "core/codec/codec.h"

enum compression_kind {
	COMPRESSION_NONE,
	COMPRESSION_ZSTD,
	COMPRESSION_BLOSC,
	COMPRESSION_AUTO, /* by a sample: not a codec yet */
};

#define COMPRESSION_ORBAX INT32_MAX /* level of zstd: as Orbax has it, 1 in zarr v2 and 3 in v3 */

/* Plain data without padding. */
struct compression {
	int kind;  /* enum compression_kind */
	int level; /* of zstd, or of blosc's codec */
	/* Of blosc; 0 without. */
	int cname;         /* which codec: compression_cnames[] */
	int shuffle;       /* as in zarr v2: -1 by element size, 0 none, 1 bytes, 2 bits */
	uint64_t block;    /* bytes; 0: libblosc's own choice */
	uint64_t typesize; /* 0: the element's size */
	/* 1: a CRC-32C follows, by a codec of its own (zarr v3); also after kind NONE. */
	uint64_t summed;
};

/* blosc's codecs, as the metadata names them; NULL-terminated. */
extern const char *const compression_cnames[7];

/*
 * "none", "zstd", "zstd:LEVEL", "blosc", "blosc:CODEC:LEVEL:byte|bit|none" or a start of that,
 * "auto". -EINVAL, without a note.
 */
int compression_parse(const char *text, struct compression *ret);
/* Of another process: whether it is one of these, its words within bounds. */
bool compression_is_sound(const struct compression *c);
/* The text that parses to it; a block size of others is not in it. */
int compression_print(const struct compression *c, struct buf *ret);
/* The codec for elements of that size. -EINVAL: a level that it does not have, or no codec of that
 * name in this libblosc. */
int compression_codec(const struct compression *c, enum codec_dialect dialect, size_t item_bytes,
		      struct arena *arena, const struct codec **ret);
/* What a chain is, if it is one of these, or that and crc32c. */
bool compression_of(const struct codec_chain *chain, struct compression *ret);
/* blosc with our block size, and the defaults of "blosc". */
struct compression compression_blosc(void);
/* Whether a chunk of n bytes can be a blosc object. */
bool compression_blosc_fits(uint64_t n);

/* ---- auto ---- */

/*
 * Which bytes of an array's first `region` bytes are looked at: up to COMPRESSION_PIECES of them,
 * of piece_bytes each, together at most COMPRESSION_SAMPLE.
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
 * blosc where it saves 3 % of what zstd leaves, else zstd where that saves 3 %, else nothing, by
 * those bytes, one piece after the other. Elements of one byte have nothing to shuffle: for them
 * blosc is not tried, nor when may_blosc is not set.
 */
int compression_choose(struct span sample, size_t item_bytes, enum codec_dialect dialect,
		       bool may_blosc, struct compression *ret);
/* The same without a look at the bytes, for arrays that several write: by the type alone. */
struct compression compression_guess(bool is_float, size_t item_bytes);

#endif
