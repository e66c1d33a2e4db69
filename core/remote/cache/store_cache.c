/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache.c - splits a batch of reads into pieces, reads those that are on disk, and
 * fetches and stores the others.
 *
 * The blocks of a piece that requests want are read into the buffer of the request if it is only
 * one and wants whole blocks, which is so for all but the ends of a long range; otherwise into a
 * copy. Objects without a tag, or with a weak one, are not stored.
 *
 * Invariant: bytes from the disk are compared with their checksum before they are a result.
 */
#include "core/remote/cache/store_cache.h"

#include "core/base/array.h"
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/cache/piece_dir.h"

#define ROUND 32          /* files of the cache that a batch has open at once */
#define COPIES (16 * MiB) /* the most memory for copies, in all batches */

struct store_cache {
	struct store_cache_opts opts;
	struct piece_dir *dir;
	atomic_ullong copies; /* bytes */
	atomic_ullong hits, misses, hit_bytes, fetched_bytes;
};

/* The bytes that one request wants of one piece. */
struct part {
	struct io_req *req;
	uint64_t off; /* in the object */
	size_t n;
};

enum piece_state { PIECE_NEW, PIECE_READING, PIECE_MISSING, PIECE_FETCHING, PIECE_DONE };

struct piece {
	enum piece_state state;
	bool is_retained; /* it is stored on disk after it is fetched */
	uint64_t off;     /* in the object */
	size_t n;
	size_t first, n_parts;
	struct piece_id id;
	struct io_file *file; /* of the cache; while it is read */
	uint8_t *p; /* buffer for a range of it, `from` and `len`: the caller's memory, or a copy */
	bool is_copy;
	size_t from, len;
	uint8_t tail[PIECE_TAIL_MAX];
};

struct batch {
	struct store_cache *c;
	struct part *part; /* sorted by object and offset */
	struct piece *piece;
	struct io_req *fetch;  /* requests to the store below */
	size_t *fetched_piece; /* the piece of each */
	size_t n, cap, n_pieces, n_fetch;
	struct io_req local[2 * ROUND]; /* tail and range of each piece that is read */
	size_t reading[ROUND], n_reading, n_local;
	size_t next;   /* the next piece to look for on disk */
	size_t n_reqs; /* requests that have not been waited for */
	bool is_done;
};

static void cache_read_add(atomic_ullong *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- parts and pieces ---- */

static void cache_read_batch_free(struct batch *b)
{
	if (!b)
		return;
	free(b->part);
	free(b->piece);
	free(b->fetch);
	free(b->fetched_piece);
	free(b);
}

/* Split a request into parts, and set its result to that of success. */
static int cache_read_add_parts(struct batch *b, struct io_req *q)
{
	uint64_t at = q->off + q->done, end = MIN(q->off + q->n, q->file->size);

	q->result = at < end ? (int64_t)(end - at) : 0;
	while (at < end) {
		size_t n = (size_t)MIN(PIECE_BYTES - at % PIECE_BYTES, end - at);

		if (!array_reserve(b->part, b->cap, b->n + 1))
			return fail(-ENOMEM, "cannot read '%s'", q->file->name);
		b->part[b->n++] = (struct part){ q, at, n };
		at += n;
	}
	return 0;
}

static int by_object(const struct part *a, const struct part *b)
{
	const struct io_file *x = a->req->file, *y = b->req->file;
	int c = x == y ? 0 : strcmp(x->key, y->key);

	if (c == 0 && x != y)
		c = strcmp(x->tag, y->tag);
	return c ? c : (x->size > y->size) - (x->size < y->size);
}

static int cache_read_by_place(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	int c = by_object(x, y);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

/* Objects are identified by their full URL, since mounts of other SOURCEs may share them. */
static int cache_read_identify(const struct store_cache *c, const struct io_file *file,
			       struct piece_id *ret)
{
	auto_buf url = { 0 };
	if (buf_addf(&url, "%s/", c->opts.root) < 0 || path_escape(&url, file->key) < 0)
		return fail(-ENOMEM, "cannot read '%s'", file->name);
	piece_object_id(buf_span(&url), file->tag, file->size, ret);
	return 0;
}

/* Whether a tag changes with each change of the bytes, which weak ETags do not. */
static bool is_strong_tag(const char *tag)
{
	return *tag && strncmp(tag, "W/", 2) != 0;
}

static int make_pieces(struct batch *b)
{
	struct piece_id object;
	int r = 0;

	if (b->n)
		qsort(b->part, b->n, sizeof(*b->part), cache_read_by_place);
	b->piece = calloc(b->n + 1, sizeof(*b->piece));
	b->fetch = calloc(b->n + 1, sizeof(*b->fetch));
	b->fetched_piece = calloc(b->n + 1, sizeof(*b->fetched_piece));
	if (!b->piece || !b->fetch || !b->fetched_piece)
		return fail(-ENOMEM, "cannot read %zu pieces", b->n);
	for (size_t i = 0; i < b->n && r >= 0; i++) {
		const struct part *part = &b->part[i];
		const struct io_file *file = part->req->file;
		uint64_t off = part->off - part->off % PIECE_BYTES;
		bool is_same = i && !by_object(part - 1, part);
		struct piece *p;

		if (!is_same && is_strong_tag(file->tag))
			r = cache_read_identify(b->c, file, &object);
		if (!is_same || b->piece[b->n_pieces - 1].off != off) {
			p = &b->piece[b->n_pieces++];
			*p = (struct piece){ .off = off,
					     .n = (size_t)MIN(PIECE_BYTES, file->size - off),
					     .first = i };
			p->is_retained = is_strong_tag(file->tag);
			p->state = p->is_retained ? PIECE_NEW : PIECE_MISSING;
			if (p->is_retained)
				piece_id_of(&object, off / PIECE_BYTES, &p->id);
		}
		b->piece[b->n_pieces - 1].n_parts++;
	}
	return r;
}

static uint8_t *cache_read_place_of(const struct part *part)
{
	return (uint8_t *)part->req->p + (part->off - part->req->off);
}

static void leave_buffer(struct batch *b, struct piece *p)
{
	if (p->is_copy) {
		block_free(p->p, p->len);
		atomic_fetch_sub(&b->c->copies, p->len);
	}
	p->p = NULL;
	p->is_copy = false;
}

/*
 * Take a buffer for a range of a piece: the request's own if only one wants the piece, and wants
 * the whole range; else a copy. False: there is no room for a copy.
 */
static bool take_buffer(struct batch *b, struct piece *p, size_t from, size_t len, bool must)
{
	const struct part *part = &b->part[p->first];
	uint64_t off = p->off + from;

	p->from = from;
	p->len = len;
	if (p->n_parts == 1 && part->off <= off && part->off + part->n >= off + len) {
		p->p = cache_read_place_of(part) + (off - part->off);
		return true;
	}
	if (atomic_fetch_add(&b->c->copies, len) + len <= COPIES || must)
		p->p = block_alloc(len);
	p->is_copy = p->p;
	if (!p->p)
		atomic_fetch_sub(&b->c->copies, len);
	return p->p;
}

/* Copy the bytes of a piece to the requests that want them. */
static void copy_to_requests(struct batch *b, struct piece *p)
{
	uint64_t off = p->off + p->from;

	for (size_t i = p->first; i < p->first + p->n_parts && p->is_copy; i++) {
		const struct part *part = &b->part[i];
		uint64_t from = MAX(part->off, off), to = MIN(part->off + part->n, off + p->len);

		if (from < to)
			memcpy(cache_read_place_of(part) + (from - part->off), p->p + (from - off),
			       to - from);
	}
	leave_buffer(b, p);
	p->state = PIECE_DONE;
}

/* ---- from the disk ---- */

static void add_local(struct batch *b, struct piece *p, uint8_t *to, size_t from, size_t len)
{
	b->local[b->n_local++] = (struct io_req){
		.op = IO_READ, .file = p->file, .p = to, .n = len, .off = from, .result = -EIO
	};
}

/* Add the reads of a piece to this round. False: the round has no room for it. */
static bool add_read(struct batch *b, size_t i)
{
	struct piece *p = &b->piece[i];
	uint64_t from = b->part[p->first].off - p->off, to = 0;

	if (b->n_reading == ROUND)
		return false;
	p->file = piece_dir_get(b->c->dir, &p->id, p->n);
	if (!p->file) {
		p->state = PIECE_MISSING;
		return true;
	}
	/* The blocks that requests want. */
	from -= from % PIECE_BLOCK;
	for (size_t k = p->first; k < p->first + p->n_parts; k++)
		to = MAX(to, b->part[k].off + b->part[k].n - p->off);
	to = MIN(round_up(to, PIECE_BLOCK), p->n);
	if (!take_buffer(b, p, (size_t)from, (size_t)(to - from), !b->n_reading)) {
		io_file_unref(take(p->file));
		/* Memory is too short even for this piece alone, so fetch it directly. */
		p->state = b->n_reading ? PIECE_NEW : PIECE_MISSING;
		return !b->n_reading;
	}
	add_local(b, p, p->tail, p->n, piece_tail_bytes(p->n));
	add_local(b, p, p->p, p->from, p->len);
	p->state = PIECE_READING;
	b->reading[b->n_reading++] = i;
	return true;
}

/* Begin a round of reads; pieces that are not on disk become missing. */
static void begin_reads(struct batch *b)
{
	for (; b->next < b->n_pieces; b->next++)
		if (b->piece[b->next].state == PIECE_NEW && !add_read(b, b->next))
			break;
	if (b->n_reading)
		io_submit(b->local[0].file->io, b->local, b->n_local);
}

static void end_reads(struct batch *b)
{
	if (b->n_reading)
		io_wait(b->local[0].file->io, b->local, b->n_local);
	for (size_t i = 0; i < b->n_reading; i++) {
		struct piece *p = &b->piece[b->reading[i]];
		const struct io_req *tail = &b->local[2 * i], *range = tail + 1;

		if (tail->result == (int64_t)tail->n && piece_tail_is_of(p->tail, &p->id, p->n) &&
		    range->result == (int64_t)range->n &&
		    piece_blocks_match(p->tail, p->from, span_of(p->p, p->len))) {
			piece_dir_used(b->c->dir, p->file);
			cache_read_add(&b->c->hits, 1);
			cache_read_add(&b->c->hit_bytes, p->len);
			copy_to_requests(b, p);
		} else {
			piece_dir_damaged(b->c->dir, &p->id);
			leave_buffer(b, p);
			p->state = PIECE_MISSING;
		}
		io_file_unref(take(p->file));
	}
	b->n_reading = b->n_local = 0;
	err_clear();
}

/* ---- from the store below ---- */

static void add_fetch(struct batch *b, size_t i, uint8_t *to, uint64_t off, size_t n)
{
	struct io_file *file = b->part[b->piece[i].first].req->file;

	b->fetched_piece[b->n_fetch] = i;
	b->fetch[b->n_fetch++] = (struct io_req){
		.op = IO_READ, .file = file, .p = to, .n = n, .off = off, .result = -EIO
	};
	b->piece[i].state = PIECE_FETCHING;
}

/* Fetch only the bytes that requests want, not the whole piece. */
static void fetch_parts(struct batch *b, size_t i)
{
	struct piece *p = &b->piece[i];

	p->is_retained = false;
	for (size_t k = p->first; k < p->first + p->n_parts; k++)
		add_fetch(b, i, cache_read_place_of(&b->part[k]), b->part[k].off, b->part[k].n);
}

/*
 * Begin to fetch missing pieces, as many as there is memory for; the others follow after these. If
 * there is not enough for one, fetch only the wanted bytes. -errno with a note: nothing was begun.
 */
static int begin_fetch(struct batch *b)
{
	int r;

	for (size_t i = 0; i < b->n_pieces; i++) {
		struct piece *p = &b->piece[i];

		if (p->state != PIECE_MISSING)
			continue;
		if (!p->is_retained)
			fetch_parts(b, i);
		else if (take_buffer(b, p, 0, p->n, false))
			add_fetch(b, i, p->p, p->off, p->n);
	}
	for (size_t i = 0; i < b->n_pieces && !b->n_fetch; i++)
		if (b->piece[i].state == PIECE_MISSING)
			fetch_parts(b, i);
	if (!b->n_fetch)
		return 0;
	r = b->c->opts.submit(b->c->opts.store, b->fetch, b->n_fetch);
	if (r < 0) {
		for (size_t i = 0; i < b->n_pieces; i++)
			if (b->piece[i].state == PIECE_FETCHING)
				leave_buffer(b, &b->piece[i]);
		b->n_fetch = 0;
	}
	return r;
}

/* Set the error of all requests that want bytes of a piece that could not be fetched. */
static void set_failed(struct batch *b, const struct piece *p, int code, const char *why)
{
	for (size_t i = p->first; i < p->first + p->n_parts; i++) {
		struct io_req *q = b->part[i].req;

		if (q->result < 0)
			continue;
		q->result = code;
		q->why = why ? strdup(why) : NULL;
	}
}

static void end_fetch(struct batch *b)
{
	int r = b->n_fetch ? b->c->opts.wait(b->c->opts.store, b->fetch, b->n_fetch) : 0;

	for (size_t i = 0; i < b->n_fetch; i++) {
		struct io_req *q = &b->fetch[i];
		struct piece *p = &b->piece[b->fetched_piece[i]];
		bool is_right = r >= 0 && q->result == (int64_t)q->n;

		if (is_right)
			cache_read_add(&b->c->fetched_bytes, q->n);
		else
			set_failed(b, p, r < 0 ? r : q->result < 0 ? (int)q->result : -EIO, q->why);
		if (is_right && p->is_retained)
			piece_dir_put(b->c->dir, &p->id, span_of(p->p, p->n));
		if (is_right)
			copy_to_requests(b, p);
		leave_buffer(b, p);
		p->state = PIECE_DONE;
		free(take(q->why));
	}
	b->n_fetch = 0;
	err_clear();
}

/* ---- batches ---- */

static size_t cache_read_missing(const struct batch *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_pieces; i++)
		n += b->piece[i].state == PIECE_MISSING;
	return n;
}

static int begin_batch(struct batch *b, struct io_req *req, size_t n)
{
	int r;

	for (size_t i = 0; i < n; i++) {
		if (req[i].op != IO_READ)
			return fail(-EROFS, "'%s' is only read", req[i].file->name);
		r = cache_read_add_parts(b, &req[i]);
		if (r < 0)
			return r;
	}
	r = make_pieces(b);
	if (r < 0)
		return r;
	begin_reads(b);
	while (b->next < b->n_pieces) {
		end_reads(b);
		begin_reads(b);
	}
	cache_read_add(&b->c->misses, cache_read_missing(b));
	return begin_fetch(b);
}

int store_cache_submit(struct store_cache *c, struct io_req *req, size_t n)
{
	struct batch *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot read %zu ranges", n);
	b->c = c;
	r = begin_batch(b, req, n);
	if (r < 0) {
		struct err_note why;

		err_save(r, &why);
		end_reads(b);
		cache_read_batch_free(b);
		return err_restore(&why);
	}
	b->n_reqs = n;
	for (size_t i = 0; i < n; i++)
		req[i].under_way = b;
	return 0;
}

/* Complete a batch. Reads come first, since a damaged file makes its piece a missing one. */
static void cache_read_finish(struct batch *b)
{
	end_reads(b);
	end_fetch(b);
	while (cache_read_missing(b)) {
		int r = begin_fetch(b);

		for (size_t i = 0; i < b->n_pieces && r < 0; i++)
			if (b->piece[i].state == PIECE_MISSING ||
			    b->piece[i].state == PIECE_FETCHING) {
				set_failed(b, &b->piece[i], r, err_text(r));
				b->piece[i].state = PIECE_DONE;
			}
		end_fetch(b);
	}
	b->is_done = true;
}

int store_cache_wait(struct store_cache *c, struct io_req *req, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct batch *b = take(req[i].under_way);

		if (!b->is_done)
			cache_read_finish(b);
		if (--b->n_reqs == 0)
			cache_read_batch_free(b);
	}
	return 0;
}

/* ---- the cache ---- */

int store_cache_new(const struct store_cache_opts *opts, struct store_cache **ret)
{
	struct store_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return fail(-ENOMEM, "cannot open cache_dir='%s'", opts->dir);
	c->opts = *opts;
	*ret = c;
	return 0;
}

void store_cache_free(struct store_cache *c)
{
	if (c)
		piece_dir_close(c->dir);
	free(c);
}

int store_cache_begin(struct store_cache *c, struct io_engine *io)
{
	return piece_dir_open(io, c->opts.dir, c->opts.limit, &c->dir);
}

void store_cache_stats(struct store_cache *c, struct io_store_stats *ret)
{
	struct piece_dir_stats dir;

	piece_dir_stats(c->dir, &dir);
	ret->has_cache = true;
	ret->cache_hits = atomic_load(&c->hits);
	ret->cache_misses = atomic_load(&c->misses);
	ret->cache_hit_bytes = atomic_load(&c->hit_bytes);
	ret->fetched_bytes = atomic_load(&c->fetched_bytes);
	ret->cache_stored = dir.stored;
	ret->cache_evicted = dir.evicted;
	ret->cache_damaged = dir.damaged;
}
