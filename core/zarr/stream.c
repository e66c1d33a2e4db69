/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - pieces of large chunks: one driver decodes, others wait, a spill file keeps pieces.
 *
 * Invariants: pieces [0, spilled) are in the spill file; the decoder has produced [0, pos); at most
 * one thread drives a stream, and it holds no lock while it decodes.
 */
#include "core/zarr/stream_impl.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#define JUMP_PIECES 24 /* an access this far ahead comes from a reader that jumps */

/* ---- the cache ---- */

struct cache_key stream_piece_key(const struct zarr *z, uint64_t number, uint64_t piece)
{
	/* Piece 0 of a key is the whole chunk, 1 a shard index: pieces begin at 2. */
	return (struct cache_key){ z->owner, number, (uint64_t)z->tag << 40 | (piece + 2) };
}

/* Put a decoded block into the cache, pinned; takes the block. */
static int piece_keep(struct stream *s, uint64_t piece, void *block, struct cache_entry **ret)
{
	struct cache_key key = stream_piece_key(s->z, s->number, piece);
	struct cache *cache = s->z->env->cache;
	struct cache_entry *e = NULL;
	int r = cache_begin(cache, &key, &e);

	if (r == CACHE_MINE) {
		cache_fill(cache, e, block, STREAM_PIECE_BYTES, piece_free_full);
	} else {
		/* Another reader of the spill file was first. */
		block_free(block, STREAM_PIECE_BYTES);
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

/* ---- driving the decoder ---- */

static void spill_begin(struct stream *s)
{
	struct io_file *spill;
	int r;

	if (!s->table->spill_dir || !budget_try(&s->table->spill, s->bytes))
		return;
	r = io_file_temp(s->z->env->io, NULL, s->table->spill_dir, &spill);
	if (r < 0) {
		log_warn("%s; readers that jump in large chunks will be slow", err_text(r));
		budget_give(&s->table->spill, s->bytes);
		return;
	}
	/* A read that is short of this goes on. */
	spill->size = s->bytes;
	pthread_mutex_lock(&s->table->lock);
	s->spill = spill;
	pthread_mutex_unlock(&s->table->lock);
}

/* Decode the next piece. Called by the driver without the lock. */
static int stream_decode_piece(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	struct io_req req = { .op = IO_WRITE,
			      .file = s->spill,
			      .n = piece_size(s, piece),
			      .off = piece * STREAM_PIECE_BYTES };
	size_t n = piece_size(s, piece);
	void *block;
	bool spilled = s->spill && piece == s->spilled;
	int r = piece == 0 ? stream_decoder_open(s) : 0;

	if (r < 0)
		return r;
	block = block_alloc(STREAM_PIECE_BYTES);
	if (!block)
		return fail(-ENOMEM, "cannot allocate a piece of %zu bytes", STREAM_PIECE_BYTES);
	r = stream_decoder_read(s, block, n);
	r = r < 0 ? r : zarr_to_shown(s->z, block, n);
	if (r < 0) {
		block_free(block, STREAM_PIECE_BYTES);
		return r;
	}
	/* If that fails, no more is written; pieces in the file stay readable. */
	req.p = block;
	if (spilled && io_run(s->z->env->io, &req, 1) < 0) {
		err_clear();
		spilled = false;
	}
	if (piece + 1 == s->pieces)
		stream_decoder_close(s);
	atomic_fetch_add_explicit(&s->z->env->chunk_bytes_decoded, n, memory_order_relaxed);
	r = piece_keep(s, piece, block, ret);
	if (r >= 0)
		stream_decoder_retain(s, *ret);
	pthread_mutex_lock(&s->lock);
	s->spilled += spilled;
	s->pos++;
	pthread_cond_broadcast(&s->moved[piece % STREAM_WAITS]);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static bool is_lasting(int code)
{
	return code == -EUCLEAN || code == -EBADMSG || code == -EFBIG || code == -EOPNOTSUPP;
}

/*
 * Whether the driver continues with the next piece. A job yields to a reader of an earlier piece,
 * for which decoding must start again. A job for a guess yields to all other work.
 */
static bool goes_on(const struct stream *s, bool reader, uint64_t mine)
{
	if (s->pos >= s->pieces)
		return false;
	if (reader)
		return s->pos <= mine;
	return s->pos <= s->want && !s->behind &&
	       !(s->guess && (zarr_guess_is_over(s->guess) || pool_is_wanted(s->z->env->pool)));
}

/*
 * Decode: a reader (ret set) up to the piece that it needs, which is returned pinned if it was
 * decoded here; a job up to `want`, which readers advance. Called with the lock held, by a thread
 * that has set `driving`.
 */
static int drive(struct stream *s, uint64_t mine, struct cache_entry **ret)
{
	int r = 0;

	while (r >= 0 && goes_on(s, ret != NULL, mine)) {
		bool guessed = !ret && s->guess;
		uint64_t piece = s->pos;
		bool spill = s->may_spill && !s->spill && piece == 0;
		struct cache_entry *e = NULL;

		pthread_mutex_unlock(&s->lock);
		if (spill)
			spill_begin(s);
		r = stream_decode_piece(s, piece, &e);
		if (r >= 0 && ret && piece == mine && !*ret)
			*ret = e;
		else
			(guessed ? cache_put_ahead : cache_put)(s->z->env->cache, e);
		pthread_mutex_lock(&s->lock);
	}
	if (r < 0) {
		pthread_mutex_unlock(&s->lock);
		stream_decoder_close(s);
		pthread_mutex_lock(&s->lock);
		s->pos = 0;
		s->want = 0;
		s->fetch_to = 0;
		if (is_lasting(r))
			err_save(r, &s->failed);
		if (s->src.loc.where == KV_FILE && is_lasting(r))
			io_file_doubt(s->src.loc.file);
		atomic_store(&s->failed_at, clock_ns());
	}
	s->driving = false;
	for (unsigned i = 0; i < STREAM_WAITS; i++)
		pthread_cond_broadcast(&s->moved[i]);
	return r;
}

/* Read a piece that needs no decoding: of a chunk without codecs, or of the spill file. */
static int read_piece(struct stream *s, uint64_t piece, bool spilled, struct cache_entry **ret)
{
	uint64_t at = piece * STREAM_PIECE_BYTES;
	size_t n = piece_size(s, piece);
	void *block = block_alloc(STREAM_PIECE_BYTES);
	int r;

	if (!block)
		return fail(-ENOMEM, "cannot allocate a piece of %zu bytes", STREAM_PIECE_BYTES);
	r = spilled ? io_read_exact(s->spill, block, n, at) :
		      kv_loc_read(&s->src.loc, s->src.off + at, n, block);
	if (r >= 0 && !spilled)
		r = zarr_to_shown(s->z, block, n);
	if (r < 0) {
		block_free(block, STREAM_PIECE_BYTES);
		return r;
	}
	if (spilled)
		atomic_fetch_add_explicit(&s->table->spill_reads, 1, memory_order_relaxed);
	return piece_keep(s, piece, block, ret);
}

static void start_again(struct stream *s, bool may_spill)
{
	s->pos = 0;
	s->want = 0;
	s->fetch_to = 0;
	s->may_spill |= may_spill;
	atomic_fetch_add_explicit(&s->table->restarts, 1, memory_order_relaxed);
}

/*
 * A reader that jumps ahead will probably jump back, and then everything is decoded once more for
 * the spill file. It is better to start again now, while less has been decoded than precedes the
 * reader.
 */
static void expect_jumps(struct stream *s, uint64_t piece)
{
	if (s->may_spill || !s->table->spill_dir || piece < s->pos + JUMP_PIECES)
		return;
	if (s->pos == 0)
		s->may_spill = true;
	else if (s->pos <= piece - s->pos)
		start_again(s, true);
}

/* From now on a reader wants what is decoded. Called with the lock held. */
static void reader_came(struct stream *s)
{
	/* A guess may have skipped ranges that it claimed. */
	if (s->guess)
		s->fetch_to = 0;
	zarr_guess_unref(take(s->guess));
}

/*
 * Try once to get a piece that is not in the cache. Returns 1 when it was decoded here and pinned,
 * 0 to look again, or an error. Called with the lock held.
 */
static int stream_advance(struct stream *s, uint64_t piece, struct cache_entry **ret, bool *drove)
{
	int r;

	reader_came(s);
	if (s->failed.code && piece >= s->pos)
		return err_restore(&s->failed);
	/* It was decoded after the caller looked into the cache; do not start again for it. */
	if (piece < s->pos) {
		struct cache_key key = stream_piece_key(s->z, s->number, piece);

		if (cache_has(s->z->env->cache, &key, CACHE_READY))
			return 0;
	}
	if (s->driving) {
		/*
		 * A reader of a piece that was evicted, before the driver's position, waits for the
		 * driver to stop, and then starts again.
		 */
		bool behind = piece < s->pos;

		s->behind += behind;
		pthread_cond_wait(&s->moved[piece % STREAM_WAITS], &s->lock);
		s->behind -= behind;
		return 0;
	}
	if (piece < s->pos) {
		/*
		 * A reader that reads all of it a second time does not jump; the page cache may
		 * hold the bytes from now on.
		 */
		bool second = piece == 0 && s->pos == s->pieces && !s->second_pass;

		s->second_pass |= second;
		start_again(s, !second);
	} else {
		expect_jumps(s, piece);
	}
	s->driving = *drove = true;
	r = drive(s, piece, ret);
	return r < 0 ? r : *ret != NULL;
}

int stream_piece(struct stream *s, uint64_t piece, struct cache_entry **ret)
{
	struct cache_key key = stream_piece_key(s->z, s->number, piece);
	struct cache_entry *e = NULL;
	int r = stream_blocks_refuse(s);

	while (r == 0) {
		bool spilled, drove = false;

		if (cache_peek(s->z->env->cache, &key, CACHE_READY, &e))
			break;
		if (s->z->leaf->codecs.n == 0) {
			r = read_piece(s, piece, false, &e);
			break;
		}
		r = stream_has_blocks(s);
		if (r > 0)
			r = stream_blocks_piece(s, piece, &e);
		if (r != 0)
			break;
		pthread_mutex_lock(&s->lock);
		spilled = piece < s->spilled;
		if (!spilled)
			r = stream_advance(s, piece, &e, &drove);
		pthread_mutex_unlock(&s->lock);
		if (drove)
			budget_idle(&s->table->decoders);
		if (spilled) {
			r = read_piece(s, piece, true, &e);
			break;
		}
	}
	if (r < 0)
		return r;
	*ret = e;
	return 0;
}

void stream_job_run(struct pool_job *job)
{
	struct stream *s = container_of(job, struct stream, job);
	/* Called without the stream's lock, since the table's lock comes first. */
	bool ample = stream_room_is_ample(s->table, STREAM_WINDOW_USUAL), again;
	int r;

	pthread_mutex_lock(&s->lock);
	s->job_posted = again = false;
	if (!s->driving && (ample || !s->guess || s->decoder)) {
		s->driving = true;
		/* The reader of the piece will meet and report the error. */
		r = drive(s, 0, NULL);
		if (r < 0)
			err_clear();
		/* The job has yielded. */
		again = s->guess && !zarr_guess_is_over(s->guess) && !s->behind && r >= 0 &&
			s->pos <= s->want && s->pos < s->pieces;
		s->job_posted = again;
	}
	pthread_mutex_unlock(&s->lock);
	budget_idle(&s->table->decoders);
	if (again)
		pool_resume_idle(s->z->env->pool, &s->job);
	else
		stream_put(s);
}

bool stream_has_pieces(const struct zarr *z, uint64_t number, uint64_t first, uint64_t last)
{
	last = MIN(last, (z->leaf->bytes - 1) / STREAM_PIECE_BYTES);
	for (uint64_t piece = first; piece <= last; piece++) {
		struct cache_key key = stream_piece_key(z, number, piece);

		if (!cache_has(z->env->cache, &key, CACHE_READY))
			return false;
	}
	return true;
}

void stream_ahead(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess)
{
	struct pool *pool = s->z->env->pool;
	uint64_t from = 0, to = 0;
	bool post, hurry = false, is_busy;
	int r;

	if (!pool || s->z->leaf->codecs.n == 0)
		return;
	r = stream_has_blocks(s);
	if (r < 0)
		err_clear();
	if (r > 0)
		stream_blocks_ahead(s, first, last, guess);
	if (r != 0)
		return;
	pthread_mutex_lock(&s->lock);
	last = MIN(last, s->pieces - 1);
	is_busy = s->driving || s->job_posted;
	if (!guess) {
		hurry = s->guess && s->job_posted;
		reader_came(s);
	} else if (first == 0 && s->pos == s->pieces && !s->spilled && !is_busy &&
		   !stream_piece_is_there(s, 0)) {
		/* All was decoded, and dropped since: this is for a reader's next pass. */
		s->second_pass = true;
		start_again(s, false);
	}
	/* Not when the decoder would only repeat pieces of the spill file. */
	post = last >= s->pos && last >= s->spilled && !s->failed.code;
	/* A guess is useful only for a chunk that no reader has come to. */
	if (guess && !s->guess && (s->pos > 0 || is_busy))
		post = false;
	if (guess && post) {
		zarr_guess_unref(s->guess);
		s->guess = zarr_guess_ref(guess);
	}
	/*
	 * The job may run before the reader, who would then find everything decoded and nothing
	 * spilled.
	 */
	if (post && !s->driving)
		expect_jumps(s, MIN(first, last));
	if (post)
		s->want = MAX(s->want, last);
	if (post && stream_is_fetched(s))
		to = stream_fetch_claim(s, last, &from);
	post = post && !is_busy;
	s->job_posted |= post;
	pthread_mutex_unlock(&s->lock);
	/* Before the decoder, which takes what is under way. */
	stream_fetch_post(s, from, to, guess);
	if (hurry)
		pool_hurry(pool, &s->job);
	if (!post)
		return;
	stream_hold(s);
	(guess ? pool_post_idle : pool_post)(pool, &s->job);
}
