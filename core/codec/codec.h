/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - bytes -> bytes: the compressors and checksums of a chunk.
 *
 * Byte order and axis order are not codecs here: they are part of a chunk's layout, and zarr/ reads
 * through strides instead of copying the bytes once more.
 *
 * A codec and a chain are immutable after parsing and shared between threads. A stream and an
 * encoder belong to one thread at a time.
 *
 * Where an object ends (decided as TensorStore 0.1.86 does): the output of one codec ends exactly
 * where the stream of the next one ends. Only after the whole object, and only in v3, may more
 * bytes follow a complete zstd frame, gzip member or checksum at a known place; they are ignored. A
 * second frame or member is never read.
 *
 * No size in compressed bytes alone causes an allocation, and no more is decoded than was
 * requested.
 */
#ifndef PYTREEFS_CODEC_H
#define PYTREEFS_CODEC_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/limits.h"

enum codec_dialect {
	CODEC_V2, /* {"id": ..., with its members beside it} */
	CODEC_V3, /* {"name": ..., "configuration": {...}} */
};

struct codec;
struct codec_stream;
struct codec_encoder;

/* Set ret to the next piece of a long input, borrowed until the next call; empty at its end. */
typedef int codec_pull_fn(void *arg, struct span *ret);
/* Take the next piece of output. */
typedef int codec_sink_fn(void *arg, struct span out);

struct codec_chain {
	enum codec_dialect dialect;
	unsigned n;
	const struct codec *codec[LIMIT_CODECS]; /* in encoding order; borrowed */
};

/*
 * Parse one codec object of the metadata into arena. -EOPNOTSUPP for an unknown codec, naming it;
 * -EUCLEAN for wrong or unknown members, and for values of members that are not known, such as a
 * cname of blosc (TensorStore refuses these, too). item_bytes is the size of an array element,
 * which blosc of v2 takes from the array.
 */
int codec_parse(const struct json *spec, enum codec_dialect dialect, size_t item_bytes,
		struct arena *arena, const struct codec **ret);
/* Whether name is a bytes -> bytes codec of v3 ("zstd", "gzip", "blosc", "crc32c"). */
bool codec_is_known(struct span name);
/* Create a zstd codec for writing. -EINVAL for a level that zstd does not have. */
#define CODEC_ZSTD_LEVEL_MIN (-131072) /* ZSTD_minCLevel() */
#define CODEC_ZSTD_LEVEL_MAX 22
int codec_zstd_new(struct arena *arena, int level, const struct codec **ret);
/* Append the metadata object, byte for byte as TensorStore writes it. */
int codec_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret);
/* Append all of a chain as an array, with the separator between them: ",". */
int codec_print_chain(const struct codec_chain *chain, const char *separator, struct buf *ret);

/* Whether c is zstd, which decodes frames of any level; ret is the level that it writes with. */
bool codec_zstd_level(const struct codec *c, int *ret);

/*
 * Whether a checksum detects damage to an object that begins with head (CODEC_HEAD_BYTES, or the
 * whole object): that of crc32c, gzip, zlib or bz2, or of a zstd frame whose header declares one.
 */
#define CODEC_HEAD_BYTES 5
bool codec_is_summed(const struct codec_chain *chain, struct span head);

/*
 * Whether the head of a whole object tells how many bytes it decodes to, which decoders compare. Of
 * others only the end tells, so that what their beginning decodes to may be of another array.
 */
bool codec_declares_size(const struct codec_chain *chain, struct span object);

/*
 * Check the first CODEC_START_BYTES (or all) of an object of a chain of one zstd or blosc codec,
 * possibly with crc32c: -EUCLEAN when they cannot begin an object of `stored` bytes that decodes to
 * `decoded` bytes.
 */
#define CODEC_START_BYTES 16
int codec_check_start(const struct codec_chain *chain, const uint8_t start[CODEC_START_BYTES],
		      uint64_t stored, uint64_t decoded);

/*
 * Decode a whole object to exactly n bytes. -EBADMSG when a checksum does not match, -EUCLEAN for
 * all other faults of the object. On failure, out may be partly written.
 */
int codec_decode(const struct codec_chain *chain, struct span in, void *out, size_t n);
/*
 * Append the encoded object; on failure ret is unchanged. -EFBIG: blosc cannot take 2 GiB or more.
 */
int codec_encode(const struct codec_chain *chain, struct span in, struct buf *ret);

/*
 * Decode a long object piece by piece in bounded memory. decoded is the exact size of the result.
 *
 * retained, if not 0, says that the caller retains what it reads: every read but the last is of
 * that many bytes, what one read returned stays as it is until the next one has returned, and there
 * is memory for that many bytes, or up to the end of the object, where the last read is shorter. A
 * zstd frame whose history is at least 128 KiB shorter than that is then decoded directly into the
 * caller's memory, and needs none for history: a tenth less time to decode, as in the row "one zstd
 * chunk, dd".
 *
 * window is the most memory that a decoder may use for history: the window of a zstd frame (or its
 * content, when that is smaller), the blocks of a blosc object. An object that needs more is
 * refused with -EFBIG, naming both numbers. The other codecs need constant memory: gzip and zlib 48
 * KiB, bz2 4 MiB.
 *
 * Opening reads the head of the object, so an object that needs too much is refused before anything
 * else is read, and codec_stream_memory() is right from the start. Every chain can be streamed.
 */
int codec_stream_open(const struct codec_chain *chain, codec_pull_fn *pull, void *arg,
		      uint64_t decoded, uint64_t window, size_t retained,
		      struct codec_stream **ret);
/* Whether the stream uses what is retained. */
bool codec_stream_needs_before(const struct codec_stream *s);
/*
 * Read exactly the next n bytes; -EINVAL when fewer are left. before: the bytes of the previous
 * read, or a copy of them, for a stream that uses them; else ignored. The read that reaches the end
 * also checks that the stream ends there, checksums included. After a failure every later read
 * fails in the same way; then close the stream.
 */
int codec_stream_read(struct codec_stream *s, const void *before, void *p, size_t n);
/* The memory of the stream in bytes. */
uint64_t codec_stream_memory(const struct codec_stream *s);
/* Accepts NULL. */
void codec_stream_close(struct codec_stream *s);

/*
 * Long objects of one blosc codec: any range is decoded from a part of the stored bytes, by many
 * threads at once.
 */
struct codec_blocks;
/* Read bytes [off, off + n) of the stored object to p. */
typedef int codec_read_fn(void *arg, uint64_t off, size_t n, void *p);
/* Whether objects of the chain can be decoded by blocks. */
bool codec_has_blocks(const struct codec_chain *chain);
/*
 * Read the head of an object of `stored` bytes. Returns 1; or 0 when its blocks are not in order,
 * too small or too large, so that it must be decoded as a stream. The index of blocks is charged to
 * the meter.
 */
int codec_blocks_open(const struct codec_chain *chain, codec_read_fn *read, void *arg,
		      uint64_t stored, uint64_t decoded, struct codec_blocks **ret);
/* The length of that head; the blocks follow it. */
size_t codec_blocks_head_bytes(const struct codec_blocks *b);
/*
 * The range of stored bytes from which [off, off + n) of the decoded bytes is decoded; n is not 0.
 */
void codec_blocks_span(const struct codec_blocks *b, uint64_t off, size_t n, uint64_t *ret_at,
		       size_t *ret_n);
/*
 * Decode [off, off + n) from the in_n stored bytes of that range. These, and the CODEC_BLOCKS_FRONT
 * bytes before them, are overwritten. -ERANGE: a block extends into another one, so the object must
 * be decoded as a stream.
 */
#define CODEC_BLOCKS_FRONT 512
int codec_blocks_decode(const struct codec_blocks *b, uint64_t off, size_t n, uint8_t *in,
			size_t in_n, void *out);
/* The most memory that decoding needs, besides its arguments. */
uint64_t codec_blocks_memory(const struct codec_blocks *b);
/* Accepts NULL. */
void codec_blocks_close(struct codec_blocks *b);
DEFINE_AUTO(codec_blocks, struct codec_blocks, codec_blocks_close);

/*
 * Whether some 10 MiB may take a second to encode: what encodes a larger object should do it piece
 * by piece, to be able to stop.
 */
bool codec_encodes_slowly(const struct codec_chain *chain);
/* Whether codec_encoder_open() supports the chain. */
bool codec_writes_pieces(const struct codec_chain *chain);
/*
 * Encode a chunk that is too large to hold in memory: push pieces, then finish. Output goes to sink
 * as it is produced. total is the exact number of bytes that will be pushed (a zstd frame declares
 * it).
 *
 * -EOPNOTSUPP for chains that cannot be written piece by piece: blosc, whose header has the number
 * of compressed bytes, and zstd after another compressor, since a frame must declare its content
 * size.
 */
int codec_encoder_open(const struct codec_chain *chain, uint64_t total, codec_sink_fn *sink,
		       void *arg, struct codec_encoder **ret);
/* -EINVAL for more than the announced total. An error of the sink is returned. */
int codec_encoder_push(struct codec_encoder *e, struct span in);
/* -EINVAL when less than the announced total was pushed. */
int codec_encoder_finish(struct codec_encoder *e);
/* Accepts NULL. */
void codec_encoder_close(struct codec_encoder *e);

DEFINE_AUTO(codec_stream, struct codec_stream, codec_stream_close);
DEFINE_AUTO(codec_encoder, struct codec_encoder, codec_encoder_close);

#endif
