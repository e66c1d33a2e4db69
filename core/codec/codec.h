/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - bytes -> bytes: the compressors and checksums of a chunk.
 *
 * Byte order and axis order are not codecs here: they are a chunk's layout, and
 * zarr/ reads through strides instead of passing over the bytes once more.
 *
 * A codec and a chain are immutable after parsing and shared between threads; a
 * stream and an encoder belong to one thread at a time.
 *
 * Where an object ends (the verdicts are TensorStore 0.1.86's): the bytes that
 * one codec gives end exactly where the stream of the next one ends. Only after
 * the whole object, and only in v3, may more bytes follow a complete zstd frame,
 * gzip member or checksum of known place; they are ignored. A second frame or
 * member is never read.
 *
 * Nothing is allocated because compressed bytes say so, and no more is decoded
 * than was asked for.
 */
#ifndef PYTREEFS_CODEC_H
#define PYTREEFS_CODEC_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/limits.h"

enum codec_dialect {
	CODEC_V2, /* {"id": ..., members beside it} */
	CODEC_V3, /* {"name": ..., "configuration": {...}} */
};

struct codec;
struct codec_stream;
struct codec_encoder;

/* The next piece of a long input, borrowed until the next call; empty at its end. */
typedef int codec_pull_fn(void *arg, struct span *ret);
/* Takes the next piece of output. */
typedef int codec_sink_fn(void *arg, struct span out);

struct codec_chain {
	enum codec_dialect dialect;
	unsigned n;
	const struct codec *codec[LIMIT_CODECS]; /* in encoding order; borrowed */
};

/*
 * Parse one codec object of the metadata into arena. -EOPNOTSUPP for an unknown one, naming it;
 * -EUCLEAN for wrong members (unknown members are refused, as TensorStore does).
 * item_bytes: size of an array element, which blosc of v2 takes from the array.
 */
int codec_parse(const struct json *spec, enum codec_dialect dialect, size_t item_bytes,
		struct arena *arena, const struct codec **ret);
/* Known as a bytes -> bytes codec of v3 ("zstd", "gzip", "blosc", "crc32c"). */
bool codec_is_known(struct span name);
/* A zstd codec for writing. -EINVAL for a level that zstd does not have. */
#define CODEC_ZSTD_LEVEL_MIN (-131072) /* ZSTD_minCLevel() */
#define CODEC_ZSTD_LEVEL_MAX 22
int codec_zstd_new(struct arena *arena, int level, const struct codec **ret);
/* The metadata object, byte for byte as TensorStore writes it. Appends. */
int codec_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret);

/* Whether it is plain zstd, which any level decodes; and the level that it writes with. */
bool codec_zstd_level(const struct codec *c, int *ret);

/*
 * Whether damage to an object that begins so (CODEC_HEAD_BYTES, or all of it) is found by a checksum
 * in it: that of crc32c, gzip, zlib or bz2, or of a zstd frame whose header says that it has one.
 */
#define CODEC_HEAD_BYTES 5
bool codec_is_summed(const struct codec_chain *chain, struct span head);

/*
 * What the first CODEC_START_BYTES of an object (or all of it) of a chain of one zstd or blosc
 * codec, or that and crc32c, say: -EUCLEAN when they cannot be of one with `stored` bytes that
 * decodes to `decoded`.
 */
#define CODEC_START_BYTES 16
int codec_check_start(const struct codec_chain *chain, const uint8_t start[CODEC_START_BYTES],
		      uint64_t stored, uint64_t decoded);

/*
 * Decode a whole object to exactly n bytes. -EBADMSG for a checksum, -EUCLEAN for everything else
 * that is wrong with the object. out may be half written on failure.
 */
int codec_decode(const struct codec_chain *chain, struct span in, void *out, size_t n);
/* Asked while a large object is decoded, with the bytes of out that are there: an error ends it. */
struct codec_watch {
	int (*fn)(void *arg, size_t done);
	void *arg;
};
/*
 * Decode at least the first `need` bytes of an object of n into out, which has room for n. The
 * rest of a zstd frame is not decoded, so that only its form is checked; a frame that has a
 * checksum is decoded to its end. watch: asked after every MiB at most; NULL: nobody is.
 */
int codec_decode_front(const struct codec_chain *chain, struct span in, void *out, size_t n,
		       size_t need, const struct codec_watch *watch);
/* Appends; ret is as before on failure. -EFBIG: blosc cannot take 2 GiB or more. */
int codec_encode(const struct codec_chain *chain, struct span in, struct buf *ret);

/*
 * Decode a long object piece by piece in bounded memory. decoded: exact size of the result.
 *
 * window: most memory that a decoder may keep for what it looks back at: a zstd frame's window (or
 * content, when that is smaller), a blosc object's blocks. One that needs more is -EFBIG, naming
 * both numbers. The codecs whose memory is constant are not concerned: gzip and zlib 48 KiB,
 * bz2 4 MiB.
 *
 * Opening reads the head of the object, so that such an object is refused before anything is read
 * from the stream, and codec_stream_memory() is right from the start. Every chain can be streamed.
 */
int codec_stream_open(const struct codec_chain *chain, codec_pull_fn *pull, void *arg,
		      uint64_t decoded, uint64_t window, struct codec_stream **ret);
/*
 * The next n bytes exactly; -EINVAL for more than are left. The read that reaches the end also
 * checks that the stream ends there, checksums included. After a failure only closing is left:
 * every later read fails in the same way.
 */
int codec_stream_read(struct codec_stream *s, void *p, size_t n);
/* Bytes of memory that the stream holds. */
uint64_t codec_stream_memory(const struct codec_stream *s);
/* Accepts NULL. */
void codec_stream_close(struct codec_stream *s);

/*
 * Long objects any range of which is decoded from a part of their bytes, by many threads at once:
 * those of one blosc codec.
 */
struct codec_blocks;
/* Bytes [off, off + n) of the object. */
typedef int codec_read_fn(void *arg, uint64_t off, size_t n, void *p);
/* Whether an object of the chain may be one. */
bool codec_has_blocks(const struct codec_chain *chain);
/*
 * Reads the head of the object, whose length is `stored`: 1; or 0: its blocks are not in order, too
 * small or too large, so it is decoded as a stream. The index of blocks is charged to the meter.
 */
int codec_blocks_open(const struct codec_chain *chain, codec_read_fn *read, void *arg,
		      uint64_t stored, uint64_t decoded, struct codec_blocks **ret);
/* Length of that head; the blocks follow. */
size_t codec_blocks_head_bytes(const struct codec_blocks *b);
/* The stored bytes that [off, off + n) of the decoded ones come from; n is not 0. */
void codec_blocks_span(const struct codec_blocks *b, uint64_t off, size_t n, uint64_t *ret_at,
		       size_t *ret_n);
/*
 * Decode [off, off + n) from the in_n bytes of that span. They are overwritten, and so are
 * CODEC_BLOCKS_FRONT bytes in front of them. -ERANGE: a block has
 * bytes where another one is, so the object is decoded as a stream.
 */
#define CODEC_BLOCKS_FRONT 512
int codec_blocks_decode(const struct codec_blocks *b, uint64_t off, size_t n, uint8_t *in,
			size_t in_n, void *out);
/* Most memory that this takes, beside what it is given. */
uint64_t codec_blocks_memory(const struct codec_blocks *b);
/* Accepts NULL. */
void codec_blocks_close(struct codec_blocks *b);
DEFINE_AUTO(codec_blocks, struct codec_blocks, codec_blocks_close);

/* Whether codec_encoder_open() takes the chain. */
bool codec_writes_pieces(const struct codec_chain *chain);
/*
 * Streaming encode, for chunks too large to hold: push pieces, then finish. Output goes to sink as
 * it comes. total: exact number of bytes that will be pushed (a zstd frame declares it).
 *
 * -EOPNOTSUPP for what cannot be written piece by piece: blosc, whose header counts the compressed
 * bytes, and zstd after another compressor, since a frame must declare its content size.
 */
int codec_encoder_open(const struct codec_chain *chain, uint64_t total, codec_sink_fn *sink,
		       void *arg, struct codec_encoder **ret);
/* -EINVAL for more than the announced total; an error of the sink is passed on. */
int codec_encoder_push(struct codec_encoder *e, struct span in);
/* -EINVAL when less than the announced total was pushed. */
int codec_encoder_finish(struct codec_encoder *e);
/* Accepts NULL. */
void codec_encoder_close(struct codec_encoder *e);

DEFINE_AUTO(codec_stream, struct codec_stream, codec_stream_close);
DEFINE_AUTO(codec_encoder, struct codec_encoder, codec_encoder_close);

#endif
