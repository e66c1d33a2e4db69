/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_crc32c.c - a CRC-32C after the bytes, always little-endian; v3 only.
 */
#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec_impl.h"

static int crc_parse(const struct codec_ops *ops, const struct json *conf,
		     enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		     const struct codec **ret)
{
	static const char *const names[] = { NULL };
	static const struct codec crc = { &codec_crc32c };
	int r = codec_conf_open(conf, ops->name, names).failed;

	if (r < 0)
		return r;
	*ret = &crc;
	return r;
}

static int crc_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	return buf_add_str(ret, "{\"name\":\"crc32c\"}");
}

static int crc_compare(uint32_t computed, const uint8_t stored[CODEC_CRC32C_BYTES])
{
	if (computed == get_u32le(stored))
		return 0;
	return fail(-EBADMSG, "crc32c is %08x, stored %08x", computed, get_u32le(stored));
}

static int crc_strip_trailer(struct span in, uint64_t n, struct span *ret)
{
	struct span inner;
	int r;

	if (in.n < CODEC_CRC32C_BYTES || (n != CODEC_SIZE_UNKNOWN && in.n - CODEC_CRC32C_BYTES < n))
		return fail(-EUCLEAN, "crc32c stream is truncated after %zu bytes", in.n);
	inner = span_of(in.p, n == CODEC_SIZE_UNKNOWN ? in.n - CODEC_CRC32C_BYTES : (size_t)n);
	r = crc_compare(crc32c(inner), inner.p + inner.n);
	if (r < 0)
		return r;
	*ret = inner;
	return r;
}

static int crc_add_trailer(struct buf *b, size_t from)
{
	return wire_put_u32le(b, crc32c(span_of(b->p + from, b->n - from)));
}

/* ---- decoding ---- */

struct crc_decoder {
	struct decoder_stage base;
	uint64_t left; /* bytes before the checksum; CODEC_SIZE_UNKNOWN: all but the last four */
	uint32_t crc;  /* of the bytes returned so far */
	/* Unknown length: the last four bytes, held back until more input follows. */
	uint8_t held[CODEC_CRC32C_BYTES];
	unsigned n_held;
	bool ended;
};

/* Input of unknown length: return the oldest held byte whenever a new one arrives. */
static int crc_decoder_held(struct crc_decoder *s, uint8_t *p, size_t n, size_t *ret_n)
{
	struct codec_input *in = s->base.in;
	int r = codec_input_fill(in);

	while (r > 0 && s->n_held < CODEC_CRC32C_BYTES) {
		s->held[s->n_held++] = in->left.p[0];
		codec_input_skip(in, 1);
		r = codec_input_fill(in);
	}
	if (r < 0)
		return r;
	if (r == 0) {
		s->ended = true;
		if (s->n_held < CODEC_CRC32C_BYTES)
			return fail(-EUCLEAN, "crc32c stream is truncated after %llu bytes",
				    (unsigned long long)in->taken);
		return crc_compare(s->crc, s->held);
	}
	n = MIN(n, in->left.n);
	/* The output is held ‖ input, without the last four bytes, which become the held ones. */
	for (size_t i = 0; i < n; i++)
		p[i] = i < CODEC_CRC32C_BYTES ? s->held[i] : in->left.p[i - CODEC_CRC32C_BYTES];
	if (n >= CODEC_CRC32C_BYTES) {
		memcpy(s->held, in->left.p + n - CODEC_CRC32C_BYTES, CODEC_CRC32C_BYTES);
	} else {
		memmove(s->held, s->held + n, CODEC_CRC32C_BYTES - n);
		memcpy(s->held + CODEC_CRC32C_BYTES - n, in->left.p, n);
	}
	codec_input_skip(in, n);
	*ret_n = n;
	return 0;
}

static int crc_decoder_read(struct decoder_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct crc_decoder *s = (struct crc_decoder *)base;
	uint8_t stored[CODEC_CRC32C_BYTES];
	int r;

	*ret_n = 0;
	if (s->ended)
		return 0;
	if (s->left == CODEC_SIZE_UNKNOWN) {
		r = crc_decoder_held(s, p, n, ret_n);
	} else if (!s->left) {
		s->ended = true;
		r = codec_input_take(base->in, stored, CODEC_CRC32C_BYTES, "crc32c");
		return r < 0 ? r : crc_compare(s->crc, stored);
	} else {
		r = codec_input_need(base->in, "crc32c");
		*ret_n = MIN(MIN(n, base->in->left.n), s->left);
		if (r > 0)
			r = codec_input_take(base->in, p, *ret_n, "crc32c");
		s->left -= *ret_n;
	}
	if (r < 0)
		return r;
	s->crc = crc32c_more(s->crc, span_of(p, *ret_n));
	return r;
}

static uint64_t crc_decoder_memory(const struct decoder_stage *base)
{
	return sizeof(struct crc_decoder);
}

static void crc_decoder_free(struct decoder_stage *base)
{
	free(base);
}

static int crc_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
			   uint64_t window, size_t retained, struct decoder_stage **ret)
{
	static const struct decoder_stage_ops ops = {
		crc_decoder_read,
		crc_decoder_memory,
		crc_decoder_free,
	};
	struct crc_decoder *s = calloc(1, sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot check a crc32c: not enough memory");
	s->base = (struct decoder_stage){ &ops, in };
	s->left = decoded;
	*ret = &s->base;
	return 0;
}

/* ---- encoding ---- */

struct crc_encoder {
	struct encoder_stage base;
	uint32_t crc;
};

static int crc_encoder_push(struct encoder_stage *base, struct span in)
{
	struct crc_encoder *p = (struct crc_encoder *)base;

	p->crc = crc32c_more(p->crc, in);
	return base->sink.fn(base->sink.arg, in);
}

static int crc_encoder_finish(struct encoder_stage *base)
{
	uint8_t bytes[CODEC_CRC32C_BYTES];

	set_u32le(bytes, ((struct crc_encoder *)base)->crc);
	return base->sink.fn(base->sink.arg, span_of(bytes, CODEC_CRC32C_BYTES));
}

static void crc_encoder_free(struct encoder_stage *base)
{
	free(base);
}

static int crc_encoder_new(const struct codec *c, uint64_t total, struct codec_sink sink,
			   struct encoder_stage **ret)
{
	static const struct encoder_stage_ops ops = {
		crc_encoder_push,
		crc_encoder_finish,
		crc_encoder_free,
	};
	struct crc_encoder *p = calloc(1, sizeof(*p));

	if (!p)
		return fail(-ENOMEM, "cannot write a crc32c: not enough memory");
	p->base = (struct encoder_stage){ &ops, sink };
	*ret = &p->base;
	return 0;
}

const struct codec_ops codec_crc32c = {
	.name = "crc32c",
	.in_v3 = true,
	.trailer = CODEC_CRC32C_BYTES,
	.parse = crc_parse,
	.print = crc_print,
	.strip_trailer = crc_strip_trailer,
	.add_trailer = crc_add_trailer,
	.open_decoder = crc_decoder_new,
	.open_encoder = crc_encoder_new,
	.summed = true,
};
