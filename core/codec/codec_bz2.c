/*
 * codec_bz2.c - bzip2, one stream; v2 only.
 *
 * libbz2 has one code for a damaged block and for a checksum that does not match,
 * so both are -EUCLEAN.
 */
#include <bzlib.h>

#include "core/base/err.h"
#include "core/codec/codec_impl.h"

#define PART_MAX (1 * GiB)		/* libbz2 counts in unsigned int */
#define OUT_BYTES (64 * KiB)		/* of a press */
#define LEVEL_V2 1			/* TensorStore's default where it is left out */

struct bz2_codec {
	struct codec base;
	int level;
};

/* ---- metadata ---- */

static int bz2_parse(const struct codec_ops *ops, const struct json *conf,
		     enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		     const struct codec **ret)
{
	static const char *const names[] = { "id", "level", NULL };
	int64_t level = LEVEL_V2;
	struct bz2_codec *z;
	int r = codec_conf_only(conf, ops->name, names);

	if (r >= 0)
		r = codec_conf_int(conf, ops->name, "level", 1, 9, false, &level);
	if (r < 0)
		return r;
	z = arena_calloc(arena, 1, sizeof(*z));
	if (!z)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	*z = (struct bz2_codec){ { ops }, (int)level };
	*ret = &z->base;
	return 0;
}

static int bz2_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	return buf_addf(ret, "{\"id\":\"bz2\",\"level\":%d}", ((const struct bz2_codec *)c)->level);
}

/* ---- memory, counted so that a stream can say what it holds ---- */

static void *counted_alloc(void *count, int items, int size)
{
	*(uint64_t *)count += (uint64_t)items * (uint64_t)size;
	return malloc((size_t)items * (size_t)size);
}

/* Not subtracted: libbz2 frees only when everything ends. */
static void counted_free(void *count, void *p)
{
	free(p);
}

/* ---- stage ---- */

struct bz2_stage {
	struct codec_stage base;
	bz_stream z;
	uint64_t bytes;
	bool ended;
};

static int decompress_error(int r)
{
	switch (r) {
	case BZ_MEM_ERROR:
		return fail(-ENOMEM, "cannot decode bz2: not enough memory");
	case BZ_DATA_ERROR_MAGIC:
		return fail(-EUCLEAN, "cannot decode bz2: no bzip2 stream");
	default:
		return fail(-EUCLEAN, "cannot decode bz2: damaged, or a checksum does not match");
	}
}

static int bz2_stage_read(struct codec_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct bz2_stage *s = (struct bz2_stage *)base;
	size_t room = MIN(n, (size_t)PART_MAX);

	s->z.next_out = (char *)p;
	s->z.avail_out = (unsigned)room;
	while (!s->ended && s->z.avail_out == room) {
		size_t given = MIN(base->in->left.n, (size_t)PART_MAX);
		int r;

		/* The library's parameter lacks const; it does not write. */
		s->z.next_in = (char *)(uintptr_t)base->in->left.p;
		s->z.avail_in = (unsigned)given;
		r = BZ2_bzDecompress(&s->z);
		codec_input_skip(base->in, given - s->z.avail_in);
		if (r != BZ_OK && r != BZ_STREAM_END)
			return decompress_error(r);
		s->ended = r == BZ_STREAM_END;
		/* Bytes that are decoded already come first; only then is more input needed. */
		if (!s->ended && s->z.avail_out == room && !base->in->left.n) {
			int filled = codec_input_fill(base->in);

			if (filled < 0)
				return filled;
			if (!filled)
				return fail(-EUCLEAN, "bz2 stream is cut off after %llu bytes",
					    (unsigned long long)base->in->taken);
		}
	}
	*ret_n = room - s->z.avail_out;
	return 0;
}

static uint64_t bz2_stage_memory(const struct codec_stage *base)
{
	const struct bz2_stage *s = (const struct bz2_stage *)base;

	/* The block comes with the first bytes; count the largest from the start. */
	return sizeof(*s) + MAX(s->bytes, 4 * MiB);
}

static void bz2_stage_free(struct codec_stage *base)
{
	struct bz2_stage *s = (struct bz2_stage *)base;

	BZ2_bzDecompressEnd(&s->z);
	free(s);
}

static int bz2_stage_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
			 uint64_t window, struct codec_stage **ret)
{
	static const struct codec_stage_ops ops = {
		bz2_stage_read, bz2_stage_memory, bz2_stage_free,
	};
	struct bz2_stage *s = calloc(1, sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot decode bz2: not enough memory");
	s->base = (struct codec_stage){ &ops, in };
	s->z.bzalloc = counted_alloc;
	s->z.bzfree = counted_free;
	s->z.opaque = &s->bytes;
	if (BZ2_bzDecompressInit(&s->z, 0, 0) != BZ_OK) {
		free(s);
		return fail(-ENOMEM, "cannot decode bz2: not enough memory");
	}
	*ret = &s->base;
	return 0;
}

/* ---- press ---- */

struct bz2_press {
	struct codec_press base;
	bz_stream z;
	char out[OUT_BYTES];
};

static int press_run(struct bz2_press *p, struct span in, int action)
{
	int end;

	do {
		size_t given = MIN(in.n, (size_t)PART_MAX), got;
		int r;

		p->z.next_in = (char *)(uintptr_t)in.p;
		p->z.avail_in = (unsigned)given;
		p->z.next_out = p->out;
		p->z.avail_out = sizeof(p->out);
		end = BZ2_bzCompress(&p->z, action);
		in = span_from(in, given - p->z.avail_in);
		got = sizeof(p->out) - p->z.avail_out;
		r = got ? p->base.sink.fn(p->base.sink.arg, span_of(p->out, got)) : 0;
		if (r < 0)
			return r;
	} while (action == BZ_FINISH ? end != BZ_STREAM_END : in.n > 0);
	return 0;
}

static int bz2_press_push(struct codec_press *base, struct span in)
{
	return press_run((struct bz2_press *)base, in, BZ_RUN);
}

static int bz2_press_finish(struct codec_press *base)
{
	return press_run((struct bz2_press *)base, span_of(NULL, 0), BZ_FINISH);
}

static void bz2_press_free(struct codec_press *base)
{
	struct bz2_press *p = (struct bz2_press *)base;

	BZ2_bzCompressEnd(&p->z);
	free(p);
}

static int bz2_press_new(const struct codec *c, uint64_t total, struct codec_sink sink,
			 struct codec_press **ret)
{
	static const struct codec_press_ops ops = {
		bz2_press_push, bz2_press_finish, bz2_press_free,
	};
	struct bz2_press *p = calloc(1, sizeof(*p));

	if (!p)
		return fail(-ENOMEM, "cannot encode bz2: not enough memory");
	p->base = (struct codec_press){ &ops, sink };
	if (BZ2_bzCompressInit(&p->z, ((const struct bz2_codec *)c)->level, 0, 0) != BZ_OK) {
		free(p);
		return fail(-ENOMEM, "cannot encode bz2: not enough memory");
	}
	*ret = &p->base;
	return 0;
}

const struct codec_ops codec_bz2 = {
	.name = "bz2",
	.in_v2 = true,
	.parse = bz2_parse,
	.print = bz2_print,
	.stage = bz2_stage_new,
	.press = bz2_press_new,
};
