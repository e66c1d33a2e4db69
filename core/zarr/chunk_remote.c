/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_remote.c - chunks that another process decodes, and pieces for other processes.
 *
 * The provider of zarr_env's zarr_remote decides which process that is, and transports the pieces.
 * Pieces are cached beside those of streams.
 *
 * Invariants: pieces that another process requests are decoded here, never requested from a third
 * one; a thread that fills one of these pieces may wait for a chunk or a stream, never the other
 * way round, so there is no circular wait.
 */
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/zarr/chunk.h"

int zarr_set_address(struct zarr *z, struct span address)
{
	uint8_t *copy = malloc(address.n + 1);

	if (!copy)
		return fail(-ENOMEM, "cannot open array '%s'", z->prefix);
	memcpy(copy, address.p, address.n);
	free((void *)(uintptr_t)z->address.p);
	z->address = span_of(copy, address.n);
	return 0;
}

bool chunk_is_remote(const struct zarr *z, struct chunk *c)
{
	struct zarr_remote *rm = z->env->remote;
	uint64_t object = 0;

	if (!chunk_is_shared(z) || c->local)
		return false;
	/* Chunks of one shard stay together, so that its index is read once. */
	for (unsigned i = 0; i < z->meta.rank; i++)
		object = object * z->meta.grid[i] +
			 c->index[i] * z->leaf_chunk[i] / z->meta.chunk[i];
	return rm->is_elsewhere(rm, z, object, &c->remote_rank);
}

int zarr_chunk_bytes(struct zarr *z, uint64_t number, uint64_t off, size_t n, void *p)
{
	struct strided s = { .have = z->meta.dtype, .want = z->meta.dtype };
	size_t item = dtype_info(z->meta.dtype)->size;
	struct chunk c = { .local = true };
	uint64_t end, total = 1;
	int r;

	for (unsigned i = 0; i < z->meta.rank; i++)
		total *= z->leaf_grid[i];
	if (number >= total || !add_fits(off, n, &end) || end > z->leaf->bytes || off % item ||
	    n % item)
		return fail(-EINVAL, "bytes at %llu of chunk %llu do not exist",
			    (unsigned long long)off, (unsigned long long)number);
	for (unsigned i = z->meta.rank; i-- > 0; number /= z->leaf_grid[i])
		c.index[i] = number % z->leaf_grid[i];
	r = chunk_open(z, &c, 1);
	if (r < 0)
		return r;
	strided_add(&s, n / item, c.mode == CHUNK_FILL ? 0 : item, (int64_t)item);
	if (c.mode == CHUNK_FILL)
		strided_copy(&s, z->meta.fill, p);
	else
		r = chunk_copy(z, &c, &s, off, p);
	chunk_close(z, &c, 1);
	return r;
}

/* Get the piece from the other process, or from the disk when that fails with -ENOTCONN. */
static int remote_fetch(struct zarr *z, const struct chunk *c, uint64_t piece, size_t n, uint8_t *p)
{
	struct zarr_remote *rm = z->env->remote;
	uint64_t off = piece * STREAM_PIECE_BYTES;
	int r = rm->fetch(rm, z, c->remote_rank, c->number, off, n, p);

	if (r != -ENOTCONN)
		return r;
	err_clear();
	return zarr_chunk_bytes(z, c->number, off, n, p);
}

/*
 * Not the key of a stream's piece: if the other process fails, the piece is decoded here as a piece
 * of a stream, while this entry is being filled.
 */
struct cache_key chunk_remote_key(const struct zarr *z, uint64_t number, uint64_t piece)
{
	struct cache_key key = stream_piece_key(z, number, piece);

	key.part |= (uint64_t)1 << 39;
	return key;
}

int chunk_remote_piece(struct zarr *z, const struct chunk *c, uint64_t piece,
		       struct cache_entry **ret)
{
	struct cache_key key = chunk_remote_key(z, c->number, piece);
	struct cache *cache = z->env->cache;
	struct cache_entry *e = NULL;
	int r = cache_begin(cache, &key, &e);

	if (r == CACHE_BUSY)
		r = cache_wait(cache, e);
	if (r < 0) {
		cache_put(cache, e);
		return r;
	}
	if (r == CACHE_MINE) {
		size_t n = (size_t)MIN((uint64_t)STREAM_PIECE_BYTES,
				       z->leaf->bytes - piece * STREAM_PIECE_BYTES);
		uint8_t *p = block_alloc(n);

		r = p ? remote_fetch(z, c, piece, n, p) :
			fail(-ENOMEM, "cannot allocate a piece of a chunk");
		r = r < 0 ? r : chunk_fill_entry(z, e, p, n);
		if (r < 0) {
			block_free(p, n);
			cache_fail(cache, e, r);
			cache_put(cache, e);
			return r;
		}
	}
	*ret = e;
	return 0;
}

void chunk_remote_ahead(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n)
{
	for (uint64_t piece = off / STREAM_PIECE_BYTES; piece <= (off + n - 1) / STREAM_PIECE_BYTES;
	     piece++) {
		struct cache_entry *e;

		if (chunk_remote_piece(z, c, piece, &e) < 0)
			return;
		cache_put(z->env->cache, e);
	}
}
