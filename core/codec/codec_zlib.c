/*
 * codec_zlib.c - gzip (RFC 1952, one member) and, in v2, zlib (RFC 1950).
 *
 * The checksum and length at the end are always read and checked. (TensorStore
 * lets a v2 object pass whose trailer is missing; it is damaged all the same.)
 */
#include <zlib.h>

#include "core/base/err.h"
#include "core/codec/codec_impl.h"

#define PART_MAX (1 * GiB)		/* zlib counts in unsigned int */
#define OUT_BYTES (64 * KiB)		/* of a press */
#define LEVEL_V2 1			/* TensorStore's default where v2 leaves it out */

struct zlib_codec {
	struct codec base;
	int level;
};

/* zlib's own coding of the container in the window size. */
static int window_bits(const struct codec *c)
{
	return c->ops == &codec_gzip ? 15 + 16 : 15;
}

/* ---- metadata ---- */

static int zlib_parse(const struct codec_ops *ops, const struct json *conf,
		      enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		      const struct codec **ret)
{
	static const char *const v2_names[] = { "id", "level", NULL };
	static const char *const v3_names[] = { "level", NULL };
	int64_t level = LEVEL_V2;
	struct zlib_codec *z;
	int r = codec_conf_only(conf, ops->name, dialect == CODEC_V2 ? v2_names : v3_names);

	if (r >= 0)
		r = codec_conf_int(conf, ops->name, "level", 0, 9, dialect == CODEC_V3, &level);
	if (r < 0)
		return r;
	z = arena_calloc(arena, 1, sizeof(*z));
	if (!z)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	*z = (struct zlib_codec){ { ops }, (int)level };
	*ret = &z->base;
	return 0;
}

static int zlib_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	const struct zlib_codec *z = (const struct zlib_codec *)c;

	if (dialect == CODEC_V2)
		return buf_addf(ret, "{\"id\":\"%s\",\"level\":%d}", c->ops->name, z->level);
	return buf_addf(ret, "{\"configuration\":{\"level\":%d},\"name\":\"%s\"}", z->level,
			c->ops->name);
}

/* ---- memory, counted so that a stream can say what it holds ---- */

static voidpf counted_alloc(voidpf count, uInt items, uInt size)
{
	*(uint64_t *)count += (uint64_t)items * size;
	return malloc((size_t)items * size);
}

/* Not subtracted: zlib frees only when everything ends. */
static void counted_free(voidpf count, voidpf p)
{
	free(p);
}

/* ---- stage ---- */

struct zlib_stage {
	struct codec_stage base;
	z_stream z;
	uint64_t bytes;
	const char *name;
	bool ended;
};

static int inflate_error(const struct zlib_stage *s, int r)
{
	static const char *const checks[] = {
		"incorrect data check", "incorrect length check", "header crc mismatch",
	};
	const char *msg = s->z.msg ? s->z.msg : "damaged";

	if (r == Z_MEM_ERROR)
		return fail(-ENOMEM, "cannot decode %s: not enough memory", s->name);
	if (r == Z_NEED_DICT)
		return fail(-EUCLEAN, "cannot decode %s: it needs a preset dictionary", s->name);
	/* zlib has one code for both; its texts are the same in every version and in its forks. */
	for (size_t i = 0; i < ARRAY_LEN(checks); i++)
		if (strcmp(msg, checks[i]) == 0)
			return fail(-EBADMSG, "%s stream: %s", s->name, msg);
	return fail(-EUCLEAN, "cannot decode %s: %s", s->name, msg);
}

static int zlib_stage_read(struct codec_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct zlib_stage *s = (struct zlib_stage *)base;
	size_t room = MIN(n, (size_t)PART_MAX);

	s->z.next_out = p;
	s->z.avail_out = (uInt)room;
	while (!s->ended && s->z.avail_out == room) {
		size_t given = MIN(base->in->left.n, (size_t)PART_MAX);
		int r;

		/* The library's parameter lacks const; it does not write. */
		s->z.next_in = (Bytef *)(uintptr_t)base->in->left.p;
		s->z.avail_in = (uInt)given;
		r = inflate(&s->z, Z_NO_FLUSH);
		codec_input_skip(base->in, given - s->z.avail_in);
		if (r != Z_OK && r != Z_BUF_ERROR && r != Z_STREAM_END)
			return inflate_error(s, r);
		s->ended = r == Z_STREAM_END;
		/* Bytes that are decoded already come first; only then is more input needed. */
		if (!s->ended && s->z.avail_out == room && !base->in->left.n) {
			int filled = codec_input_fill(base->in);

			if (filled < 0)
				return filled;
			if (!filled)
				return fail(-EUCLEAN, "%s stream is cut off after %llu bytes",
					    s->name, (unsigned long long)base->in->taken);
		}
	}
	*ret_n = room - s->z.avail_out;
	return 0;
}

static uint64_t zlib_stage_memory(const struct codec_stage *base)
{
	const struct zlib_stage *s = (const struct zlib_stage *)base;

	/* The window comes with the first bytes; count it from the start. */
	return sizeof(*s) + MAX(s->bytes, 48 * KiB);
}

static void zlib_stage_free(struct codec_stage *base)
{
	struct zlib_stage *s = (struct zlib_stage *)base;

	inflateEnd(&s->z);
	free(s);
}

static int zlib_stage_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
			  uint64_t window, struct codec_stage **ret)
{
	static const struct codec_stage_ops ops = {
		zlib_stage_read, zlib_stage_memory, zlib_stage_free,
	};
	struct zlib_stage *s = calloc(1, sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot decode %s: not enough memory", c->ops->name);
	s->base = (struct codec_stage){ &ops, in };
	s->name = c->ops->name;
	s->z.zalloc = counted_alloc;
	s->z.zfree = counted_free;
	s->z.opaque = &s->bytes;
	if (inflateInit2(&s->z, window_bits(c)) != Z_OK) {
		free(s);
		return fail(-ENOMEM, "cannot decode %s: not enough memory", c->ops->name);
	}
	*ret = &s->base;
	return 0;
}

/* ---- press ---- */

struct zlib_press {
	struct codec_press base;
	z_stream z;
	uint8_t out[OUT_BYTES];
};

static int press_run(struct zlib_press *p, struct span in, int flush)
{
	int end = Z_OK;

	do {
		size_t given = MIN(in.n, (size_t)PART_MAX), got;
		int r;

		p->z.next_in = (Bytef *)(uintptr_t)in.p;
		p->z.avail_in = (uInt)given;
		p->z.next_out = p->out;
		p->z.avail_out = sizeof(p->out);
		end = deflate(&p->z, flush);
		in = span_from(in, given - p->z.avail_in);
		got = sizeof(p->out) - p->z.avail_out;
		r = got ? p->base.sink.fn(p->base.sink.arg, span_of(p->out, got)) : 0;
		if (r < 0)
			return r;
	} while (flush == Z_FINISH ? end != Z_STREAM_END : in.n > 0);
	return 0;
}

static int zlib_press_push(struct codec_press *base, struct span in)
{
	return press_run((struct zlib_press *)base, in, Z_NO_FLUSH);
}

static int zlib_press_finish(struct codec_press *base)
{
	return press_run((struct zlib_press *)base, span_of(NULL, 0), Z_FINISH);
}

static void zlib_press_free(struct codec_press *base)
{
	struct zlib_press *p = (struct zlib_press *)base;

	deflateEnd(&p->z);
	free(p);
}

static int zlib_press_new(const struct codec *c, uint64_t total, struct codec_sink sink,
			  struct codec_press **ret)
{
	static const struct codec_press_ops ops = {
		zlib_press_push, zlib_press_finish, zlib_press_free,
	};
	struct zlib_press *p = calloc(1, sizeof(*p));

	if (!p)
		return fail(-ENOMEM, "cannot encode %s: not enough memory", c->ops->name);
	p->base = (struct codec_press){ &ops, sink };
	/* gzip: no name, time 0, so the same bytes give the same object. */
	if (deflateInit2(&p->z, ((const struct zlib_codec *)c)->level, Z_DEFLATED, window_bits(c),
			 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(p);
		return fail(-ENOMEM, "cannot encode %s: not enough memory", c->ops->name);
	}
	*ret = &p->base;
	return 0;
}

const struct codec_ops codec_gzip = {
	.name = "gzip",
	.in_v2 = true,
	.in_v3 = true,
	.parse = zlib_parse,
	.print = zlib_print,
	.stage = zlib_stage_new,
	.press = zlib_press_new,
};

const struct codec_ops codec_zlib = {
	.name = "zlib",
	.in_v2 = true,
	.parse = zlib_parse,
	.print = zlib_print,
	.stage = zlib_stage_new,
	.press = zlib_press_new,
};
