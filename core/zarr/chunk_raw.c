/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_raw.c - answers from raw chunks.
 *
 * A raw chunk of a local file is answered by a range of that file, which the kernel reads ahead. In
 * a store the next pieces of a sequential reader are fetched ahead (fetch.h), and an answer takes
 * them from the cache, as do the runs of a view that are near each other. What takes a large part
 * of one piece fetches the piece, so that no byte is requested twice: the kernel requests a file in
 * several parts at once. Everything else is read by its exact ranges, in one round trip, so a
 * reader that jumps fetches only the bytes that it needs.
 */
#include "core/base/err.h"
#include "core/zarr/chunk.h"
#include "core/zarr/fetch.h"

/* Between two runs, so that a piece has eight of them at least. */
#define NEAR (STREAM_PIECE_BYTES / 8)
#define SCRATCH 8192 /* bytes that are converted at once */

bool chunk_raw_is_fetched(const struct zarr *z)
{
	return z->leaf_raw && z->env->in_store;
}

static struct fetch raw_fetch_of(struct zarr *z, const struct chunk *c)
{
	return (struct fetch){ .z = z,
			       .file = c->src.loc.file,
			       .off = c->src.loc.off + c->src.off,
			       .len = z->leaf->bytes,
			       .number = c->number,
			       .kind = FETCH_RAW };
}

void chunk_raw_ahead(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n, bool is_guess)
{
	struct fetch f = raw_fetch_of(z, c);

	fetch_pieces(&f, off / STREAM_PIECE_BYTES, (off + n - 1) / STREAM_PIECE_BYTES, is_guess);
}

/*
 * The piece that a part of `n` bytes lies in, if it is there or in flight. A large part fetches it:
 * the job that fetches ahead may be about to, and would request the same bytes again. This takes a
 * round trip for each piece, so it is for answers to the kernel, which are no longer than a piece.
 */
static bool piece_for(const struct fetch *f, uint64_t piece, size_t n, struct cache_entry **ret)
{
	if (fetch_find(f, piece, ret))
		return true;
	if (n < MIN(STREAM_PIECE_BYTES, f->len - piece * STREAM_PIECE_BYTES) / 4 ||
	    cache_limit_now(f->z->env->cache) < 2 * FETCH_BYTES)
		return false;
	fetch_pieces(f, piece, piece, false);
	return fetch_find(f, piece, ret);
}

int chunk_raw_gather(struct zarr *z, struct chunk *c, uint64_t off, size_t n, struct segments *g)
{
	struct fetch f = raw_fetch_of(z, c);
	bool is_short = n <= STREAM_PIECE_BYTES;

	atomic_fetch_add_explicit(&z->env->raw_bytes, n, memory_order_relaxed);
	if (!chunk_raw_is_fetched(z))
		return segments_add_file(g, io_file_ref(f.file), f.off + off, n);
	while (n > 0) {
		uint64_t piece = off / STREAM_PIECE_BYTES;
		size_t skip = (size_t)(off % STREAM_PIECE_BYTES),
		       part = MIN(n, STREAM_PIECE_BYTES - skip);
		struct cache_entry *e;
		int r;

		if (is_short ? piece_for(&f, piece, part, &e) : fetch_find(&f, piece, &e))
			r = segments_add_pinned(g, e, chunk_cached(e) + skip, part);
		else
			r = segments_add_file(g, io_file_ref(f.file), f.off + off, part);
		if (r < 0)
			return r;
		off += part;
		n -= part;
	}
	return 0;
}

/*
 * Pin the piece of a short run that is near the last one: a view of every fourth row, or of a
 * column, has thousands of runs, and each would be a request.
 */
static void pin_near(struct zarr *z, struct chunk *c, uint64_t off)
{
	uint64_t piece = off / STREAM_PIECE_BYTES, end = c->copied_end;
	struct fetch f = raw_fetch_of(z, c);

	if ((c->pin && c->pin_piece == piece) || c->in_ranges || end == 0 ||
	    (off > end ? off - end : end - off) > NEAR)
		return;
	cache_put(z->env->cache, take(c->pin));
	if (!fetch_find(&f, piece, &c->pin)) {
		fetch_pieces(&f, piece, piece + (off > end ? FETCH_PIECES - 1 : 0), false);
		c->in_ranges = !fetch_find(&f, piece, &c->pin);
	}
	c->pin_piece = piece;
}

static int raw_copy_bytes(struct zarr *z, struct chunk *c, uint64_t off, size_t n, void *p)
{
	uint64_t piece = off / STREAM_PIECE_BYTES;
	size_t skip = (size_t)(off % STREAM_PIECE_BYTES);
	struct segments g;
	int r;

	if (!chunk_raw_is_fetched(z))
		return io_read_exact(c->src.loc.file, p, n, c->src.loc.off + c->src.off + off);
	if (n <= STREAM_PIECE_BYTES - skip) {
		pin_near(z, c, off);
		c->copied_end = off + n;
		if (c->pin && c->pin_piece == piece) {
			memcpy(p, chunk_cached(c->pin) + skip, n);
			atomic_fetch_add_explicit(&z->env->raw_bytes, n, memory_order_relaxed);
			return 0;
		}
	}
	segments_init(&g, z->env->cache);
	r = chunk_raw_gather(z, c, off, n, &g);
	r = r < 0 ? r : segments_copy(&g, p);
	segments_release(&g);
	return r;
}

struct raw_copy {
	struct zarr *z;
	struct chunk *c;
	const struct strided *s;
	uint64_t at;
	uint8_t *to;
};

static int raw_copy_row(void *arg, uint64_t at, uint64_t n, int64_t to)
{
	const struct raw_copy *w = arg;
	const struct strided *s = w->s;
	size_t item = dtype_info(s->have)->size;
	uint64_t end = at + (n - 1) * (s->rank ? s->from[s->rank - 1] : 0) + item;
	uint8_t scratch[SCRATCH];

	if (s->have == s->want && strided_run(s) >= n)
		return raw_copy_bytes(w->z, w->c, at, n * item, w->to + to);
	for (size_t part; at < end; at += part) {
		int r;

		part = (size_t)MIN(end - at, (uint64_t)SCRATCH);
		r = raw_copy_bytes(w->z, w->c, at, part, scratch);
		if (r < 0)
			return r;
		strided_copy_window(s, w->at, scratch, at, at + part, w->to);
	}
	return 0;
}

int chunk_raw_copy(struct zarr *z, struct chunk *c, const struct strided *s, uint64_t at,
		   uint8_t *to)
{
	struct raw_copy w = { z, c, s, at, to };

	return strided_rows(s, at, 0, UINT64_MAX, raw_copy_row, &w);
}
