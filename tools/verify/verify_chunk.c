/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_chunk.c - decodes one chunk and discards the result.
 *
 * It uses neither the cache nor spill files, since the data is not used again: small buffers stay
 * in the cache of the processor. verify_leaf.c determines the chunks.
 */
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

/* Decode small chunks at once: the decoder needs no window then. */
static int decode_whole(struct zarr *z, const struct chunk *c, struct walk_worker *worker)
{
	void *in = walk_buf(worker, 0), *out = walk_buf(worker, 1);
	struct span stored = span_of(in, (size_t)c->len);
	int r = 0;

	if (!in || !out)
		return fail(-ENOMEM, "cannot decode a chunk");
	if (c->loc.where == KV_INLINE)
		stored = kv_loc_inline(&c->loc, c->off, c->len);
	else if (c->len)
		r = io_read_exact(c->loc.file, in, (size_t)c->len, c->loc.off + c->off);
	return r < 0 ? r : codec_decode(&z->leaf->codecs, stored, out, (size_t)z->leaf->bytes);
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
	return z->leaf->codecs.n && z->leaf->bytes <= TILE_BYTES && c->len <= TILE_BYTES;
}

static int decode(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
		  pthread_mutex_t *large)
{
	int r;

	if (z->leaf->codecs.n == 0) {
		void *buf = walk_buf(worker, 0);

		return buf ? read_raw(c, z->leaf->bytes, buf) :
			     fail(-ENOMEM, "cannot read a chunk");
	}
	if (is_small(z, c))
		return decode_whole(z, c, worker);
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
static int check_sum(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
		     bool has_nodes)
{
	void *buf = walk_buf(worker, 0);
	int r = 0;

	if (!buf)
		return fail(-ENOMEM, "cannot check a chunk");
	/*
	 * chunk_scan_pull() has compared the other checksums. A value of many chunks is not read
	 * again for each chunk.
	 */
	if (chunk_is_all(c) && is_small(z, c))
		r = kv_loc_check(&c->loc, buf, SCAN_PIECE);
	return r != 0 ? r : chunk_is_summed(z, c, has_nodes);
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
		r = decode(z, &c, worker, large);
		if (r >= 0)
			r = check_sum(z, &c, worker, has_nodes);
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
