/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_chunk.c - decodes one chunk and discards the result.
 *
 * It uses neither the cache nor spill files, since the data is not used again: small buffers stay
 * in the cache of the processor. verify_leaf.c determines the chunks.
 */
#include "core/base/err.h"
#include "tools/scan/chunk_scan.h"
#include "tools/verify/verify.h"

#define PIECE ((size_t)1 * MiB) /* of a decoded chunk; two are in memory */

/*
 * Small chunks are read with the checksum that follows them, in one request, and decoded at once:
 * the decoder needs no window then. Returns 1 if a checksum covers the chunk, otherwise 0.
 */
static int verify_small(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			bool has_nodes)
{
	uint8_t *in = walk_buf(worker, 0), *out = walk_buf(worker, 1);
	struct span stored;
	uint64_t off;
	size_t n = chunk_source_range(&c->src, &off);
	int r;

	if (!in || !out)
		return fail(-ENOMEM, "cannot decode a chunk");
	r = n ? io_read_exact(c->src.loc.file, in, n, off) : 0;
	if (r < 0)
		return io_why_bad(r, c->src.loc.file);
	r = chunk_source_decode(z, &c->src, in, out);
	if (r != 0)
		return r;
	chunk_source_compare(&c->src, in, &stored);
	return chunk_head_is_summed(z, c, stored, has_nodes);
}

static int verify_pieces(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			 uint64_t window)
{
	struct chunk_input in = { .src = &c->src, .buf = walk_buf(worker, 0), .size = SCAN_PIECE };
	const struct chunk_pieces to = { .scratch = walk_buf(worker, 1),
					 .size = PIECE,
					 .window = window,
					 .need = z->leaf->bytes };

	if (!in.buf || !to.scratch)
		return fail(-ENOMEM, "cannot decode a chunk");
	return chunk_source_decode_pieces(z, &in, &to);
}

/*
 * Read and decode a chunk that is stored. 1: a checksum covers the chunk, and is right; 0: no
 * checksum.
 */
static int verify_stored(struct zarr *z, const struct chunk *c, struct walk_worker *worker,
			 pthread_mutex_t *large, bool has_nodes)
{
	int r;

	if (z->leaf->codecs.n && z->leaf->bytes <= TILE_BYTES &&
	    c->src.len <= TILE_BYTES - KV_SUM_REST - KV_SUM_BYTES)
		return verify_small(z, c, worker, has_nodes);
	r = z->leaf->codecs.n ? 0 : chunk_source_check_size(z, &c->src);
	if (r < 0)
		return r;
	r = verify_pieces(z, c, worker, SCAN_WINDOW);
	if (r == -EFBIG) {
		/*
		 * Only one thread may use a large window at a time, or memory would grow with the
		 * number of processors.
		 */
		pthread_mutex_lock(large);
		r = verify_pieces(z, c, worker, VERIFY_WINDOW);
		pthread_mutex_unlock(large);
	}
	/* A value of many chunks is not read again for each chunk to compare its checksum. */
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
	if (c.src.loc.where != KV_ABSENT)
		r = verify_stored(z, &c, worker, large, has_nodes);
	else if (z->missing_is_error)
		r = fail(-EUCLEAN, "is not stored, and the checkpoint says that every chunk is");
	if (r < 0) {
		chunk_text(z, &c, &where);
		r = err_at(r, "%s", buf_str(&where));
	} else {
		*ret = (struct verify_chunk){ c.src.loc.where == KV_ABSENT ? 0 : c.src.len, r > 0 };
		r = 0;
	}
	kv_loc_release(&c.src.loc);
	return r;
}
