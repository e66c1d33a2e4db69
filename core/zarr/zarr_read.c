/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_read.c - a byte range of a view -> segments.
 *
 * The range is divided into boxes, and boxes into parts, one per chunk (grid.c). A box whose parts
 * are contiguous both in the answer and in their chunks is answered by references into the cache or
 * into data files; any other box is copied (reading.c).
 */
#include <assert.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/reading.h"
#include "core/zarr/slab.h"

#define BATCH_PARTS 32  /* chunks opened together */
#define RUN_BYTES 4096  /* runs of at least this size are read from a raw file without the cache */
#define REFER_PARTS 128 /* the most parts of a box that is answered by reference */
#define REFER_PINNED (4 * MiB) /* the most bytes of the cache that such a box keeps pinned */
#define SEGMENTS_MAX 256       /* more segments are copied, here rather than when they are sent */
#define AHEAD_PARTS 64         /* parts that one call decodes ahead of a sequential reader */
#define GUESS_PARTS 512        /* parts that one call decodes for a guess */
/* Larger arrays are not searched for holes, since one seek may have to visit all chunks. */
#define SEEK_CHUNKS ((uint64_t)1 << 18)

/* ---- boxes by reference ---- */

/* Answer one part: copy it to out, the memory of the box; or by reference if that is NULL. */
static int part_answer(struct reading *rd, const struct grid_part *p, struct chunk *c, uint8_t *out)
{
	uint64_t n = grid_part_elements(&rd->grid, p), at;
	size_t bytes = n * rd->out_item;
	uint8_t one[LIMIT_ITEM_BYTES], *block;
	struct strided s;
	int64_t to;

	if (!p->padding && c->mode != CHUNK_FILL) {
		at = reading_part(rd, p, &s, &to);
		return out ? chunk_copy(rd->z, c, &s, at, out + to) :
			     chunk_gather(rd->z, c, at, n * rd->item, rd->g);
	}
	if (out) {
		reading_fill_part(rd, p, out);
		return 0;
	}
	if (p->padding || reading_fill_is_zero(rd))
		return segments_add_zero(rd->g, bytes);
	block = block_alloc(bytes);
	if (!block)
		return fail(-ENOMEM, "cannot allocate %zu bytes", bytes);
	s = (struct strided){ .have = rd->v->dtype, .want = rd->v->dtype };
	reading_fill_value(rd, one);
	strided_add(&s, n, 0, (int64_t)rd->out_item);
	strided_copy(&s, one, block);
	return segments_add_block(rd->g, block, bytes, bytes);
}

/* ---- batches ---- */

struct batch {
	struct grid_part part[BATCH_PARTS];
	struct chunk chunk[BATCH_PARTS]; /* of the parts that are not padding, in order */
	unsigned n;
};

/* The number of parts that the cache and the budget can hold at once. */
static unsigned batch_limit(const struct reading *rd)
{
	const struct zarr_env *env = rd->z->env;
	uint64_t cost = chunk_cost(rd->z),
		 n = cost ? budget_total(env->budget) / 2 / cost : BATCH_PARTS;

	/* The chunks of a slab leave room for slabs of others, but occupy all threads. */
	if (rd->is_pass && cost)
		n = MIN(n, MAX(cache_limit(env->cache) / 4 / cost,
			       env->pool ? (uint64_t)pool_threads(env->pool) : 1));
	return (unsigned)MAX((uint64_t)1, MIN(n, (uint64_t)BATCH_PARTS));
}

/*
 * Whether a box is answered by reference: all parts are runs, and there are few. A box that needs a
 * few bytes of each of many chunks would keep all of these in memory until the answer is sent.
 */
static bool box_is_runs(const struct reading *rd)
{
	uint64_t pin = MIN(rd->z->leaf->bytes, (uint64_t)STREAM_PIECE_BYTES), parts = 0;
	struct grid_part p;
	struct strided s;
	int64_t to;

	if (rd->v->dtype != rd->z->meta.dtype)
		return false;
	grid_part_first(&rd->grid, &rd->box, &p);
	do {
		parts++;
		reading_part(rd, &p, &s, &to);
		if (!strided_is_run(&s) ||
		    (parts > 2 && (parts > REFER_PARTS || parts * pin > REFER_PINNED)))
			return false;
	} while (grid_part_next(&rd->grid, &rd->box, &p));
	return !rd->g || rd->g->n + parts <= SEGMENTS_MAX;
}

/* Answer parts [from, to) of the batch; all parts of a box are in different chunks. */
static int parts_answer(struct reading *rd, struct batch *b, unsigned from, unsigned to,
			uint8_t *out)
{
	struct chunk *c = b->chunk;
	unsigned n_chunks;
	int r = 0;

	for (unsigned i = from; i < to; i++) {
		struct strided s;
		int64_t place;

		if (b->part[i].padding)
			continue;
		memcpy(c->index, b->part[i].chunk, sizeof(c->index));
		reading_part(rd, &b->part[i], &s, &place);
		c->in_runs = strided_run(&s) * rd->item >= RUN_BYTES || !out;
		c->local = false;
		c++;
	}
	n_chunks = (unsigned)(c - b->chunk);
	if (n_chunks)
		r = chunk_open(rd->z, b->chunk, n_chunks);
	if (r < 0)
		return r;
	c = b->chunk;
	for (unsigned i = from; i < to && r >= 0; i++) {
		r = part_answer(rd, &b->part[i], c, out);
		c += !b->part[i].padding;
	}
	for (unsigned i = 0; i < n_chunks && rd->is_pass && !chunk_is_shared(rd->z); i++) {
		struct cache_key key = chunk_whole_key(rd->z, b->chunk[i].number);

		cache_drop_behind(rd->z->env->cache, &key, 1);
	}
	chunk_close(rd->z, b->chunk, n_chunks);
	return r;
}

static bool is_damage(int code)
{
	return code == -EUCLEAN || code == -EBADMSG;
}

static int batch_answer(struct reading *rd, struct batch *b, uint8_t *out)
{
	int r = parts_answer(rd, b, 0, b->n, out);

	if (!rd->found || !is_damage(r))
		return r;
	/* One damaged chunk fails all that are opened with it. */
	r = 0;
	for (unsigned i = 0; i < b->n && r >= 0; i++) {
		r = parts_answer(rd, b, i, i + 1, out);
		if (is_damage(r)) {
			err_clear();
			r = damage_add(rd->found, rd->z, b->part[i].chunk);
		}
	}
	return r;
}

/* Answer all parts of the box, by copying to out, or by reference if that is NULL. */
static int answer_box(struct reading *rd, struct batch *b, uint8_t *out)
{
	unsigned limit = batch_limit(rd);
	struct grid_part p;
	bool more = true;
	int r = 0;

	grid_part_first(&rd->grid, &rd->box, &p);
	while (more && r >= 0) {
		b->n = 0;
		while (more && b->n < limit) {
			if (!rd->only || (!p.padding && damage_has(rd->only, rd->z, p.chunk)))
				b->part[b->n++] = p;
			more = grid_part_next(&rd->grid, &rd->box, &p);
		}
		r = b->n ? batch_answer(rd, b, out) : 0;
	}
	return r;
}

static int reading_answer_box(struct reading *rd, struct batch *b)
{
	bool by_reference = box_is_runs(rd);
	size_t bytes = rd->box.n * rd->out_item;
	uint8_t *out = NULL;
	int r;

	if (!by_reference) {
		out = block_alloc(bytes);
		if (!out)
			return fail(-ENOMEM, "cannot allocate %zu bytes", bytes);
	}
	r = answer_box(rd, b, out);
	if (!out)
		return r;
	if (r < 0) {
		block_free(out, bytes);
		return r;
	}
	return segments_add_block(rd->g, out, bytes, bytes);
}

/*
 * Remove bytes from both ends of what was added since segment `from`, which are parts of elements
 * outside the requested range.
 */
static void reading_trim(struct segments *g, size_t from, uint64_t front, uint64_t back)
{
	for (size_t i = from; front > 0; i++) {
		size_t n = (size_t)MIN(front, (uint64_t)g->seg[i].n);

		g->seg[i].n -= n;
		g->seg[i].off += n;
		g->seg[i].p = (const uint8_t *)g->seg[i].p + n;
		g->bytes -= n;
		front -= n;
	}
	for (size_t i = g->n; back > 0; i--) {
		size_t n = (size_t)MIN(back, (uint64_t)g->seg[i - 1].n);

		g->seg[i - 1].n -= n;
		g->bytes -= n;
		back -= n;
	}
}

int zarr_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, struct segments *g)
{
	auto_free struct batch *b = NULL;
	size_t segments = g->n;
	struct reading rd;
	uint64_t first, last, at;
	int r;

	assert(off <= v->bytes && n <= v->bytes - off);
	if (n == 0)
		return 0;
	trace(TRACE_ZARR, "read '%s' %llu+%zu", z->prefix, (unsigned long long)off, n);
	r = slab_read(z, v, off, n, g);
	if (r <= 0)
		return r;
	b = malloc(sizeof(*b));
	if (!b)
		return fail(-ENOMEM, "cannot read '%s'", z->prefix);
	segments_fence(g);
	reading_init(&rd, z, v, g);
	first = off / rd.out_item;
	last = (off + n - 1) / rd.out_item;
	for (at = first; at <= last; at += rd.box.n) {
		reading_set_box(&rd, at, last - at + 1);
		r = reading_answer_box(&rd, b);
		if (r < 0)
			return r;
	}
	reading_trim(g, segments, off - first * rd.out_item, (last + 1) * rd.out_item - (off + n));
	return 0;
}

int reading_elements(struct zarr *z, const struct zarr_view *v, uint64_t first, uint64_t n,
		     uint8_t *p, struct damage *found, const struct damage *only)
{
	auto_free struct batch *b = malloc(sizeof(*b));
	int r = b ? 0 : fail(-ENOMEM, "cannot read '%s'", z->prefix);
	struct reading rd;

	reading_init(&rd, z, v, NULL);
	rd.is_pass = found != NULL;
	rd.found = found;
	rd.only = only;
	for (uint64_t at = first, end = first + n; at < end && r >= 0; at += rd.box.n) {
		reading_set_box(&rd, at, end - at);
		r = answer_box(&rd, b, p + (at - first) * rd.out_item);
	}
	return r;
}

int zarr_read_into(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, void *p)
{
	struct zarr_view whole;
	auto_segments g;
	int r;

	if (!v)
		zarr_view_whole(&z->meta, &whole);
	segments_init(&g, z->env->cache);
	r = zarr_read(z, v ? v : &whole, off, n, &g);
	return r < 0 ? r : segments_copy(&g, p);
}

void zarr_prefetch(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n,
		   struct zarr_guess *guess)
{
	unsigned budget = guess ? GUESS_PARTS : AHEAD_PARTS;
	struct reading rd;
	uint64_t at, last;

	/* A slab is decoded by all threads when its first row is read. */
	if (!z->env->pool || off >= v->bytes || n == 0 || slab_is_for(z, v))
		return;
	reading_init(&rd, z, v, NULL);
	n = MIN(n, v->bytes - off);
	last = (off + n - 1) / rd.out_item;
	for (at = off / rd.out_item; at <= last && budget;) {
		struct grid_part p;

		reading_set_box(&rd, at, last - at + 1);
		grid_part_first(&rd.grid, &rd.box, &p);
		do {
			struct strided s;
			uint64_t from;
			int64_t to;

			if (p.padding)
				continue;
			from = reading_part(&rd, &p, &s, &to);
			chunk_prefetch(z, p.chunk, from, strided_span(&s), guess);
		} while (--budget && grid_part_next(&rd.grid, &rd.box, &p));
		at += rd.box.n;
	}
}

/* Whether everything in a box reads as zeros and is not stored: returns 1 or 0. */
static int box_is_hole(struct reading *rd)
{
	struct grid_part p;

	grid_part_first(&rd->grid, &rd->box, &p);
	do {
		struct chunk c = { 0 };
		bool stored;
		int r;

		if (p.padding)
			continue;
		memcpy(c.index, p.chunk, sizeof(c.index));
		r = chunk_locate(rd->z, &c, 1);
		if (r < 0)
			return r;
		stored = c.src.loc.where != KV_ABSENT;
		kv_loc_release(&c.src.loc);
		if (stored)
			return 0;
	} while (grid_part_next(&rd->grid, &rd->box, &p));
	return 1;
}

/*
 * The number of elements up to the next chunk boundary on the outermost axis with more than one
 * position.
 */
static uint64_t slab_elements(const struct reading *rd, uint64_t first)
{
	const struct grid_axis *a = rd->grid.axis, *end = a + rd->grid.rank;
	uint64_t inner = 1, at, position;

	/* Leading axes of one position do not split anything. */
	while (a < end && a->count <= 1)
		a++;
	if (a == end)
		return 1;
	for (const struct grid_axis *b = a + 1; b < end; b++)
		inner *= b->count;
	at = first / inner;
	position = a->start + a->step * at;
	/* Everything after the stored elements is one hole. */
	if (position >= a->extent)
		return a->count * inner - first;
	at += div_up(a->chunk - position % a->chunk, a->step);
	return MIN(at, a->count) * inner - first;
}

/* Whether the view has few enough chunks to examine each. */
static bool has_few_chunks(const struct reading *rd)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < rd->grid.rank; i++) {
		const struct grid_axis *a = &rd->grid.axis[i];

		if (!mul_fits(n, MIN(a->count, div_up(a->extent, a->chunk) + 1), &n) ||
		    n > SEEK_CHUNKS)
			return false;
	}
	return true;
}

int zarr_seek(struct zarr *z, const struct zarr_view *v, uint64_t off, int whence, uint64_t *ret)
{
	struct reading rd;
	uint64_t at;

	reading_init(&rd, z, v, NULL);
	if (z->missing_is_error || !reading_fill_is_zero(&rd) || !has_few_chunks(&rd)) {
		*ret = whence == SEEK_DATA ? off : v->bytes;
		return 0;
	}
	for (at = off / rd.out_item; at < v->n_elements;) {
		int hole;

		reading_set_box(&rd, at, slab_elements(&rd, at));
		hole = box_is_hole(&rd);
		if (hole < 0)
			return hole;
		if (hole == (whence == SEEK_HOLE)) {
			*ret = MAX(off, at * rd.out_item);
			return 0;
		}
		at += rd.box.n;
	}
	*ret = v->bytes;
	return 0;
}

static void explain_part(struct reading *rd, const struct grid_part *p, bool json, struct buf *out)
{
	struct zarr *z = rd->z;
	struct chunk c = { 0 };
	struct cache_key key;
	struct strided s;
	uint64_t from;
	int64_t to;
	bool pieces = chunk_is_streamed(z), cached;

	if (p->padding) {
		buf_add_str(out, json ? "{\"padding\": true}" : "  padding\n");
		return;
	}
	memcpy(c.index, p->chunk, sizeof(c.index));
	chunk_number(z, &c);
	from = reading_part(rd, p, &s, &to);
	key = pieces ? stream_piece_key(z, c.number, from / STREAM_PIECE_BYTES) :
		       chunk_whole_key(z, c.number);
	cached = cache_has(z->env->cache, &key, CACHE_READY);
	buf_add_str(out, json ? "{" : "  ");
	(json ? chunk_json : chunk_text)(z, &c, out);
	buf_addf(out,
		 json ? ", \"offset\": %llu, \"length\": %llu, \"bytes\": %llu, "
			"\"in_pieces\": %s, \"cached\": %s}" :
			" bytes %llu+%llu of %llu, %s, %s\n",
		 (unsigned long long)from, (unsigned long long)strided_span(&s),
		 (unsigned long long)z->leaf->bytes,
		 json   ? pieces ? "true" : "false" :
		 pieces ? "in pieces" :
			  "whole",
		 json   ? cached ? "true" : "false" :
		 cached ? "cached" :
			  "not cached");
}

int zarr_explain(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n, bool json,
		 struct buf *out)
{
	struct reading rd;
	uint64_t at, last;

	if (json)
		buf_add_byte(out, '[');
	reading_init(&rd, z, v, NULL);
	last = n ? (off + n - 1) / rd.out_item : 0;
	for (at = off / rd.out_item; n && at <= last && !buf_failed(out); at += rd.box.n) {
		struct grid_part p;
		bool first = true, runs;

		reading_set_box(&rd, at, last - at + 1);
		runs = box_is_runs(&rd);
		if (json)
			buf_addf(out,
				 "%s\n{\"element\": %llu, \"elements\": %llu, \"copied\": %s, "
				 "\"parts\": [",
				 at > off / rd.out_item ? "," : "", (unsigned long long)rd.box.at,
				 (unsigned long long)rd.box.n, runs ? "false" : "true");
		else
			buf_addf(out, "box of %llu elements from element %llu, %s\n",
				 (unsigned long long)rd.box.n, (unsigned long long)rd.box.at,
				 runs ? "by reference" : "copied");
		grid_part_first(&rd.grid, &rd.box, &p);
		do {
			if (json)
				buf_add_str(out, first ? "\n  " : ",\n  ");
			explain_part(&rd, &p, json, out);
			first = false;
		} while (!buf_failed(out) && grid_part_next(&rd.grid, &rd.box, &p));
		if (json)
			buf_add_str(out, "]}");
	}
	if (json)
		buf_add_byte(out, ']');
	return buf_failed(out);
}
