/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_source.c - stored bytes of a chunk -> decoded bytes, and their checksum.
 */
#include "core/zarr/chunk_source.h"

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/log.h"

#define SHORT_PIECE ((size_t)256 * KiB)

int chunk_source_check_size(const struct zarr *z, const struct chunk_source *src)
{
	bool fits = z->leaf->codecs.n ? src->len <= 2 * z->leaf->bytes + 64 * KiB :
					src->len == z->leaf->bytes;

	if (fits || src->loc.where == KV_ABSENT)
		return 0;
	return fail(-EUCLEAN, "chunk of %llu bytes is stored in %llu",
		    (unsigned long long)z->leaf->bytes, (unsigned long long)src->len);
}

bool chunk_source_has_end(const struct chunk_source *src, size_t *ret)
{
	*ret = 0;
	return !src->off && chunk_source_is_all(src) && kv_loc_has_end(&src->loc, src->len, ret);
}

/* A failure of stored bytes: someone may replace their file. */
static int source_failed(const struct chunk_source *src, int r)
{
	if (src->loc.where != KV_FILE)
		return r;
	io_file_doubt(src->loc.file);
	return io_why_bad(r, src->loc.file);
}

static void count_decoded(const struct zarr *z, uint64_t bytes, uint64_t stored)
{
	struct zarr_env *env = z->env;

	atomic_fetch_add_explicit(&env->chunks_decoded, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&env->chunk_bytes_decoded, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&env->chunk_bytes_stored, stored, memory_order_relaxed);
}

/* ---- whole ---- */

size_t chunk_source_range(const struct chunk_source *src, uint64_t *ret_off)
{
	const struct kv_loc *loc = &src->loc;
	bool all = chunk_source_is_all(src);

	*ret_off = loc->off + (all ? 0 : src->off);
	if (loc->where != KV_FILE)
		return 0;
	return all ? loc->len + loc->tail : src->len;
}

int chunk_source_compare(const struct chunk_source *src, const uint8_t *in, struct span *ret)
{
	const struct kv_loc *loc = &src->loc;

	if (loc->where == KV_INLINE) {
		*ret = kv_loc_inline(loc, src->off, src->len);
		return 0;
	}
	if (!chunk_source_is_all(src)) {
		*ret = span_of(in, src->len);
		return 0;
	}
	*ret = span_of(in + src->off, src->len);
	return kv_loc_compare(loc, span_of(in, loc->len), span_of(in + loc->len, loc->tail));
}

int chunk_source_decode(const struct zarr *z, const struct chunk_source *src, const uint8_t *in,
			uint8_t *out)
{
	uint64_t n = z->leaf->bytes;
	struct span stored;
	int summed = chunk_source_compare(src, in, &stored), r;

	if (summed < 0)
		return source_failed(src, summed);
	trace(TRACE_CODEC, "decode %zu -> %llu", stored.n, (unsigned long long)n);
	r = codec_decode(&z->leaf->codecs, stored, out, n);
	r = r < 0 ? r : zarr_to_shown(z, out, n);
	if (r < 0)
		return source_failed(src, r);
	count_decoded(z, n, stored.n);
	return summed;
}

/* ---- in pieces ---- */

/* Begin to read n bytes from `at` on, and the checksum with the last of them if there is room. */
static void input_ask(struct chunk_input *in, uint64_t at, size_t n, size_t got)
{
	const struct chunk_source *src = in->src;
	uint8_t *p = in->buf + (in->is_result ? at :
				in->is_single ? 0 :
						at / in->size % 2 * in->size);
	size_t end;

	if (at + n == src->len && chunk_source_has_end(in->src, &end) && n + end <= in->size &&
	    !in->is_result)
		n += end;
	in->req = (struct io_req){ .op = IO_READ,
				   .file = src->loc.file,
				   .p = p + got,
				   .n = n - got,
				   .off = src->loc.off + src->off + at + got };
	in->asked = in->req.n > 0;
	io_submit(src->loc.file->io, &in->req, in->asked);
}

int chunk_input_next(struct chunk_input *in, size_t n, size_t got, struct span *ret)
{
	const struct chunk_source *src = in->src;
	size_t end;
	uint8_t *p;
	int r;

	*ret = span_of(NULL, 0);
	if (in->used == src->len)
		return 0;
	if (src->loc.where == KV_INLINE)
		in->stored = kv_loc_inline(&src->loc, src->off, src->len);
	if (in->stored.p) {
		*ret = span_from(in->stored, in->used);
		in->used = src->len;
		return 0;
	}
	n = (size_t)MIN(n, src->len - in->used);
	if (!in->asked)
		input_ask(in, in->used, n, got);
	r = io_wait_exact(src->loc.file->io, &in->req, in->asked);
	in->asked = false;
	if (r < 0)
		return r;
	p = (uint8_t *)in->req.p - got;
	*ret = span_of(p, n);
	in->crc = crc32c_more(in->crc, *ret);
	in->used += n;
	if (in->used == src->len && chunk_source_has_end(src, &end))
		r = got + in->req.n >= n + end ?
			    kv_loc_compare_end(&src->loc, src->len, in->crc, p + n) :
			    kv_loc_check_end(&src->loc, src->len, in->crc);
	if (r < 0)
		return r;
	if (!in->is_single && in->used < src->len)
		input_ask(in, in->used, (size_t)MIN(in->size, src->len - in->used), 0);
	return 0;
}

int chunk_input_pull(void *arg, struct span *ret)
{
	struct chunk_input *in = arg;

	return chunk_input_next(in, in->size, 0, ret);
}

/* Wait for what is in flight. Keeps the note of an earlier failure. */
static void chunk_input_end(struct chunk_input *in)
{
	struct err_note why;

	if (!in->asked)
		return;
	err_peek(&why);
	io_wait(in->src->loc.file->io, &in->req, 1);
	err_restore(&why);
	in->asked = false;
}

static int source_decode_pieces(const struct zarr *z, struct codec_stream *s,
				const struct chunk_pieces *to)
{
	/* A slow codec takes a tenth of a second for a shorter piece. */
	size_t size = codec_stream_needs_before(s) ? to->size : MIN(to->size, SHORT_PIECE);
	const uint8_t *before = NULL;
	uint64_t n;

	for (uint64_t at = 0; at < to->need; at += n) {
		uint8_t *p = to->whole ? to->whole + at : to->scratch + at / size % 2 * size;
		int r;

		n = MIN((uint64_t)size, to->need - at);
		r = codec_stream_read(s, before, p, n);
		if (r < 0)
			return r;
		before = p;
		r = zarr_to_shown(z, p, n);
		if (r < 0)
			return r;
		r = to->sink ? to->sink(to->arg, at, p, n) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Read stored elements to where they are wanted. */
static int source_read_elements(const struct zarr *z, struct chunk_input *in,
				const struct chunk_pieces *to)
{
	struct span piece;
	int r = 0;

	in->buf = to->whole;
	in->size = to->size;
	in->is_result = true;
	while (in->used < in->src->len && r >= 0) {
		uint64_t at = in->used;

		r = chunk_input_pull(in, &piece);
		if (r == 0 && to->sink)
			r = to->sink(to->arg, at, piece.p, piece.n);
	}
	chunk_input_end(in);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&z->env->raw_bytes, in->used, memory_order_relaxed);
	return r;
}

int chunk_source_decode_pieces(const struct zarr *z, struct chunk_input *in,
			       const struct chunk_pieces *to)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	/* The decoder reads its history there, unless the bytes are converted in place. */
	size_t retained = z->leaf_as_shown ? to->size : 0;
	int r;

	if (z->leaf_raw && to->whole && in->src->loc.where == KV_FILE && !in->stored.p &&
	    in->src->len == z->leaf->bytes && to->need == z->leaf->bytes)
		return source_read_elements(z, in, to);
	trace(TRACE_CODEC, "decode in pieces %llu -> %llu", (unsigned long long)in->src->len,
	      (unsigned long long)to->need);
	r = codec_stream_open(&z->leaf->codecs, chunk_input_pull, in, z->leaf->bytes, to->window,
			      retained, &s);
	r = r < 0 ? r : source_decode_pieces(z, s, to);
	chunk_input_end(in);
	if (r < 0)
		return r;
	count_decoded(z, to->need, in->used);
	return 0;
}
