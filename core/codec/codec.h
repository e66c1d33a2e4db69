/*
 * codec.h - bytes -> bytes: the compressors and checksums of a chunk.
 *
 * Byte order and axis order are no codecs here: they are a chunk's layout, and
 * zarr/ reads through strides instead of passing over the bytes once more.
 *
 * A codec and a chain are immutable after parsing and shared between threads.
 *
 * Each codec is one file with one struct codec_ops and one line in codec.c's
 * table.
 */
#ifndef PYTREEFS_CODEC_H
#define PYTREEFS_CODEC_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/limits.h"

enum codec_dialect {
	CODEC_V2,			/* {"id": ..., members beside it} */
	CODEC_V3,			/* {"name": ..., "configuration": {...}} */
};

struct codec;
struct codec_stream;

/* The next piece of a long input, borrowed until the next call; empty at its end. */
typedef int codec_pull_fn(void *arg, struct span *ret);

struct codec_ops {
	const char *name;		/* as spelled in the metadata, the same in both dialects */
	/* conf: the members (v2: the whole object; v3: "configuration", NULL when absent). */
	int (*parse)(const struct json *conf, enum codec_dialect dialect, size_t item_bytes,
		     struct arena *arena, const struct codec **ret);
	/* The whole of in -> at most cap bytes at out. Sets ret_n; -EUCLEAN when there would be more. */
	int (*decode)(const struct codec *c, enum codec_dialect dialect, struct span in, void *out,
		      size_t cap, size_t *ret_n);
	/* Appends. */
	int (*encode)(const struct codec *c, struct span in, struct buf *ret);
	/* How many decoded bytes in can give, for a codec that is not the last to be decoded; 0: unknown. */
	uint64_t (*decoded_size)(const struct codec *c, struct span in);
	/* A stream over pull; NULL: only whole objects. decoded: exact bytes to come, or UINT64_MAX. */
	int (*stream)(const struct codec *c, enum codec_dialect dialect, codec_pull_fn *pull, void *arg,
		      uint64_t decoded, struct codec_stream **ret);
	/* The metadata as we write it (one JSON object). */
	int (*print)(const struct codec *c, enum codec_dialect dialect, struct buf *ret);
};

struct codec {
	const struct codec_ops *ops;	/* first member of every implementation */
};

struct codec_chain {
	enum codec_dialect dialect;
	unsigned n;
	const struct codec *codec[LIMIT_CODECS];	/* in encoding order */
};

/*
 * Parse one codec object of the metadata into arena. -EOPNOTSUPP for an unknown one, naming it;
 * -EUCLEAN for wrong members (unknown members are refused, as TensorStore does).
 */
int codec_parse(const struct json *spec, enum codec_dialect dialect, size_t item_bytes,
		struct arena *arena, const struct codec **ret);
/* Known as a bytes -> bytes codec of v3 ("zstd", "gzip", "blosc", "crc32c"). */
bool codec_is_known(struct span name);
/* A zstd codec for writing. */
int codec_zstd_new(struct arena *arena, int level, const struct codec **ret);

/*
 * Decode a whole object to exactly n bytes. In v2 the object must end where its stream ends; in v3
 * bytes after a complete zstd frame, gzip member or checksum are ignored (as TensorStore does).
 * -EBADMSG for a checksum, -EUCLEAN otherwise.
 */
int codec_decode(const struct codec_chain *chain, struct span in, void *out, size_t n);
int codec_encode(const struct codec_chain *chain, struct span in, struct buf *ret);

/*
 * Decode a long object piece by piece in bounded memory. Every chain can be streamed that has a
 * streaming form for each codec; codec_can_stream() says so. decoded: exact size of the result.
 * window: most memory that a decoder may ask for its history; a frame that needs more is -EFBIG.
 */
bool codec_can_stream(const struct codec_chain *chain);
int codec_stream_open(const struct codec_chain *chain, codec_pull_fn *pull, void *arg, uint64_t decoded,
		      uint64_t window, struct codec_stream **ret);
/* The next n bytes exactly. The last read also checks that the stream ends there, checksums included. */
int codec_stream_read(struct codec_stream *s, void *p, size_t n);
/* Bytes of memory that the stream holds. */
uint64_t codec_stream_memory(const struct codec_stream *s);
/* Accepts NULL. */
void codec_stream_close(struct codec_stream *s);

/*
 * Streaming encode, for chunks too large to hold: push pieces, then finish. Output goes to sink as
 * it comes. total: exact number of bytes that will be pushed (a zstd frame declares it).
 */
typedef int codec_sink_fn(void *arg, struct span out);
struct codec_encoder;
int codec_encoder_open(const struct codec_chain *chain, uint64_t total, codec_sink_fn *sink, void *arg,
		       struct codec_encoder **ret);
int codec_encoder_push(struct codec_encoder *e, struct span in);
int codec_encoder_finish(struct codec_encoder *e);
void codec_encoder_close(struct codec_encoder *e);

DEFINE_AUTO(codec_stream, struct codec_stream, codec_stream_close);
DEFINE_AUTO(codec_encoder, struct codec_encoder, codec_encoder_close);

#endif
