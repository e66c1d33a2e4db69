/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_level.c - the common part of bz2, gzip and zlib: their one setting, and the two stages
 * around their libraries.
 */
#include "core/codec/codec_level.h"

#include "core/base/err.h"

#define PART_MAX (1 * GiB)   /* bytes of one call; the libraries count in unsigned int */
#define OUT_BYTES (64 * KiB) /* buffer of an encoder stage */
#define LEVEL_V2 1           /* TensorStore's default where v2 omits it */

static const struct level_codec *level_codec_of(const struct codec *c)
{
	return (const struct level_codec *)c;
}

/* ---- metadata ---- */

int level_parse(const struct level_library *library, const struct codec_ops *ops,
		const struct json *conf, enum codec_dialect dialect, struct arena *arena,
		const struct codec **ret)
{
	static const char *const v2_names[] = { "id", "level", NULL };
	static const char *const v3_names[] = { "level", NULL };
	bool is_v3 = dialect == CODEC_V3;
	struct codec_conf c = codec_conf_open(conf, ops->name, is_v3 ? v3_names : v2_names);
	int64_t level = codec_conf_int(&c, "level", library->level_min, 9, is_v3, LEVEL_V2);
	struct level_codec *z;

	if (c.failed)
		return c.failed;
	z = arena_calloc(arena, 1, sizeof(*z));
	if (!z)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	*z = (struct level_codec){ { ops }, library, (int)level };
	*ret = &z->base;
	return 0;
}

int level_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	int level = level_codec_of(c)->level;

	if (dialect == CODEC_V2)
		return buf_addf(ret, "{\"id\":\"%s\",\"level\":%d}", c->ops->name, level);
	return buf_addf(ret, "{\"configuration\":{\"level\":%d},\"name\":\"%s\"}", level,
			c->ops->name);
}

/* ---- decoding ---- */

struct level_decoder {
	struct decoder_stage base;
	const struct level_codec *codec;
	uint64_t bytes; /* allocated by the library */
	bool ended;
	_Alignas(max_align_t) uint8_t state[];
};

static int level_decoder_read(struct decoder_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct level_decoder *d = (struct level_decoder *)base;
	unsigned room = (unsigned)MIN(n, (size_t)PART_MAX);
	struct level_window w = { .out = p, .out_n = room };

	while (!d->ended && w.out_n == room) {
		unsigned given = (unsigned)MIN(base->in->left.n, (size_t)PART_MAX);
		int r;

		w.in = base->in->left.p;
		w.in_n = given;
		r = d->codec->library->decode(d->codec, d->state, &w);
		codec_input_skip(base->in, given - w.in_n);
		if (r < 0)
			return r;
		d->ended = r > 0;
		/* More input is needed only after all decoded bytes have been returned. */
		if (!d->ended && w.out_n == room && !base->in->left.n) {
			r = codec_input_need(base->in, d->codec->base.ops->name);
			if (r < 0)
				return r;
		}
	}
	*ret_n = room - w.out_n;
	return 0;
}

static uint64_t level_decoder_memory(const struct decoder_stage *base)
{
	const struct level_decoder *d = (const struct level_decoder *)base;
	const struct level_library *library = d->codec->library;

	/* Most of it is allocated with the first bytes, but it counts from the start. */
	return sizeof(*d) + library->state_bytes + MAX(d->bytes, library->decoder_bytes);
}

static void level_decoder_free(struct decoder_stage *base)
{
	struct level_decoder *d = (struct level_decoder *)base;

	d->codec->library->close(false, d->state);
	free(d);
}

int level_open_decoder(const struct codec *c, struct codec_input *in, uint64_t decoded,
		       uint64_t window, size_t retained, struct decoder_stage **ret)
{
	static const struct decoder_stage_ops ops = { level_decoder_read, level_decoder_memory,
						      level_decoder_free };
	const struct level_codec *codec = level_codec_of(c);
	struct level_decoder *d = calloc(1, sizeof(*d) + codec->library->state_bytes);

	if (!d || !codec->library->open(codec, false, d->state, &d->bytes)) {
		free(d);
		return fail(-ENOMEM, "cannot decode %s: not enough memory", c->ops->name);
	}
	d->base = (struct decoder_stage){ &ops, in };
	d->codec = codec;
	*ret = &d->base;
	return 0;
}

/* ---- encoding ---- */

struct level_encoder {
	struct encoder_stage base;
	const struct level_library *library;
	uint8_t out[OUT_BYTES];
	_Alignas(max_align_t) uint8_t state[];
};

static int level_encoder_run(struct level_encoder *e, struct span in, bool finish)
{
	bool ended;

	do {
		unsigned given = (unsigned)MIN(in.n, (size_t)PART_MAX);
		struct level_window w = { in.p, given, e->out, OUT_BYTES };
		int r = 0;

		ended = e->library->encode(e->state, &w, finish);
		in = span_from(in, given - w.in_n);
		if (w.out_n < OUT_BYTES)
			r = e->base.sink.fn(e->base.sink.arg, span_of(e->out, OUT_BYTES - w.out_n));
		if (r < 0)
			return r;
	} while (finish ? !ended : in.n > 0);
	return 0;
}

static int encoder_push(struct encoder_stage *base, struct span in)
{
	return level_encoder_run((struct level_encoder *)base, in, false);
}

static int encoder_finish(struct encoder_stage *base)
{
	return level_encoder_run((struct level_encoder *)base, span_of(NULL, 0), true);
}

static void encoder_free(struct encoder_stage *base)
{
	struct level_encoder *e = (struct level_encoder *)base;

	e->library->close(true, e->state);
	free(e);
}

int level_open_encoder(const struct codec *c, uint64_t total, struct codec_sink sink,
		       struct encoder_stage **ret)
{
	static const struct encoder_stage_ops ops = { encoder_push, encoder_finish, encoder_free };
	const struct level_codec *codec = level_codec_of(c);
	struct level_encoder *e = calloc(1, sizeof(*e) + codec->library->state_bytes);

	if (!e || !codec->library->open(codec, true, e->state, NULL)) {
		free(e);
		return fail(-ENOMEM, "cannot encode %s: not enough memory", c->ops->name);
	}
	e->base = (struct encoder_stage){ &ops, sink };
	e->library = codec->library;
	*ret = &e->base;
	return 0;
}
