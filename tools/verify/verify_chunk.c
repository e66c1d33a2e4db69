/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_chunk.c - decodes one chunk and discards the result.
 *
 * It uses neither the cache nor spill files, since the data is not used again: small buffers stay
 * in the cache of the processor. verify_leaf.c determines the chunks.
 */
#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "tools/scan/chunk_scan.h"
#include "tools/verify/verify_chunk.h"

/* Uncompressed elements are valid if they can be read. */
static int read_raw(const struct chunk *c, uint64_t expected, void *buf)
{
	struct chunk_scan_input f = { .c = c, .buf = buf };
	struct span piece;
	int r = 0;

	if (c->len != expected)
		return fail(-EUCLEAN, "it has %llu bytes, %llu were expected",
			    (unsigned long long)c->len, (unsigned long long)expected);
	while (r >= 0 && f.fed < c->len)
		r = chunk_scan_pull(&f, &piece);
	return r;
}

/*
 * Small chunks are read with the checksum that follows them, in one request, and decoded at once:
 * the decoder needs no window then. Returns 1 if a checksum covers the chunk, otherwise 0.
 */
static int verify_small(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			bool has_nodes)
{
	uint8_t *in = walk_buf(worker, 0), *out = walk_buf(worker, 1);
	bool is_all = chunk_is_all(c), has_end = false;
	struct span value = span_of(in, (size_t)(is_all ? c->loc.len : c->len));
	struct span chunk = value;
	size_t end = 0;
	int r = 0;

	if (!in || !out)
		return fail(-ENOMEM, "cannot decode a chunk");
	if (is_all) {
		chunk = span_of(in + c->off, (size_t)c->len);
		has_end = kv_loc_has_end(&c->loc, c->loc.len, &end);
	}
	if (c->loc.where == KV_INLINE)
		chunk = kv_loc_inline(&c->loc, c->off, c->len);
	else if (value.n + end)
		r = io_read_exact(c->loc.file, in, value.n + end,
				  c->loc.off + (is_all ? 0 : c->off));
	if (r >= 0)
		r = codec_decode(&z->leaf->codecs, chunk, out, (size_t)z->leaf->bytes);
	if (r >= 0 && has_end)
		r = kv_loc_compare_end(&c->loc, value.n, crc32c(value), in + value.n);
	if (r < 0 && c->loc.where == KV_FILE)
		r = io_why_bad(r, c->loc.file);
	return r != 0 ? r : chunk_head_is_summed(z, c, chunk, has_nodes);
}

static int decode_pieces(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			 uint64_t window)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct chunk_scan_input f = { .c = c, .buf = walk_buf(worker, 0) };
	void *out = walk_buf(worker, 1);
	int r;

	if (!f.buf || !out)
		return fail(-ENOMEM, "cannot decode a chunk");
	r = codec_stream_open(&z->leaf->codecs, chunk_scan_pull, &f, z->leaf->bytes, window, &s);
	for (uint64_t at = 0; at < z->leaf->bytes && r >= 0; at += SCAN_PIECE)
		r = codec_stream_read(s, out,
				      (size_t)MIN((uint64_t)SCAN_PIECE, z->leaf->bytes - at));
	return r;
}

static bool is_small(const struct zarr *z, const struct chunk *c)
{
	return z->leaf->codecs.n && z->leaf->bytes <= TILE_BYTES &&
	       c->len <= TILE_BYTES - KV_SUM_REST - KV_SUM_BYTES;
}

static int decode_large(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			pthread_mutex_t *large)
{
	int r;

	if (z->leaf->codecs.n == 0) {
		void *buf = walk_buf(worker, 0);

		return buf ? read_raw(c, z->leaf->bytes, buf) :
			     fail(-ENOMEM, "cannot read a chunk");
	}
	r = decode_pieces(z, c, worker, SCAN_WINDOW);
	if (r != -EFBIG)
		return r;
	/*
	 * Only one thread may use a large window at a time, or memory would grow with the number of
	 * processors.
	 */
	pthread_mutex_lock(large);
	r = decode_pieces(z, c, worker, VERIFY_WINDOW);
	pthread_mutex_unlock(large);
	return r;
}

/* 1: a checksum covers the chunk, and is right; 0: no checksum. */
static int verify_stored(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			 pthread_mutex_t *large, bool has_nodes)
{
	int r;

	if (is_small(z, c))
		return verify_small(z, c, worker, has_nodes);
	/*
	 * chunk_scan_pull() compares the checksum of a value. A value of many chunks is not read
	 * again for each chunk.
	 */
	r = decode_large(z, c, worker, large);
	return r < 0 ? r : chunk_is_summed(z, c, has_nodes);
}

int verify_chunk(struct zarr *z, const uint64_t *index, struct walk_worker *worker,
		 pthread_mutex_t *large, bool has_nodes, struct verify_chunk *ret)
{
	struct chunk c = { 0 };
	auto_buf where = { 0 };
	int r;

	memcpy(c.index, index, sizeof(c.index));
	r = chunk_locate(z, &c, 1);
	if (r < 0)
		return r;
	if (c.loc.where == KV_ABSENT) {
		if (z->missing_is_error)
			r = fail(-EUCLEAN,
				 "is not stored, and the checkpoint says that every chunk is");
	} else {
		r = verify_stored(z, &c, worker, large, has_nodes);
	}
	if (r < 0) {
		chunk_text(z, &c, &where);
		r = err_at(r, "%s", buf_str(&where));
	} else {
		*ret = (struct verify_chunk){ c.loc.where == KV_ABSENT ? 0 : c.len, r > 0 };
		r = 0;
	}
	kv_loc_release(&c.loc);
	return r;
}
