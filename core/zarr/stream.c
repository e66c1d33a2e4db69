/*
 * stream.c - pieces of large chunks: one driver decodes, others wait, a spill file remembers.
 *
 * Kept true: pieces [0, spilled) are in the spill file; the decoder has produced
 * [0, pos); at most one thread drives a stream, and it holds no lock while it
 * decodes. A stream is closed only when nobody holds it.
 *
 * Lock order: the table's lock before a stream's; neither is held across I/O.
 */
#include "core/zarr/stream.h"

#include <fcntl.h>
#include <pthread.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/cast.h"
#include "core/zarr/spill.h"

#define STREAMS_MAX 64			/* live at once, held ones not counted */
#define DECODERS_MAX 8			/* of them with a decoder's memory */
#define INPUT_BYTES (512 * KiB)
#define JUMP_PIECES 24			/* a first access this far in comes from a reader that jumps */

struct stream {
	struct stream *next;		/* in the table, most recently used first; protected by its lock */
	unsigned holds;			/* protected by the table's lock */
	struct streams *table;
	struct zarr *z;			/* a reference */
	uint64_t owner, number;		/* z->owner and z->tag with it make the key */
	struct kv_loc loc;		/* where the value is; immutable */
	uint64_t off, len;		/* the chunk's stored bytes inside it */
	uint64_t bytes, pieces;		/* decoded */

	pthread_mutex_t lock;		/* protects all below but what the driver owns */
	pthread_cond_t moved;
	bool driving, job_posted;
	uint64_t pos, want;		/* next piece to decode; a job stops behind want */
	uint64_t spilled;
	bool may_spill;			/* a reader jumped, and there may be a spill file */
	struct err_note failed;		/* sticky: the bytes are broken; code 0 when not */

	/* The driver's own. */
	struct codec_stream *decoder;
	uint64_t fed;			/* stored bytes given to the decoder */
	uint8_t *input;
	struct spill *spill;		/* readable by all once spilled > 0 */

	struct pool_job job;
};

struct streams {
	pthread_mutex_t lock;		/* protects all below */
	struct stream *first;
	unsigned n;
	char *spill_dir;
	uint64_t spill_limit, spill_used;
	uint64_t window_limit;
	struct streams_stats stats;
};

int streams_new(const char *spill_dir, uint64_t spill_limit, uint64_t window_limit, struct streams **ret)
{
	struct streams *t = calloc(1, sizeof(*t));

	if (t && spill_dir) {
		t->spill_dir = strdup(spill_dir);
		if (!t->spill_dir) {
			free(t);
			t = NULL;
		}
	}
	if (!t)
		return fail(-ENOMEM, "cannot allocate the table of streams");
	t->spill_limit = spill_limit;
	t->window_limit = window_limit;
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

static void decoder_close(struct stream *s)
{
	codec_stream_close(take(s->decoder));
	block_free(take(s->input), INPUT_BYTES);
}

/* Only for a stream that nobody holds and that is out of the table. */
static void stream_free(struct stream *s)
{
	decoder_close(s);
	spill_close(s->spill);
	kv_loc_release(&s->loc);
	zarr_unref(s->z);
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void streams_free(struct streams *t)
{
	if (!t)
		return;
	while (t->first) {
		struct stream *s = t->first;

		t->first = s->next;
		stream_free(s);
	}
	pthread_mutex_destroy(&t->lock);
	free(t->spill_dir);
	free(t);
}

/* Called with the table's lock held; the stream is freed later, without it. */
static void table_remove(struct streams *t, struct stream **at, struct stream **out)
{
	struct stream *s = *at;

	*at = s->next;
	t->n--;
	if (s->spill)
		t->spill_used -= s->bytes;
	s->next = *out;
	*out = s;
}

static void free_all(struct stream *s)
{
	while (s) {
		struct stream *next = s->next;

		stream_free(s);
		s = next;
	}
}

void streams_drop(struct streams *t, uint64_t owner)
{
	struct stream *out = NULL;

	pthread_mutex_lock(&t->lock);
	for (struct stream **at = &t->first; *at;) {
		if ((*at)->owner == owner && (*at)->holds == 0)
			table_remove(t, at, &out);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&t->lock);
	free_all(out);
}

void streams_stats(struct streams *t, struct streams_stats *ret)
{
	pthread_mutex_lock(&t->lock);
	*ret = t->stats;
	ret->live = t->n;
	ret->spill_bytes = t->spill_used;
	pthread_mutex_unlock(&t->lock);
}

/*
 * Bound what idle streams keep: beyond the limits, the least recently used that
 * nobody holds go. Called with the table's lock held.
 */
static struct stream *shrink(struct streams *t)
{
	struct stream *out = NULL;
	unsigned seen = 0, decoders = 0;

	for (struct stream **at = &t->first; *at;) {
		struct stream *s = *at;

		seen++;
		/* A held stream's decoder is its driver's business. */
		decoders += s->holds == 0 && s->decoder;
		if (s->holds == 0 && (seen > STREAMS_MAX || (s->decoder && decoders > DECODERS_MAX && !s->spill)))
			table_remove(t, at, &out);
		else
			at = &s->next;
	}
	return out;
}

/* Called with the table's lock held; moves what it finds to the front. */
static struct stream *find(struct streams *t, const struct zarr *z, uint64_t number)
{
	for (struct stream **at = &t->first; *at; at = &(*at)->next) {
		struct stream *s = *at;

		if (s->number != number || s->owner != z->owner || s->z->tag != z->tag)
			continue;
		*at = s->next;
		s->next = t->first;
		t->first = s;
		s->holds++;
		return s;
	}
	return NULL;
}

struct stream *stream_find(struct zarr *z, uint64_t number)
{
	struct streams *t = z->env->streams;
	struct stream *s;

	pthread_mutex_lock(&t->lock);
	s = find(t, z, number);
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void job_run(struct pool_job *job);

static struct stream *stream_new(struct zarr *z, uint64_t number, uint64_t off, uint64_t len)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->table = z->env->streams;
	s->z = zarr_ref(z);
	s->owner = z->owner;
	s->number = number;
	s->off = off;
	s->len = len;
	s->bytes = z->leaf->bytes;
	s->pieces = div_up(s->bytes, PIECE_BYTES);
	s->holds = 1;
	s->job.run = job_run;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->moved, NULL);
	return s;
}

int stream_get(struct zarr *z, uint64_t number, struct kv_loc *loc, uint64_t off, uint64_t len,
	       struct stream **ret)
{
	struct streams *t = z->env->streams;
	struct stream *fresh = stream_new(z, number, off, len), *s, *out = NULL;

	if (!fresh)
		return fail(-ENOMEM, "cannot open a stream");
	pthread_mutex_lock(&t->lock);
	s = find(t, z, number);
	if (!s) {
		s = fresh;
		s->loc = *loc;
		s->next = t->first;
		t->first = s;
		t->n++;
		out = shrink(t);
		fresh = NULL;
		*loc = (struct kv_loc){ 0 };
	}
	pthread_mutex_unlock(&t->lock);
	free_all(out);
	if (fresh)
		stream_free(fresh);
	kv_loc_release(loc);
	*ret = s;
	return 0;
}

void stream_put(struct stream *s)
{
	struct stream *out;

	if (!s)
		return;
	pthread_mutex_lock(&s->table->lock);
	s->holds--;
	out = shrink(s->table);
	pthread_mutex_unlock(&s->table->lock);
	free_all(out);
}

/* ---- the cache ---- */

struct cache_key stream_piece_key(const struct zarr *z, uint64_t number, uint64_t piece)
{
	/* Piece 0 of a key is the whole chunk, 1 a shard index: pieces begin at 2. */
	return (struct cache_key){ z->owner, number, (uint64_t)z->tag << 40 | (piece + 2) };
}

static size_t piece_size(const struct stream *s, uint64_t piece)
{
	return (size_t)MIN((uint64_t)PIECE_BYTES, s->bytes - piece * PIECE_BYTES);
}

static void piece_free_full(void *p)
{
	block_free(p, PIECE_BYTES);
}

/* Put a decoded block into the cache, pinned; the block is taken. */
static int piece_keep(struct stream *s, uint64_t piece, void *block, struct cache_entry **ret)
{
	struct cache_key key = stream_piece_key(s->z, s->number, piece);
	struct cache *cache = s->z->env->cache;
	struct cache_entry *e;
	int r = cache_begin(cache, &key, &e);

	if (r == CACHE_MINE) {
		cache_fill(cache, e, block, PIECE_BYTES, piece_free_full);
	} else {
		/* Another reader of the spill file was first. */
		block_free(block, PIECE_BYTES);
		if (r == CACHE_BUSY)
			r = cache_wait(cache, e);
		if (r < 0) {
			cache_put(cache, e);
			return r;
		}
	}
	*ret = e;
	return 0;
}

/* Stored elements -> elements as we show them. */
static void piece_fix(const struct stream *s, void *p, size_t n)
{
	const struct dtype_info *t = dtype_info(s->z->meta.dtype);

	if (s->z->leaf->big_endian)
		cast_swap(s->z->meta.dtype, p, n / t->size);
	cast_canonical(s->z->meta.dtype, p, n / t->size);
}

/* ---- the decoder ---- */

static int pull_input(void *arg, struct span *ret)
{
	struct stream *s = arg;
	size_t n = (size_t)MIN((uint64_t)INPUT_BYTES, s->len - s->fed);

	if (s->loc.where == KV_INLINE) {
		*ret = span_of(s->loc.bytes.p + s->off + s->fed, n);
	} else {
		int r = n ? io_read_exact(s->loc.file, s->input, n, s->loc.off + s->off + s->fed) : 0;

		if (r < 0)
			return r;
		/* The kernel reads on while we decode. */
		posix_fadvise(s->loc.file->fd, (off_t)(s->loc.off + s->off + s->fed + n), 4 * INPUT_BYTES,
			      POSIX_FADV_WILLNEED);
		*ret = span_of(s->input, n);
	}
	s->fed += n;
	return 0;
}

/* A decoder at piece 0. */
static int decoder_open(struct stream *s)
{
	int r;

	decoder_close(s);
	s->fed = 0;
	s->input = block_alloc(INPUT_BYTES);
	if (!s->input)
		return fail(-ENOMEM, "cannot allocate a decoder's input");
	r = codec_stream_open(&s->z->leaf->codecs, pull_input, s, s->bytes, s->table->window_limit,
			      &s->decoder);
	if (r < 0)
		decoder_close(s);
	return r;
}

/* Whether this chunk may have a spill file; takes its bytes from the limit. */
static bool spill_reserve(struct stream *s)
{
	struct streams *t = s->table;
	struct stream *out = NULL;
	bool ok;

	pthread_mutex_lock(&t->lock);
	/* Idle spill files make room, the least recently used first. */
	for (bool found = true; found && t->spill_used + s->bytes > t->spill_limit;) {
		struct stream **oldest = NULL;

		for (struct stream **at = &t->first; *at; at = &(*at)->next)
			if ((*at)->holds == 0 && (*at)->spill)
				oldest = at;
		found = oldest != NULL;
		if (found)
			table_remove(t, oldest, &out);
	}
	ok = t->spill_dir && t->spill_used + s->bytes <= t->spill_limit;
	if (ok)
		t->spill_used += s->bytes;
	pthread_mutex_unlock(&t->lock);
	free_all(out);
	return ok;
}

static void spill_begin(struct stream *s)
{
	struct spill *spill;
	int r;

	if (!spill_reserve(s))
		return;
	r = spill_open(s->table->spill_dir, &spill);
	if (r < 0) {
		log_warn("%s; readers that jump in large chunks will be slow", err_text(r));
		pthread_mutex_lock(&s->table->lock);
		s->table->spill_used -= s->bytes;
		pthread_mutex_unlock(&s->table->lock);
		return;
	}
	pthread_mutex_lock(&s->table->lock);
	s->spill = spill;
	pthread_mutex_unlock(&s->table->lock);
}

/* A spill file that cannot be written is given up; what it has stays readable. */
static bool spill_piece(struct stream *s, uint64_t piece, const void *p, size_t n)
{
	if (!s->spill || piece < s->spilled)
		return false;
	if (piece != s->spilled || spill_write(s->spill, p, n, piece * PIECE_BYTES) < 0)
		return false;
	return true;
}

/* Decode the next piece: called by the driver without the lock. */
static int decode_piece(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	size_t n = piece_size(s, piece);
	void *block = block_alloc(PIECE_BYTES);
	bool spilled;
	int r;

	if (!block)
		return fail(-ENOMEM, "cannot allocate a piece of %zu bytes", PIECE_BYTES);
	r = codec_stream_read(s->decoder, block, n);
	if (r < 0) {
		block_free(block, PIECE_BYTES);
		return r;
	}
	piece_fix(s, block, n);
	spilled = spill_piece(s, piece, block, n);
	if (piece + 1 == s->pieces)
		decoder_close(s);
	atomic_fetch_add_explicit(&s->z->env->chunk_bytes_decoded, n, memory_order_relaxed);
	r = piece_keep(s, piece, block, ret);
	pthread_mutex_lock(&s->lock);
	s->spilled += spilled;
	s->pos++;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static bool is_lasting(int code)
{
	return code == -EUCLEAN || code == -EBADMSG || code == -EFBIG || code == -EOPNOTSUPP;
}

/*
 * Decode: a reader (ret set) up to the piece that it needs, which comes back pinned when it was made
 * here; a job up to `want`, which readers move on. Called with the lock held, by a thread that set
 * `driving`.
 */
static int drive(struct stream *s, uint64_t mine, struct cache_entry **ret)
{
	int r = 0;

	while (r >= 0 && s->pos <= (ret ? mine : s->want) && s->pos < s->pieces) {
		uint64_t piece = s->pos;
		bool spill = s->may_spill && !s->spill && piece == 0;
		struct cache_entry *e = NULL;

		pthread_mutex_unlock(&s->lock);
		if (spill)
			spill_begin(s);
		if (piece == 0)
			r = decoder_open(s);
		if (r >= 0)
			r = decode_piece(s, piece, &e);
		if (r >= 0 && ret && piece == mine && !*ret)
			*ret = e;
		else
			cache_put(s->z->env->cache, e);
		pthread_mutex_lock(&s->lock);
	}
	if (r < 0) {
		decoder_close(s);
		s->pos = 0;
		s->want = 0;
		if (is_lasting(r))
			err_save(r, &s->failed);
	}
	s->driving = false;
	pthread_cond_broadcast(&s->moved);
	return r;
}

/* Pieces of a chunk without codecs can be read in any order. */
static int read_raw(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	size_t n = piece_size(s, piece);
	void *block = block_alloc(PIECE_BYTES);
	uint64_t at = s->off + piece * PIECE_BYTES;
	int r = 0;

	if (!block)
		return fail(-ENOMEM, "cannot allocate a piece of %zu bytes", PIECE_BYTES);
	if (s->loc.where == KV_INLINE)
		memcpy(block, s->loc.bytes.p + at, n);
	else
		r = io_read_exact(s->loc.file, block, n, s->loc.off + at);
	if (r < 0) {
		block_free(block, PIECE_BYTES);
		return r;
	}
	piece_fix(s, block, n);
	return piece_keep(s, piece, block, ret);
}

static int read_spilled(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	size_t n = piece_size(s, piece);
	void *block = block_alloc(PIECE_BYTES);
	int r;

	if (!block)
		return fail(-ENOMEM, "cannot allocate a piece of %zu bytes", PIECE_BYTES);
	r = spill_read(s->spill, block, n, piece * PIECE_BYTES);
	if (r < 0) {
		block_free(block, PIECE_BYTES);
		return r;
	}
	pthread_mutex_lock(&s->table->lock);
	s->table->stats.spill_reads++;
	pthread_mutex_unlock(&s->table->lock);
	return piece_keep(s, piece, block, ret);
}

/*
 * One attempt at a piece that is not in the cache: 1 when it was made here and pinned, 0 to look
 * again, or an error. Called with the lock held.
 */
static int advance(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	int r;

	if (s->failed.code && piece >= s->pos)
		return err_restore(&s->failed);
	if (s->driving) {
		/* A piece behind the driver that is gone waits for it to stop, and then starts again. */
		pthread_cond_wait(&s->moved, &s->lock);
		return 0;
	}
	if (piece < s->pos) {
		s->pos = 0;
		s->want = 0;
		s->may_spill = true;
		pthread_mutex_lock(&s->table->lock);
		s->table->stats.restarts++;
		pthread_mutex_unlock(&s->table->lock);
	} else if (s->pos == 0 && piece >= JUMP_PIECES) {
		s->may_spill = true;
	}
	s->driving = true;
	r = drive(s, piece, ret);
	return r < 0 ? r : *ret != NULL;
}

int stream_piece(struct stream *s, uint64_t piece, struct cache_entry **ret, size_t *ret_bytes)
{
	struct cache_key key = stream_piece_key(s->z, s->number, piece);
	struct cache_entry *e = NULL;
	int r = 0;

	*ret_bytes = piece_size(s, piece);
	while (r == 0) {
		bool spilled;

		if (cache_peek(s->z->env->cache, &key, &e))
			break;
		if (s->z->leaf->codecs.n == 0) {
			r = read_raw(s, piece, &e);
			break;
		}
		pthread_mutex_lock(&s->lock);
		spilled = piece < s->spilled;
		if (!spilled)
			r = advance(s, piece, &e);
		pthread_mutex_unlock(&s->lock);
		if (spilled) {
			r = read_spilled(s, piece, &e);
			break;
		}
	}
	if (r < 0)
		return r;
	*ret = e;
	return 0;
}

static void job_run(struct pool_job *job)
{
	struct stream *s = container_of(job, struct stream, job);

	pthread_mutex_lock(&s->lock);
	s->job_posted = false;
	if (!s->driving) {
		s->driving = true;
		/* An error is met again, and reported, by the reader that comes for the piece. */
		drive(s, 0, NULL);
	}
	pthread_mutex_unlock(&s->lock);
	stream_put(s);
}

void stream_ahead(struct stream *s, uint64_t piece)
{
	struct pool *pool = s->z->env->pool;
	bool post;

	if (!pool || s->z->leaf->codecs.n == 0)
		return;
	pthread_mutex_lock(&s->lock);
	piece = MIN(piece, s->pieces - 1);
	/* Not when the decoder would only repeat what the spill file has. */
	post = piece >= s->pos && piece >= s->spilled && !s->failed.code;
	if (post)
		s->want = MAX(s->want, piece);
	post = post && !s->driving && !s->job_posted;
	s->job_posted |= post;
	pthread_mutex_unlock(&s->lock);
	if (!post)
		return;
	pthread_mutex_lock(&s->table->lock);
	s->holds++;
	pthread_mutex_unlock(&s->table->lock);
	pool_post(pool, &s->job);
}
