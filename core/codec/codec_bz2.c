/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_bz2.c - bzip2, one stream; v2 only.
 *
 * libbz2 has one code for a damaged block and for a checksum that does not match, so both are
 * -EUCLEAN.
 */
#include <bzlib.h>

#include "core/base/err.h"
#include "core/codec/codec_level.h"

/* ---- memory, counted for codec_stream_memory() ---- */

static void *bz2_counted_alloc(void *count, int items, int size)
{
	*(uint64_t *)count += (uint64_t)items * (uint64_t)size;
	return malloc((size_t)items * (size_t)size);
}

/* The count does not decrease: libbz2 frees only at the end. */
static void bz2_counted_free(void *count, void *p)
{
	free(p);
}

/* ---- the library ---- */

static bool bz2_open(const struct level_codec *c, bool is_encoder, void *state, uint64_t *bytes)
{
	bz_stream *z = state;

	if (is_encoder)
		return BZ2_bzCompressInit(z, c->level, 0, 0) == BZ_OK;
	z->bzalloc = bz2_counted_alloc;
	z->bzfree = bz2_counted_free;
	z->opaque = bytes;
	return BZ2_bzDecompressInit(z, 0, 0) == BZ_OK;
}

static void bz2_load(bz_stream *z, const struct level_window *w)
{
	/* The library's parameter lacks const, but it does not write. */
	z->next_in = (char *)(uintptr_t)w->in;
	z->avail_in = w->in_n;
	z->next_out = (char *)w->out;
	z->avail_out = w->out_n;
}

static void bz2_store(const bz_stream *z, struct level_window *w)
{
	*w = (struct level_window){ (uint8_t *)z->next_in, z->avail_in, (uint8_t *)z->next_out,
				    z->avail_out };
}

static int bz2_decode(const struct level_codec *c, void *state, struct level_window *w)
{
	int r;

	bz2_load(state, w);
	r = BZ2_bzDecompress(state);
	bz2_store(state, w);
	switch (r) {
	case BZ_OK:
		return 0;
	case BZ_STREAM_END:
		return 1;
	case BZ_MEM_ERROR:
		return fail(-ENOMEM, "cannot decode bz2: not enough memory");
	case BZ_DATA_ERROR_MAGIC:
		return fail(-EUCLEAN, "cannot decode bz2: not a bzip2 stream");
	default:
		return fail(-EUCLEAN, "cannot decode bz2: damaged, or a checksum does not match");
	}
}

static bool bz2_encode(void *state, struct level_window *w, bool finish)
{
	int r;

	bz2_load(state, w);
	r = BZ2_bzCompress(state, finish ? BZ_FINISH : BZ_RUN);
	bz2_store(state, w);
	return r == BZ_STREAM_END;
}

static void bz2_close(bool is_encoder, void *state)
{
	if (is_encoder)
		BZ2_bzCompressEnd(state);
	else
		BZ2_bzDecompressEnd(state);
}

static int bz2_parse(const struct codec_ops *ops, const struct json *conf,
		     enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		     const struct codec **ret)
{
	static const struct level_library library = {
		1, sizeof(bz_stream), 4 * MiB, bz2_open, bz2_decode, bz2_encode, bz2_close,
	};

	return level_parse(&library, ops, conf, dialect, arena, ret);
}

const struct codec_ops codec_bz2 = {
	.name = "bz2",
	.in_v2 = true,
	.parse = bz2_parse,
	.print = level_print,
	.open_decoder = level_open_decoder,
	.open_encoder = level_open_encoder,
	.encodes_slowly = true,
	.summed = true,
};
