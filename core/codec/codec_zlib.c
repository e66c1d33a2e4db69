/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zlib.c - gzip (RFC 1952, one member) and, in v2, zlib (RFC 1950).
 *
 * The checksum and length at the end are always read and checked. (TensorStore
 * accepts a v2 object whose trailer is missing; such an object is damaged all
 * the same.)
 */
#include <zlib.h>

#include "core/base/err.h"
#include "core/codec/codec_level.h"

/* ---- memory, counted for codec_stream_memory() ---- */

static voidpf zlib_counted_alloc(voidpf count, uInt items, uInt size)
{
	*(uint64_t *)count += (uint64_t)items * size;
	return malloc((size_t)items * size);
}

/* The count does not decrease: zlib frees only at the end. */
static void zlib_counted_free(voidpf count, voidpf p)
{
	free(p);
}

/* ---- the library ---- */

static bool zlib_open(const struct level_codec *c, bool is_encoder, void *state, uint64_t *bytes)
{
	/* zlib encodes the container format in the window size. */
	int bits = c->base.ops == &codec_gzip ? 15 + 16 : 15;
	z_stream *z = state;

	/* gzip: no name, and time 0, so that the same bytes give the same object. */
	if (is_encoder)
		return deflateInit2(z, c->level, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK;
	z->zalloc = zlib_counted_alloc;
	z->zfree = zlib_counted_free;
	z->opaque = bytes;
	return inflateInit2(z, bits) == Z_OK;
}

static void zlib_load(z_stream *z, const struct level_window *w)
{
	/* The library's parameter lacks const, but it does not write. */
	z->next_in = (Bytef *)(uintptr_t)w->in;
	z->avail_in = w->in_n;
	z->next_out = w->out;
	z->avail_out = w->out_n;
}

static void zlib_store(const z_stream *z, struct level_window *w)
{
	*w = (struct level_window){ z->next_in, z->avail_in, z->next_out, z->avail_out };
}

static int zlib_decode(const struct level_codec *c, void *state, struct level_window *w)
{
	static const char *const checks[] = {
		"incorrect data check",
		"incorrect length check",
		"header crc mismatch",
	};
	const char *name = c->base.ops->name, *msg;
	z_stream *z = state;
	int r;

	zlib_load(z, w);
	r = inflate(z, Z_NO_FLUSH);
	zlib_store(z, w);
	if (r == Z_OK || r == Z_BUF_ERROR || r == Z_STREAM_END)
		return r == Z_STREAM_END;
	if (r == Z_MEM_ERROR)
		return fail(-ENOMEM, "cannot decode %s: not enough memory", name);
	if (r == Z_NEED_DICT)
		return fail(-EUCLEAN, "cannot decode %s: it needs a preset dictionary", name);
	/*
	 * zlib has one code for a wrong checksum and other damage; its messages are the same in all
	 * versions and forks.
	 */
	msg = z->msg ? z->msg : "damaged";
	for (size_t i = 0; i < ARRAY_LEN(checks); i++)
		if (strcmp(msg, checks[i]) == 0)
			return fail(-EBADMSG, "%s stream: %s", name, msg);
	return fail(-EUCLEAN, "cannot decode %s: %s", name, msg);
}

static bool zlib_encode(void *state, struct level_window *w, bool finish)
{
	int r;

	zlib_load(state, w);
	r = deflate(state, finish ? Z_FINISH : Z_NO_FLUSH);
	zlib_store(state, w);
	return r == Z_STREAM_END;
}

static void zlib_close(bool is_encoder, void *state)
{
	if (is_encoder)
		deflateEnd(state);
	else
		inflateEnd(state);
}

static int zlib_parse(const struct codec_ops *ops, const struct json *conf,
		      enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		      const struct codec **ret)
{
	static const struct level_library library = {
		0, sizeof(z_stream), 48 * KiB, zlib_open, zlib_decode, zlib_encode, zlib_close,
	};

	return level_parse(&library, ops, conf, dialect, arena, ret);
}

const struct codec_ops codec_gzip = {
	.name = "gzip",
	.in_v2 = true,
	.in_v3 = true,
	.parse = zlib_parse,
	.print = level_print,
	.open_decoder = level_open_decoder,
	.open_encoder = level_open_encoder,
	.encodes_slowly = true,
	.summed = true,
};

const struct codec_ops codec_zlib = {
	.name = "zlib",
	.in_v2 = true,
	.parse = zlib_parse,
	.print = level_print,
	.open_decoder = level_open_decoder,
	.open_encoder = level_open_encoder,
	.encodes_slowly = true,
	.summed = true,
};
