/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zstd.c - zstd: settings, contexts, whole frames, and encoding. codec_zstd_decoder.c decodes
 * piece by piece. Only these two and ocdbt/frame.c use libzstd.
 *
 * One frame of RFC 8878 and nothing else: no skippable frame, no dictionary, no frame of the
 * formats before 0.8, no second frame. We always declare the content size; older versions of
 * numcodecs refuse frames that do not.
 *
 * Idle contexts are retained for reuse by any thread: allocating one costs more than decoding a
 * small chunk. IDLE_BYTES bounds them all together.
 *
 * Invariant: a stream's window is never larger than the history that the frame can refer to, which
 * is the smallest of its declared window, its declared content and the caller's expected size; so a
 * header of six bytes cannot cause an allocation of 2 GiB.
 */
#include <pthread.h>
#include <zstd_errors.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"
#include "core/codec/codec_zstd.h"

#define IDLE_BYTES (16 * MiB) /* all idle contexts together */
#define IDLE_COUNT 64         /* number of idle contexts of each kind */
/* the largest retained one; fits the window of level 1, which most frames have */
#define IDLE_DCTX (1 * MiB)
#define IDLE_CCTX (4 * MiB)   /* the largest retained one; a larger one would displace all others */
#define LEVEL_V2 1            /* TensorStore's default where v2 omits it */
#define OUT_BYTES (128 * KiB) /* buffer of an encoder stage: one block */

struct zstd_codec {
	struct codec base;
	int level;
	bool checksum;
};

int zstd_error(size_t r, const char *what)
{
	switch (ZSTD_getErrorCode(r)) {
	case ZSTD_error_checksum_wrong:
		return fail(-EBADMSG, "zstd frame: the content does not match its checksum");
	case ZSTD_error_memory_allocation:
		return fail(-ENOMEM, "cannot %s zstd: not enough memory", what);
	case ZSTD_error_dstSize_tooSmall:
		return fail(-EUCLEAN, "zstd frame decodes to more bytes than expected");
	default:
		return fail(-EUCLEAN, "cannot %s zstd: %s", what, ZSTD_getErrorName(r));
	}
}

/* ---- idle contexts ---- */

struct idle_contexts {
	pthread_mutex_t lock;
	size_t most; /* size of the largest context that is retained */
	unsigned n;  /* protected by lock, like the rest */
	void *ctx[IDLE_COUNT];
	size_t bytes[IDLE_COUNT];
	size_t total;
};

static struct idle_contexts idle_d = { .lock = PTHREAD_MUTEX_INITIALIZER, .most = IDLE_DCTX };
static struct idle_contexts idle_c = { .lock = PTHREAD_MUTEX_INITIALIZER, .most = IDLE_CCTX };

static void zstd_forked(void)
{
	if (lock_was_held(&idle_d.lock))
		idle_d.n = idle_d.total = 0;
	if (lock_was_held(&idle_c.lock))
		idle_c.n = idle_c.total = 0;
}
AT_FORK_CHILD(zstd_forked);

static void *idle_take(struct idle_contexts *k)
{
	void *ctx = NULL;

	pthread_mutex_lock(&k->lock);
	if (k->n > 0) {
		ctx = k->ctx[--k->n];
		k->total -= k->bytes[k->n];
	}
	pthread_mutex_unlock(&k->lock);
	return ctx;
}

/* Returns false when the context is not retained; the caller then frees it. */
static bool idle_give(struct idle_contexts *k, void *ctx, size_t bytes)
{
	bool keep;

	pthread_mutex_lock(&k->lock);
	/* Each kind may use half. */
	keep = k->n < IDLE_COUNT && bytes <= k->most && k->total + bytes <= IDLE_BYTES / 2;
	if (keep) {
		k->ctx[k->n] = ctx;
		k->bytes[k->n++] = bytes;
		k->total += bytes;
	}
	pthread_mutex_unlock(&k->lock);
	return keep;
}

ZSTD_DCtx *zstd_dctx_take(void)
{
	ZSTD_DCtx *d = idle_take(&idle_d);

	return d ? d : ZSTD_createDCtx();
}

void zstd_dctx_give(ZSTD_DCtx *d)
{
	if (!d)
		return;
	ZSTD_DCtx_reset(d, ZSTD_reset_session_and_parameters);
	if (!idle_give(&idle_d, d, ZSTD_sizeof_DCtx(d)))
		ZSTD_freeDCtx(d);
}

static void cctx_give(ZSTD_CCtx *c)
{
	if (!c)
		return;
	ZSTD_CCtx_reset(c, ZSTD_reset_session_and_parameters);
	if (!idle_give(&idle_c, c, ZSTD_sizeof_CCtx(c)))
		ZSTD_freeCCtx(c);
}

/*
 * A context set up for the codec; NULL with a note when memory is short. Frames always have a
 * checksum of their content. The metadata that Orbax writes says "checksum": false, or has no such
 * member; but every decoder goes by the frame's own header, and checks a checksum that it declares.
 */
static ZSTD_CCtx *cctx_take(const struct zstd_codec *z)
{
	ZSTD_CCtx *c = idle_take(&idle_c);

	if (!c)
		c = ZSTD_createCCtx();
	if (!c || ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, z->level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1))) {
		ZSTD_freeCCtx(c);
		fail(-ENOMEM, "cannot encode zstd: not enough memory");
		return NULL;
	}
	return c;
}

/* ---- pieces of blosc ---- */

struct zstd_pieces {
	ZSTD_CCtx *c;
	int level;
};

int zstd_pieces_begin(int level, struct zstd_pieces **ret)
{
	struct zstd_pieces *z = calloc(1, sizeof(*z));

	if (!z)
		return fail(-ENOMEM, "cannot encode zstd: not enough memory");
	z->level = level;
	z->c = cctx_take(&(struct zstd_codec){ .level = level });
	if (!z->c) {
		free(z);
		return -ENOMEM;
	}
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_checksumFlag, 0);
	*ret = z;
	return 0;
}

size_t zstd_piece(struct zstd_pieces *z, enum zstd_find find, struct span in, uint8_t *out,
		  size_t most)
{
	bool by_letter = find == ZSTD_FIND_LETTERS;
	size_t n;

	ZSTD_CCtx_setParameter(z->c, ZSTD_c_compressionLevel, by_letter ? 1 : z->level);
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_minMatch, by_letter ? 7 : 0);
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_targetLength, by_letter ? 64 : 0);
	ZSTD_CCtx_setParameter(z->c, ZSTD_c_literalCompressionMode,
			       by_letter ? ZSTD_ps_enable : ZSTD_ps_auto);
	n = ZSTD_compress2(z->c, out, most, in.p, in.n);
	return ZSTD_isError(n) ? 0 : n;
}

void zstd_pieces_end(struct zstd_pieces *z)
{
	cctx_give(z->c);
	free(z);
}

/* ---- metadata ---- */

static int zstd_codec_new(struct arena *arena, int level, bool checksum, const struct codec **ret)
{
	struct zstd_codec *z = arena_calloc(arena, 1, sizeof(*z));

	if (!z)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	*z = (struct zstd_codec){ { &codec_zstd }, level, checksum };
	*ret = &z->base;
	return 0;
}

int codec_zstd_new(struct arena *arena, int level, const struct codec **ret)
{
	if (level < CODEC_ZSTD_LEVEL_MIN || level > CODEC_ZSTD_LEVEL_MAX)
		return fail(-EINVAL, "zstd level %d is not from %d to %d", level,
			    CODEC_ZSTD_LEVEL_MIN, CODEC_ZSTD_LEVEL_MAX);
	return zstd_codec_new(arena, level, false, ret);
}

bool codec_zstd_level(const struct codec *c, int *ret)
{
	if (c->ops != &codec_zstd)
		return false;
	*ret = ((const struct zstd_codec *)c)->level;
	return true;
}

static int zstd_parse(const struct codec_ops *ops, const struct json *conf,
		      enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		      const struct codec **ret)
{
	static const char *const v2_names[] = { "id", "level", NULL };
	static const char *const v3_names[] = { "level", "checksum", NULL };
	bool is_v3 = dialect == CODEC_V3, checksum = false;
	struct codec_conf members;
	int64_t level;
	int r = 0;

	/* A frame says itself whether it has a checksum. */
	if (dialect == CODEC_V2 && json_member(conf, "checksum"))
		return fail(-EUCLEAN, "codec 'zstd': TensorStore refuses the member 'checksum', "
				      "which numcodecs writes since 0.13; remove it from the "
				      "compressor in .zarray, the chunks stay as they are");
	members = codec_conf_open(conf, ops->name, is_v3 ? v3_names : v2_names);
	level = codec_conf_int(&members, "level", CODEC_ZSTD_LEVEL_MIN, CODEC_ZSTD_LEVEL_MAX, is_v3,
			       LEVEL_V2);
	if (members.failed)
		return members.failed;
	if (is_v3)
		r = json_get_bool(conf, "checksum", "codec 'zstd'", &checksum);
	return r < 0 ? r : zstd_codec_new(arena, (int)level, checksum, ret);
}

static int zstd_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	const struct zstd_codec *z = (const struct zstd_codec *)c;

	if (dialect == CODEC_V2)
		return buf_addf(ret, "{\"id\":\"zstd\",\"level\":%d}", z->level);
	return buf_addf(ret, "{\"configuration\":{\"checksum\":%s,\"level\":%d},\"name\":\"zstd\"}",
			z->checksum ? "true" : "false", z->level);
}

/* ---- whole frames ---- */

static int zstd_frame_decode(const struct codec *c, struct span in, void *out, size_t n,
			     size_t *ret_used)
{
	struct zstd_head h;
	size_t frame, got;
	ZSTD_DCtx *d;
	int r = zstd_head_parse(in, &h);

	if (r < 0)
		return r;
	r = zstd_head_expect(&h, n);
	if (r < 0)
		return r;
	frame = ZSTD_findFrameCompressedSize(in.p, in.n);
	if (ZSTD_isError(frame))
		return zstd_error(frame, "decode");
	d = zstd_dctx_take();
	if (!d)
		return fail(-ENOMEM, "cannot decode zstd: not enough memory");
	got = ZSTD_decompressDCtx(d, out, n, in.p, frame);
	zstd_dctx_give(d);
	if (ZSTD_isError(got))
		return zstd_error(got, "decode");
	if (got != n)
		return fail(-EUCLEAN, "zstd frame decodes to %zu bytes, expected %zu", got, n);
	*ret_used = frame;
	return 0;
}

static int zstd_frame_encode(const struct codec *codec, struct span in, struct buf *ret)
{
	ZSTD_CCtx *c;
	size_t got;
	int r = buf_reserve(ret, ZSTD_compressBound(in.n));

	if (r < 0)
		return r;
	c = cctx_take((const struct zstd_codec *)codec);
	if (!c)
		return -ENOMEM;
	got = ZSTD_compress2(c, ret->p + ret->n, ret->cap - ret->n, in.p, in.n);
	cctx_give(c);
	if (ZSTD_isError(got))
		return zstd_error(got, "encode");
	ret->n += got;
	return 0;
}

/* ---- encoding ---- */

struct zstd_encoder {
	struct encoder_stage base;
	ZSTD_CCtx *c; /* owned */
	uint8_t out[OUT_BYTES];
};

static int zstd_encoder_run(struct zstd_encoder *p, struct span span, ZSTD_EndDirective end)
{
	ZSTD_inBuffer in = { span.p, span.n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { p->out, sizeof(p->out), 0 };
		int r;

		left = ZSTD_compressStream2(p->c, &out, &in, end);
		if (ZSTD_isError(left))
			return zstd_error(left, "encode");
		r = out.pos ? p->base.sink.fn(p->base.sink.arg, span_of(p->out, out.pos)) : 0;
		if (r < 0)
			return r;
	} while (end == ZSTD_e_end ? left > 0 : in.pos < in.size);
	return 0;
}

static int zstd_encoder_push(struct encoder_stage *base, struct span in)
{
	return zstd_encoder_run((struct zstd_encoder *)base, in, ZSTD_e_continue);
}

static int zstd_encoder_finish(struct encoder_stage *base)
{
	return zstd_encoder_run((struct zstd_encoder *)base, span_of(NULL, 0), ZSTD_e_end);
}

static void zstd_encoder_free(struct encoder_stage *base)
{
	struct zstd_encoder *p = (struct zstd_encoder *)base;

	cctx_give(p->c);
	free(p);
}

static int zstd_encoder_new(const struct codec *codec, uint64_t total, struct codec_sink sink,
			    struct encoder_stage **ret)
{
	static const struct encoder_stage_ops ops = {
		zstd_encoder_push,
		zstd_encoder_finish,
		zstd_encoder_free,
	};
	struct zstd_encoder *p = calloc(1, sizeof(*p));

	if (!p)
		return fail(-ENOMEM, "cannot encode zstd: not enough memory");
	p->base = (struct encoder_stage){ &ops, sink };
	p->c = cctx_take((const struct zstd_codec *)codec);
	if (!p->c || ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(p->c, total))) {
		zstd_encoder_free(&p->base);
		return fail(-ENOMEM, "cannot encode zstd: not enough memory");
	}
	*ret = &p->base;
	return 0;
}

/* The flag of a content checksum; a frame that is too short for a header has none. */
static bool zstd_is_summed(struct span head)
{
	return head.n >= CODEC_HEAD_BYTES && get_u32le(head.p) == ZSTD_MAGIC && head.p[4] & 4;
}

static bool zstd_declares_size(struct span object)
{
	/* A single segment, or a size of two bytes and more. */
	return object.n >= CODEC_HEAD_BYTES && get_u32le(object.p) == ZSTD_MAGIC &&
	       object.p[4] & 0xe0;
}

const struct codec_ops codec_zstd = {
	.name = "zstd",
	.in_v2 = true,
	.in_v3 = true,
	.parse = zstd_parse,
	.print = zstd_print,
	.decode = zstd_frame_decode,
	.encode = zstd_frame_encode,
	.open_decoder = zstd_decoder_new,
	.encoder_needs_total = true,
	.open_encoder = zstd_encoder_new,
	.is_summed = zstd_is_summed,
	.declares_size = zstd_declares_size,
};
