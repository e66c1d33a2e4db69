/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_impl.h - the interface of a codec. Private to this folder.
 *
 * A codec is one file with one const struct codec_ops, and one line in the list CODECS below.
 * Decoding is written once, as a decoder stage that turns a pulled input into a read output. A
 * codec that is faster with whole objects has `decode` as well (zstd, blosc).
 */
#ifndef PYTREEFS_CODEC_IMPL_H
#define PYTREEFS_CODEC_IMPL_H

#include "core/codec/codec.h"

#define CODEC_SIZE_UNKNOWN UINT64_MAX
#define CODEC_CRC32C_BYTES 4

/* ---- decoding ---- */

/* A pulled input, and the rest of its current piece. */
struct codec_input {
	codec_pull_fn *pull;
	void *arg;        /* borrowed */
	struct span left; /* pulled and not consumed; borrowed */
	bool ended;
	uint64_t taken; /* bytes consumed so far */
};

/* Returns 1: left is not empty; 0: the input has ended; or an error. */
int codec_input_fill(struct codec_input *in);
/* Returns 1; an input that has ended is -EUCLEAN, naming the codec. */
int codec_input_need(struct codec_input *in, const char *codec);
void codec_input_skip(struct codec_input *in, size_t n);
/* Consume exactly n bytes; -EUCLEAN, naming the codec, when the input ends earlier. */
int codec_input_take(struct codec_input *in, void *p, size_t n, const char *codec);

struct decoder_stage;

struct decoder_stage_ops {
	/*
	 * Decode the next bytes, 1 to n. ret_n is 0 only at the end of the stream, which then has
	 * been checked. n is at least 1, and may split an element. Not called again after a
	 * failure.
	 */
	int (*read)(struct decoder_stage *s, uint8_t *p, size_t n, size_t *ret_n);
	/* The memory of the stage in bytes, including that of a library. */
	uint64_t (*memory)(const struct decoder_stage *s);
	void (*free)(struct decoder_stage *s);
};

struct decoder_stage {
	const struct decoder_stage_ops *ops; /* first member of every implementation */
	struct codec_input *in;              /* borrowed */
	/*
	 * Whether the stage, opened for a caller that retains what it reads, uses the bytes that
	 * the previous read returned. Then these are here for each read but the first, and a read
	 * returns all n bytes.
	 */
	bool needs_before;
	const uint8_t *before; /* borrowed */
};

/* ---- encoding ---- */

struct codec_sink {
	codec_sink_fn *fn;
	void *arg; /* borrowed */
};

struct encoder_stage;

struct encoder_stage_ops {
	/*
	 * Encode any number of bytes, which may split an element. Output goes to the sink at once
	 * or later.
	 */
	int (*push)(struct encoder_stage *p, struct span in);
	/*
	 * Send the rest of the output to the sink. The caller then finishes the stage that the sink
	 * belongs to.
	 */
	int (*finish)(struct encoder_stage *p);
	void (*free)(struct encoder_stage *p);
};

struct encoder_stage {
	const struct encoder_stage_ops *ops; /* first member of every implementation */
	struct codec_sink sink;
};

/* ---- a codec ---- */

struct codec_ops {
	const char *name; /* as spelled in the metadata */
	bool in_v2, in_v3;
	bool exact; /* nothing may follow its stream, not even in v3 */
	/*
	 * The size of the trailer (a checksum) that the codec adds to its unchanged input; 0 for a
	 * compressor. A codec with a trailer has strip_trailer and add_trailer, others have decode
	 * and encode.
	 */
	unsigned trailer;
	bool summed; /* every object of the codec has a checksum */
	/* whether an object with this head has one; NULL: `summed` decides */
	bool (*is_summed)(struct span head);
	/* whether the head of the object tells the size of its content; NULL: none does */
	bool (*declares_size)(struct span object);

	/*
	 * conf has the members. v2: the whole codec object, including "id"; v3: "configuration",
	 * NULL when absent.
	 */
	int (*parse)(const struct codec_ops *ops, const struct json *conf,
		     enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		     const struct codec **ret);
	/*
	 * Append the members in the order of their names, without spaces, as TensorStore writes
	 * them.
	 */
	int (*print)(const struct codec *c, enum codec_dialect dialect, struct buf *ret);

	/*
	 * Decode the object at the start of `in` to exactly n bytes; ret_used is its stored size.
	 * NULL: a decoder stage is used.
	 */
	int (*decode)(const struct codec *c, struct span in, void *out, size_t n, size_t *ret_used);
	/* Append the encoded object. NULL: an encoder stage is used. */
	int (*encode)(const struct codec *c, struct span in, struct buf *ret);
	/*
	 * Check and remove the trailer after n bytes, or at the end of `in` for CODEC_SIZE_UNKNOWN.
	 */
	int (*strip_trailer)(struct span in, uint64_t n, struct span *ret);
	/* Append the trailer for everything from offset `from` on. */
	int (*add_trailer)(struct buf *b, size_t from);

	/*
	 * decoded is the number of bytes that the stage will deliver; CODEC_SIZE_UNKNOWN when a
	 * compressor precedes it in the chain. window: see codec_stream_open(), as retained, which
	 * is 0 except for the first codec of a chain. May read the head of `in`.
	 */
	int (*open_decoder)(const struct codec *c, struct codec_input *in, uint64_t decoded,
			    uint64_t window, size_t retained, struct decoder_stage **ret);
	/*
	 * total is the number of bytes to be pushed, or CODEC_SIZE_UNKNOWN as above. NULL: the
	 * codec cannot write piece by piece.
	 */
	int (*open_encoder)(const struct codec *c, uint64_t total, struct codec_sink sink,
			    struct encoder_stage **ret);
	bool encodes_slowly;      /* at any level: codec_encodes_slowly() */
	bool encoder_needs_total; /* it can be opened only with a known total */
};

struct codec {
	const struct codec_ops *ops; /* first member of every implementation */
};

/* One line per codec, in any order: codec_NAME is in codec_NAME.c or a related file. */
/* clang-format off */
#define CODECS(codec) \
	codec(zstd) \
	codec(blosc) \
	codec(gzip) \
	codec(zlib) \
	codec(bz2) \
	codec(crc32c)
/* clang-format on */

#define CODEC_DECLARE(name) extern const struct codec_ops codec_##name;
CODECS(CODEC_DECLARE)
#undef CODEC_DECLARE

/*
 * The size of the output for n bytes: known for a codec with a trailer, CODEC_SIZE_UNKNOWN for a
 * compressor.
 */
static inline uint64_t codec_size_after(const struct codec *c, uint64_t n)
{
	unsigned trailer = c->ops->trailer;

	if (n == CODEC_SIZE_UNKNOWN || !trailer || !add_fits(n, trailer, &n))
		return CODEC_SIZE_UNKNOWN;
	return n;
}

/* ---- members of a configuration ---- */

/* The first error is kept, so a configuration is checked once, after its last member. */
struct codec_conf {
	const struct json *members; /* NULL: none */
	const char *codec;          /* its name, for messages */
	int failed;                 /* -EUCLEAN, with a note */
};
/* A member that is not in names (NULL-terminated) is an error. */
struct codec_conf codec_conf_open(const struct json *members, const char *codec,
				  const char *const *names);
/*
 * Get an integer from min to max, or a string; `otherwise` when it is absent and not required, or
 * wrong.
 */
int64_t codec_conf_int(struct codec_conf *conf, const char *name, int64_t min, int64_t max,
		       bool required, int64_t otherwise);
struct span codec_conf_str(struct codec_conf *conf, const char *name, bool required,
			   struct span otherwise);

/* ---- decoding whole objects through stages; codec_stream.c ---- */

/*
 * Decode bytes in memory with the first `codecs` codecs of the chain to exactly n bytes. is_object:
 * `in` is the whole object, after which v3 ignores further bytes.
 */
int codec_decode_staged(const struct codec_chain *chain, unsigned codecs, bool is_object,
			struct span in, void *out, size_t n);

#endif
