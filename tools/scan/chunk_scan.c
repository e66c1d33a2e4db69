/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_scan.c - reads tiles of a large chunk, one after another, from its decoder.
 *
 * zarr_read.c reads small chunks, raw ones, and those in another order of axes or bytes: cutting
 * them costs little, or their bytes must be rearranged.
 */
#include "tools/scan/chunk_scan.h"

#include "core/base/blocks.h"
#include "core/base/err.h"

static void release_decoder(struct chunk_scan *s)
{
	codec_stream_close(take(s->decoder));
	if (s->z)
		kv_loc_release(&s->c.src.loc);
	s->z = NULL;
}

void chunk_scan_release(struct chunk_scan *s)
{
	release_decoder(s);
	block_free(take(s->buf), SCAN_PIECE);
}

/* Whether the bytes of a decoded chunk are the elements in their order. */
static bool scan_is_plain(const struct zarr *z)
{
	const struct dtype_info *t = dtype_info(z->meta.dtype);

	if (t->bits != 8 * t->size || !z->leaf_in_order || z->leaf->big_endian ||
	    z->leaf->codecs.n == 0 || z->leaf->bytes <= TILE_BYTES)
		return false;
	/*
	 * Chunks that extend beyond the array have gaps between its rows, except in the last one.
	 */
	for (unsigned i = 1; i < z->meta.rank; i++)
		if (z->meta.shape[i] % z->leaf_chunk[i])
			return false;
	return z->meta.rank > 0;
}

/*
 * Get the index of a tile's first element in its chunk. Returns whether the tile is one contiguous
 * run of the chunk.
 */
static bool scan_place(const struct zarr *z, const struct tile *tile, uint64_t *ret)
{
	bool full = true;
	uint64_t at = 0;

	for (unsigned i = 0; i < z->meta.rank; i++)
		at = at * z->leaf_chunk[i] + tile->start[i] % z->leaf_chunk[i];
	for (unsigned i = z->meta.rank; i > 0; i--) {
		if (tile->start[i - 1] % z->leaf_chunk[i - 1] + tile->count[i - 1] >
		    z->leaf_chunk[i - 1])
			return false;
		if (!full && tile->count[i - 1] != 1)
			return false;
		full &= tile->count[i - 1] == z->leaf_chunk[i - 1];
	}
	*ret = at;
	return true;
}

/* 1: a decoder at the chunk's first element; 0: the tile must be read through the cache. */
static int scan_begin(struct chunk_scan *s, struct zarr *z, const struct tile *tile)
{
	int r;

	release_decoder(s);
	if (!s->buf)
		s->buf = block_alloc(SCAN_PIECE);
	if (!s->buf)
		return fail(-ENOMEM, "cannot read a chunk");
	s->c = (struct chunk){ 0 };
	for (unsigned i = 0; i < z->meta.rank; i++)
		s->c.index[i] = tile->start[i] / z->leaf_chunk[i];
	r = chunk_locate(z, &s->c, 1);
	if (r < 0)
		return r;
	s->z = z;
	s->next = 0;
	if (s->c.src.loc.where == KV_ABSENT) {
		release_decoder(s);
		return 0;
	}
	s->in = (struct chunk_input){
		.src = &s->c.src, .buf = s->buf, .size = SCAN_PIECE, .is_single = true
	};
	r = codec_stream_open(&z->leaf->codecs, chunk_input_pull, &s->in, z->leaf->bytes,
			      SCAN_WINDOW, 0, &s->decoder);
	if (r == -EFBIG) {
		err_clear();
		release_decoder(s);
		return 0;
	}
	return r < 0 ? r : 1;
}

int chunk_scan_read(struct chunk_scan *s, struct zarr *z, const struct tile *tile,
		    const struct zarr_view *view, void *buf)
{
	auto_buf where = { 0 };
	uint64_t at;
	int r = scan_is_plain(z) && scan_place(z, tile, &at);

	if (r && at == 0)
		r = scan_begin(s, z, tile);
	else if (r && (s->z != z || s->next != at))
		r = 0;
	if (r == 0)
		return zarr_read_into(z, view, 0, view->bytes, buf);
	if (r > 0) {
		r = codec_stream_read(s->decoder, NULL, buf, (size_t)view->bytes);
		r = r < 0 ? r : zarr_to_shown(z, buf, (size_t)view->bytes);
	}
	if (r >= 0) {
		s->next = at + tile->n;
		return 0;
	}
	if (s->z) {
		chunk_text(z, &s->c, &where);
		err_at(r, "%s", buf_str(&where));
	}
	release_decoder(s);
	return r;
}
