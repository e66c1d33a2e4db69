/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.c - read and decode innermost chunks.
 *
 * chunk_find.c locates them; stream.c decodes large ones piece by piece.
 */
#include "core/zarr/chunk.h"

#include <assert.h>

#include "core/base/blocks.h"
#include "core/base/err.h"

/* larger chunks are streamed, so that a reader need not wait for all of it */
#define WHOLE_MAX (4 * MiB)
#define WAIT_TRIES 4 /* for a chunk that others failed to fill */

bool chunk_is_streamed(const struct zarr *z)
{
	return z->leaf->bytes > WHOLE_MAX;
}

uint64_t chunk_cost(const struct zarr *z)
{
	return chunk_is_streamed(z) ? 0 : 2 * z->leaf->bytes;
}

struct cache_key chunk_whole_key(const struct zarr *z, uint64_t number)
{
	return (struct cache_key){ z->owner, number, (uint64_t)z->tag << 40 };
}

/* ---- opening ---- */

/* The cached value of a chunk that is not stored. */
static const uint8_t absent;

struct whole {
	struct zarr *z;
	struct chunk *c;
	uint8_t *in; /* a block of in_n bytes: chunk_source_range() */
	size_t in_n;
	uint8_t *out;
};

static int chunk_decode(void *arg)
{
	struct whole *w = arg;
	int r = chunk_source_decode(w->z, &w->c->src, w->in, w->out);

	return r < 0 ? chunk_err(w->z, w->c, r) : 0;
}

/* Read the stored bytes of all chunks in one batch, and make room for the decoded ones. */
static int whole_read(struct zarr *z, struct whole *w, size_t n)
{
	auto_free struct io_req *req = calloc(n, sizeof(*req));
	size_t m = 0;

	if (!req)
		return fail(-ENOMEM, "cannot read %zu chunks", n);
	for (size_t i = 0; i < n; i++) {
		uint64_t off;

		w[i].out = block_alloc(z->leaf->bytes);
		if (!w[i].out)
			return fail(-ENOMEM, "cannot allocate %llu bytes",
				    (unsigned long long)z->leaf->bytes);
		w[i].in_n = chunk_source_range(&w[i].c->src, &off);
		if (!w[i].in_n)
			continue;
		w[i].in = block_alloc(w[i].in_n);
		if (!w[i].in)
			return fail(-ENOMEM, "cannot allocate %zu bytes", w[i].in_n);
		req[m++] = (struct io_req){ .op = IO_READ,
					    .file = w[i].c->src.loc.file,
					    .p = w[i].in,
					    .n = w[i].in_n,
					    .off = off };
	}
	return io_run_exact(z->env->io, req, m);
}

/* The size of a block is needed to free it. */
struct cached_chunk {
	size_t n;
	uint8_t *p;
};

static void cached_chunk_free(void *value)
{
	struct cached_chunk *v = value;

	block_free(v->p, v->n);
	free(v);
}

int chunk_fill_entry(struct zarr *z, struct cache_entry *e, uint8_t *p, size_t n)
{
	struct cached_chunk *v = malloc(sizeof(*v));

	if (!v)
		return fail(-ENOMEM, "cannot allocate a cache entry");
	*v = (struct cached_chunk){ n, p };
	cache_fill(z->env->cache, e, v, block_size(n) + sizeof(*v), cached_chunk_free);
	return 0;
}

const uint8_t *chunk_cached(const struct cache_entry *e)
{
	return ((const struct cached_chunk *)e->value)->p;
}

/* The memory that decoding one chunk takes. */
static uint64_t cost_of(const struct whole *w)
{
	return w->z->leaf->bytes + w->c->src.len;
}

static int fill_group(struct zarr *z, struct whole *w, size_t n, uint64_t cost)
{
	int r;

	/* A chunk that exceeds the budget takes all of it; chunks here are small (WHOLE_MAX). */
	cost = budget_take_most(z->env->budget, cost);
	r = whole_read(z, w, n);
	r = r < 0 ? r : pool_run(z->env->pool, chunk_decode, w, sizeof(*w), n);
	for (size_t i = 0; i < n; i++) {
		block_free(w[i].in, w[i].in_n);
		if (r >= 0)
			r = chunk_fill_entry(z, w[i].c->pin, w[i].out, z->leaf->bytes);
		if (r < 0)
			block_free(w[i].out, z->leaf->bytes);
	}
	budget_give(z->env->budget, cost);
	return r;
}

/*
 * Look up and decode the chunks that this thread began in the cache (mode WHOLE); sets their src.
 */
static int decode_begun(struct zarr *z, struct chunk **begun, size_t n)
{
	auto_free struct chunk *find = calloc(n, sizeof(*find));
	auto_free struct whole *w = calloc(n, sizeof(*w));
	uint64_t budget = budget_total(z->env->budget);
	size_t m = 0;
	int r;

	if (!find || !w)
		return fail(-ENOMEM, "cannot decode %zu chunks", n);
	for (size_t i = 0; i < n; i++)
		memcpy(find[i].index, begun[i]->index, sizeof(find[i].index));
	r = chunk_locate(z, find, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		begun[i]->src = find[i].src;
	for (size_t i = 0; i < n; i++) {
		struct chunk *c = begun[i];
		bool is_stored = c->src.loc.where != KV_ABSENT;

		r = is_stored ? chunk_source_check_size(z, &c->src) : chunk_missing(z, c);
		if (r < 0)
			return r;
		if (is_stored)
			w[m++] = (struct whole){ .z = z, .c = c };
	}
	for (size_t at = 0, k; at < m && r >= 0; at += k) {
		uint64_t cost = cost_of(&w[at]);

		/* As many together as half of the budget holds, at least one. */
		for (k = 1; at + k < m && cost + cost_of(&w[at + k]) <= budget / 2; k++)
			cost += cost_of(&w[at + k]);
		r = fill_group(z, w + at, k, cost);
	}
	return r;
}

/* The same, after which each is filled or failed. */
static int fill_begun(struct zarr *z, struct chunk **begun, size_t n)
{
	int r = decode_begun(z, begun, n);

	for (size_t i = 0; i < n; i++) {
		/* Those that were not filled: absent ones, or all after an error. */
		if (!begun[i]->pin->value) {
			if (r < 0)
				cache_fail(z->env->cache, begun[i]->pin, r);
			else
				cache_fill(z->env->cache, begun[i]->pin, (void *)(uintptr_t)&absent,
					   0, NULL);
		}
		kv_loc_release(&begun[i]->src.loc);
	}
	return r;
}

/* Returns an enum cache_state, or an error. */
static int chunk_begin(struct zarr *z, struct chunk *c)
{
	struct cache_key key = chunk_whole_key(z, c->number);

	return cache_begin(z->env->cache, &key, &c->pin);
}

/*
 * Another thread is filling the chunk. If that fails, the cause may be another chunk of its batch,
 * so this one is tried again before its reader gets the error; if such a batch has begun it again
 * each time, alone.
 */
static int wait_filled(struct zarr *z, struct chunk *c)
{
	struct cache_key alone = chunk_whole_key(z, c->number);
	int r = cache_wait(z->env->cache, c->pin);

	for (int tries = 0; r < 0 && tries < WAIT_TRIES; tries++) {
		cache_put(z->env->cache, take(c->pin));
		r = chunk_begin(z, c);
		if (r == CACHE_MINE)
			return fill_begun(z, &c, 1);
		if (r == CACHE_BUSY)
			r = cache_wait(z->env->cache, c->pin);
	}
	if (r >= 0)
		return 0;
	/* Under a key that no other thread knows. */
	alone.owner = cache_owner();
	cache_put(z->env->cache, take(c->pin));
	r = cache_begin(z->env->cache, &alone, &c->pin);
	return r < 0 ? r : fill_begun(z, &c, 1);
}

/*
 * Chunks of moderate size: find them in the cache, or fill them. A thread fills all chunks that it
 * began before it waits for those of others (cache.h). While it fills them it waits only for
 * resources of a lower order: shard indices, then nodes of the database, then the budget, then the
 * disk. A holder of one of these never waits for an earlier one, so there is no circular wait.
 */
static int open_whole(struct zarr *z, struct chunk **c, size_t n)
{
	auto_free struct chunk **begun = calloc(n, sizeof(struct chunk *));
	auto_free struct chunk **busy = calloc(n, sizeof(struct chunk *));
	size_t n_begun = 0, n_busy = 0;
	int r = begun && busy ? 0 : fail(-ENOMEM, "cannot open %zu chunks", n);

	for (size_t i = 0; i < n && r >= 0; i++) {
		chunk_number(z, c[i]);
		c[i]->mode = CHUNK_WHOLE;
		r = chunk_begin(z, c[i]);
		if (r == CACHE_MINE)
			begun[n_begun++] = c[i];
		else if (r == CACHE_BUSY)
			busy[n_busy++] = c[i];
	}
	for (size_t i = 0; i < n_begun && r < 0; i++)
		cache_fail(z->env->cache, begun[i]->pin, r);
	if (r < 0)
		return r;
	r = n_begun ? fill_begun(z, begun, n_begun) : 0;
	for (size_t i = 0; i < n_busy && r >= 0; i++)
		r = wait_filled(z, busy[i]);
	for (size_t i = 0; i < n && r >= 0; i++)
		if (c[i]->pin->value == &absent) {
			cache_put(z->env->cache, take(c[i]->pin));
			c[i]->mode = CHUNK_FILL;
		}
	return r < 0 ? r : 0;
}

/* Locate a raw range or a stream, without reading it. */
static int open_direct(struct zarr *z, struct chunk *c)
{
	int r;

	chunk_number(z, c);
	/* A live stream knows the place of its bytes. */
	c->stream = c->in_runs && z->leaf_raw ? NULL : stream_find(z, c->number);
	if (c->stream) {
		c->mode = CHUNK_STREAM;
		return 0;
	}
	r = chunk_locate(z, c, 1);
	if (r < 0)
		return r;
	if (c->src.loc.where == KV_ABSENT) {
		c->mode = CHUNK_FILL;
		return chunk_missing(z, c);
	}
	if (z->leaf->codecs.n == 0 && chunk_source_check_size(z, &c->src) < 0)
		return chunk_err(z, c, -EUCLEAN);
	if (z->leaf_raw && c->in_runs && c->src.loc.where == KV_FILE) {
		c->mode = CHUNK_RAW;
		return 0;
	}
	c->mode = CHUNK_STREAM;
	return stream_get(z, c->number, &c->src, &c->stream);
}

/* Small raw chunks that are read in long runs are answered from their file, like large ones. */
bool chunk_is_direct(const struct zarr *z, const struct chunk *c)
{
	return chunk_is_streamed(z) || (z->leaf_raw && c->in_runs && z->leaf->bytes >= 4 * KiB);
}

int chunk_open(struct zarr *z, struct chunk *c, size_t n)
{
	auto_free struct chunk **whole = calloc(n, sizeof(struct chunk *));
	size_t m = 0;
	int r = whole ? 0 : fail(-ENOMEM, "cannot open %zu chunks", n);

	for (size_t i = 0; i < n; i++) {
		c[i].mode = CHUNK_CLOSED;
		c[i].pin = NULL;
		c[i].copied_end = 0;
		c[i].in_ranges = false;
		c[i].stream = NULL;
		c[i].src.loc = (struct kv_loc){ 0 };
	}
	for (size_t i = 0; i < n && r >= 0; i++) {
		/* Bytes that other processes will request are read once, and cached. */
		if (z->env->remote && z->address.p)
			c[i].in_runs = false;
		if (chunk_is_remote(z, &c[i])) {
			chunk_number(z, &c[i]);
			c[i].mode = CHUNK_REMOTE;
		} else if (chunk_is_direct(z, &c[i])) {
			r = open_direct(z, &c[i]);
		} else {
			whole[m++] = &c[i];
		}
	}
	if (r >= 0 && m)
		r = open_whole(z, whole, m);
	if (r < 0)
		chunk_close(z, c, n);
	return r;
}

void chunk_close(struct zarr *z, struct chunk *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		cache_put(z->env->cache, take(c[i].pin));
		kv_loc_release(&c[i].src.loc);
		stream_put(take(c[i].stream));
		c[i].mode = CHUNK_CLOSED;
	}
}

/* ---- reading ---- */

/* Append bytes of a pinned value, with a pin of their own. */
static int segments_pin(struct zarr *z, struct cache_entry *e, const uint8_t *p, size_t n,
			struct segments *g)
{
	struct cache_entry *again;

	/* It was dropped from the cache while it was pinned (its step was deleted), so copy it. */
	if (!cache_peek(z->env->cache, &e->key, CACHE_READY, &again))
		return segments_add_copy(g, p, n);
	return segments_add_pinned(g, again, p, n);
}

/* Make the piece of a stream that contains byte off the current piece of c. */
static int stream_at(struct zarr *z, struct chunk *c, uint64_t off, const uint8_t **ret,
		     size_t *ret_n)
{
	uint64_t piece = off / STREAM_PIECE_BYTES;
	size_t skip = (size_t)(off % STREAM_PIECE_BYTES), n;

	if (!c->pin || c->pin_piece != piece) {
		struct cache_entry *e;
		int r = c->mode == CHUNK_REMOTE ? chunk_remote_piece(z, c, piece, &e) :
						  stream_piece(c->stream, piece, &e);

		/*
		 * When another process could not provide the piece and it was decoded here, the
		 * note names the chunk already.
		 */
		if (r < 0)
			return c->mode == CHUNK_STREAM ? chunk_err(z, c, r) : r;
		cache_put(z->env->cache, c->pin);
		c->pin = e;
		c->pin_piece = piece;
	}
	n = (size_t)MIN((uint64_t)STREAM_PIECE_BYTES, z->leaf->bytes - piece * STREAM_PIECE_BYTES);
	*ret = (c->mode == CHUNK_REMOTE ? chunk_cached(c->pin) : (const uint8_t *)c->pin->value) +
	       skip;
	*ret_n = n - skip;
	return 0;
}

int chunk_gather(struct zarr *z, struct chunk *c, uint64_t off, size_t n, struct segments *g)
{
	if (c->mode == CHUNK_RAW)
		return chunk_raw_gather(z, c, off, n, g);
	if (c->mode == CHUNK_WHOLE)
		return segments_pin(z, c->pin, chunk_cached(c->pin) + off, n, g);
	while (n > 0) {
		const uint8_t *p;
		size_t part;
		int r = stream_at(z, c, off, &p, &part);

		if (r < 0)
			return r;
		part = MIN(part, n);
		r = segments_pin(z, c->pin, p, part, g);
		if (r < 0)
			return r;
		off += part;
		n -= part;
	}
	return 0;
}

int chunk_copy(struct zarr *z, struct chunk *c, const struct strided *s, uint64_t at, uint8_t *to)
{
	uint64_t end = at + strided_span(s);

	if (c->mode == CHUNK_RAW)
		return chunk_raw_copy(z, c, s, at, to);
	if (c->mode == CHUNK_WHOLE) {
		strided_copy(s, chunk_cached(c->pin) + at, to);
		return 0;
	}
	for (uint64_t begin = at - at % STREAM_PIECE_BYTES; begin < end;
	     begin += STREAM_PIECE_BYTES) {
		const uint8_t *piece;
		size_t n;
		int r;

		if (!strided_has(s, at, begin, begin + STREAM_PIECE_BYTES))
			continue;
		r = stream_at(z, c, begin, &piece, &n);
		if (r < 0)
			return r;
		strided_copy_window(s, at, piece, begin, begin + n, to);
	}
	return 0;
}
