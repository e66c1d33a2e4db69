/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_impl.h - what one codec implements. Private to this folder.
 *
 * A codec is one file with one const struct codec_ops and one line in the list
 * CODECS below. Decoding is written once, as a decoder stage that turns a
 * pulled input into a read output; a codec that is faster over whole objects has `decode` as
 * well (zstd, blosc).
 */
#ifndef PYTREEFS_CODEC_IMPL_H
#define PYTREEFS_CODEC_IMPL_H

#include "core/codec/codec.h"

#define CODEC_SIZE_UNKNOWN UINT64_MAX
#define CODEC_CRC32C_BYTES 4
#define WATCHED_BYTES (1 * MiB) /* decoded between two questions of a watch, about */

/* ---- decoding ---- */

/* A pulled input, with what is left of its current piece. */
struct codec_input {
	codec_pull_fn *pull;
	void *arg;        /* borrowed */
	struct span left; /* pulled and not yet taken; borrowed */
	bool ended;
	uint64_t taken; /* bytes taken so far */
};

/* 1: left is not empty; 0: the input has ended. */
int codec_input_fill(struct codec_input *in);
void codec_input_skip(struct codec_input *in, size_t n);
/* Exactly n bytes; -EUCLEAN when the input ends before, naming the codec. */
int codec_input_take(struct codec_input *in, void *p, size_t n, const char *codec);

struct decoder_stage;

struct decoder_stage_ops {
	/*
	 * The next bytes, 1 to n; ret_n is 0 only at the stream's end, which is checked by then. n
	 * is at least 1 and follows nothing: an element may be cut anywhere. Not called again after
	 * a failure.
	 */
	int (*read)(struct decoder_stage *s, uint8_t *p, size_t n, size_t *ret_n);
	/* Bytes that it holds, those of a library included. */
	uint64_t (*memory)(const struct decoder_stage *s);
	void (*free)(struct decoder_stage *s);
};

struct decoder_stage {
	const struct decoder_stage_ops *ops; /* first member of every implementation */
	struct codec_input *in;              /* borrowed */
};

/* ---- encoding ---- */

struct codec_sink {
	codec_sink_fn *fn;
	void *arg; /* borrowed */
};

struct encoder_stage;

struct encoder_stage_ops {
	/* Any number of bytes, cut anywhere; output goes to the sink at once or later. */
	int (*push)(struct encoder_stage *p, struct span in);
	/* The rest of the output. What the sink belongs to is finished after it, by the caller. */
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
	bool exact; /* nothing may follow it, in v3 either */
	/*
	 * Bytes of the trailer (a checksum) that it adds after its unchanged input; 0 for a
	 * compressor. Such a codec has strip_trailer and add_trailer, others decode and encode.
	 */
	unsigned trailer;
	bool summed;                         /* every object of it has a checksum */
	bool (*is_summed)(struct span head); /* this one has; NULL: as `summed` says */

	/*
	 * conf: the members (v2: the whole object, so "id" is among them; v3: "configuration", NULL
	 * when absent).
	 */
	int (*parse)(const struct codec_ops *ops, const struct json *conf,
		     enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		     const struct codec **ret);
	/* Members in the order of their names, without spaces: that is how TensorStore writes. */
	int (*print)(const struct codec *c, enum codec_dialect dialect, struct buf *ret);

	/*
	 * The head of in -> exactly n bytes; ret_used says where the codec's stream ends. NULL: by
	 * way of a decoder stage.
	 */
	int (*decode)(const struct codec *c, struct span in, void *out, size_t n, size_t *ret_used);
	/* The same up to byte `need` at least, of the n that there is room for; watch, which may be
	 * NULL, is asked on the way. NULL: all or none. */
	int (*decode_front)(const struct codec *c, struct span in, void *out, size_t n, size_t need,
			    const struct codec_watch *watch, size_t *ret_used);
	/* Appends. NULL: by way of an encoder stage. */
	int (*encode)(const struct codec *c, struct span in, struct buf *ret);
	/* Check and remove the trailer after n bytes, or (CODEC_SIZE_UNKNOWN) at the end of in. */
	int (*strip_trailer)(struct span in, uint64_t n, struct span *ret);
	/* Append the trailer of everything from `from` on. */
	int (*add_trailer)(struct buf *b, size_t from);

	/*
	 * decoded: bytes that the stage will give; CODEC_SIZE_UNKNOWN where a compressor stands
	 * before it in the chain. window: see codec_stream_open(). May read the head of in.
	 */
	int (*open_decoder)(const struct codec *c, struct codec_input *in, uint64_t decoded,
			    uint64_t window, struct decoder_stage **ret);
	/* total: bytes to be pushed, known as above. NULL: cannot be written in pieces. */
	int (*open_encoder)(const struct codec *c, uint64_t total, struct codec_sink sink,
			    struct encoder_stage **ret);
	bool encoder_needs_total; /* it is opened with a known total only */
};

struct codec {
	const struct codec_ops *ops; /* first member of every implementation */
};

/* A line for each, in no order that matters: codec_NAME is in codec_NAME.c, or beside a relative. */
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

/* Bytes that it makes of n: known of what adds a trailer, CODEC_SIZE_UNKNOWN after a compressor. */
static inline uint64_t codec_size_after(const struct codec *c, uint64_t n)
{
	unsigned trailer = c->ops->trailer;

	if (n == CODEC_SIZE_UNKNOWN || !trailer || !add_fits(n, trailer, &n))
		return CODEC_SIZE_UNKNOWN;
	return n;
}

/* ---- members of a configuration ---- */

/* -EUCLEAN for a member that is not among names (NULL-terminated). conf may be NULL. */
int codec_conf_only(const struct json *conf, const char *codec, const char *const *names);
/* An integer from min to max: 1 there, 0 absent, -EUCLEAN wrong or (required) absent. */
int codec_conf_int(const struct json *conf, const char *codec, const char *name, int64_t min,
		   int64_t max, bool required, int64_t *ret);
int codec_conf_str(const struct json *conf, const char *codec, const char *name, bool required,
		   struct span *ret);

/* ---- one-shot decoding by way of stages; codec_stream.c ---- */

/*
 * The first `codecs` of the chain, over bytes in memory, to exactly n bytes. is_object: in is the
 * whole object, after which v3 ignores bytes.
 */
int codec_decode_staged(const struct codec_chain *chain, unsigned codecs, bool is_object,
			struct span in, void *out, size_t n, const struct codec_watch *watch);
static inline int codec_watched(const struct codec_watch *watch, size_t done)
{
	return watch ? watch->fn(watch->arg, done) : 0;
}

#endif
