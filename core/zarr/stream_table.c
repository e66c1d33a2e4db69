/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_table.c - the live streams, and the limits of what they keep.
 *
 * stream_spill.c has the temporary files. Invariants: a stream is in the table from stream_get()
 * until it is not held and room is needed; the memory of all decoders stays below its limit.
 *
 * The table's lock is taken before a stream's; neither is held across I/O.
 *
 * A thread that waits for room drives a stream without a decoder. Every other decoder can be taken
 * (nobody drives its stream) or is driven by a thread that needs no more room, so some thread
 * always makes progress.
 */
#include "core/zarr/stream_impl.h"

#include "core/base/clock.h"
#include "core/base/blocks.h"

#define STREAMS_MAX 64 /* live at once, not counting held ones */
/* number of them with a decoder's memory: a row of 16 chunks that are read in step */
#define DECODERS_MAX 20
#define GUESS_ROOM (4 * MiB)     /* bytes of the budget that a guess leaves to readers */
#define FAILED_NS SECOND_NS      /* how long a chunk that could not be decoded is not tried again */
#define DECODER_BESIDE (8 * MiB) /* the most memory of a decoder besides its history */

/*
 * Take the decoder of a stream that nobody drives; false when each is driven. The last in the list
 * is the least recently used one.
 */
static bool take_decoder(void *arg)
{
	struct stream *found = NULL;
	struct streams *t = arg;

	pthread_mutex_lock(&t->lock);
	for (struct stream *s = t->first; s; s = s->next) {
		if (!s->reserved)
			continue;
		pthread_mutex_lock(&s->lock);
		if (!s->driving)
			found = s;
		pthread_mutex_unlock(&s->lock);
	}
	if (found)
		pthread_mutex_lock(&found->lock);
	if (found && !found->driving) {
		stream_decoder_free(found);
		found->pos = found->want = 0;
		budget_give(&t->decoders, found->reserved);
		found->reserved = 0;
	}
	if (found)
		pthread_mutex_unlock(&found->lock);
	pthread_mutex_unlock(&t->lock);
	return found;
}

int streams_new(const struct streams_opts *opts, struct streams **ret)
{
	struct streams *t = calloc(1, sizeof(*t));

	if (t && opts->spill_dir)
		t->spill_dir = strdup(opts->spill_dir);
	if (!t || (opts->spill_dir && !t->spill_dir)) {
		free(t);
		return fail(-ENOMEM, "cannot allocate the table of streams");
	}
	t->users_end = &t->users;
	t->window_limit = opts->window_limit;
	pthread_mutex_init(&t->lock, NULL);
	budget_init(&t->decoders, "half of read_budget",
		    MAX(opts->decoder_limit, opts->window_limit + DECODER_BESIDE));
	budget_init(&t->spill, "spill_limit", opts->spill_limit);
	t->decoders.reclaim = take_decoder;
	t->spill.reclaim = stream_spill_reclaim;
	t->decoders.reclaim_arg = t->spill.reclaim_arg = t;
	*ret = t;
	return 0;
}

/* The stream must not be held, nor be in the table. */
static void stream_free(struct stream *s)
{
	stream_decoder_free(s);
	zarr_guess_unref(s->guess);
	codec_blocks_close(s->blocks);
	free(s->sums);
	io_file_unref(s->spill);
	kv_loc_release(&s->src.loc);
	zarr_unref(s->z);
	for (unsigned i = 0; i < STREAM_WAITS; i++)
		pthread_cond_destroy(&s->moved[i]);
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
	budget_release(&t->decoders);
	budget_release(&t->spill);
	pthread_mutex_destroy(&t->lock);
	free(t->spill_dir);
	free(t);
}

void stream_table_remove(struct streams *t, struct stream **at, struct stream **out)
{
	struct stream *s = *at;

	*at = s->next;
	t->n--;
	if (s->spill)
		budget_give(&t->spill, s->bytes);
	budget_give(&t->decoders, s->reserved);
	s->reserved = 0;
	s->next = *out;
	*out = s;
}

void stream_free_all(struct stream *s)
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
			stream_table_remove(t, at, &out);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&t->lock);
	stream_free_all(out);
}

void streams_stats(struct streams *t, struct streams_stats *ret)
{
	pthread_mutex_lock(&t->lock);
	*ret = (struct streams_stats){ .live = t->n,
				       .restarts = t->restarts,
				       .spill_bytes = budget_used(&t->spill),
				       .spill_reads = t->spill_reads,
				       .decoder_bytes = budget_used(&t->decoders),
				       .decoder_peak_bytes = budget_peak(&t->decoders) };
	pthread_mutex_unlock(&t->lock);
}

/*
 * Limit what idle streams keep: beyond the limits, the least recently used ones that are not held
 * are removed. Called with the table's lock held.
 */
static struct stream *stream_table_shrink(struct streams *t)
{
	struct stream *out = NULL;
	unsigned seen = 0, decoders = 0;

	for (struct stream **at = &t->first; *at;) {
		struct stream *s = *at;

		seen++;
		/* The decoder of a held stream belongs to its driver. */
		decoders += s->holds == 0 && s->reserved;
		if (s->holds == 0 &&
		    (seen > STREAMS_MAX || (s->reserved && decoders > DECODERS_MAX && !s->spill)))
			stream_table_remove(t, at, &out);
		else
			at = &s->next;
	}
	return out;
}

static bool is_stream_of(const struct stream *s, const struct zarr *z, uint64_t number)
{
	return s->number == number && s->owner == z->owner && s->z->tag == z->tag;
}

/* Whether a stream of this chunk has failed at any time. Called with the table's lock held. */
static bool has_failed(const struct streams *t, const struct zarr *z, uint64_t number)
{
	const struct stream *s = t->first;

	while (s && !(is_stream_of(s, z, number) && atomic_load(&s->failed_at)))
		s = s->next;
	return s;
}

/*
 * Find a stream and move it to the front. A damaged chunk is not decoded again for each request,
 * but a repair must be noticed: after a second, a new stream replaces one that failed, with a file
 * that is opened anew. Called with the table's lock held.
 */
static struct stream *stream_table_find(struct streams *t, const struct zarr *z, uint64_t number)
{
	for (struct stream **at = &t->first; *at; at = &(*at)->next) {
		struct stream *s = *at;
		int64_t failed_at = atomic_load(&s->failed_at);

		if (!is_stream_of(s, z, number) ||
		    (failed_at && clock_ns() - failed_at > FAILED_NS))
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
	s = stream_table_find(t, z, number);
	pthread_mutex_unlock(&t->lock);
	return s;
}

static struct stream *stream_table_new(struct zarr *z, uint64_t number)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->table = z->env->streams;
	s->z = zarr_ref(z);
	s->owner = z->owner;
	s->number = number;
	s->bytes = z->leaf->bytes;
	s->pieces = div_up(s->bytes, STREAM_PIECE_BYTES);
	s->holds = 1;
	s->job.run = stream_job_run;
	pthread_mutex_init(&s->lock, NULL);
	for (unsigned i = 0; i < STREAM_WAITS; i++)
		pthread_cond_init(&s->moved[i], NULL);
	return s;
}

int stream_get(struct zarr *z, uint64_t number, struct chunk_source *src, struct stream **ret)
{
	struct streams *t = z->env->streams;
	struct stream *fresh = stream_table_new(z, number), *s, *out = NULL;

	if (!fresh)
		return fail(-ENOMEM, "cannot open a stream");
	pthread_mutex_lock(&t->lock);
	s = stream_table_find(t, z, number);
	if (!s) {
		s = fresh;
		s->src = *src;
		s->suspect = has_failed(t, z, number);
		s->next = t->first;
		t->first = s;
		t->n++;
		out = stream_table_shrink(t);
		fresh = NULL;
		src->loc = (struct kv_loc){ 0 };
	}
	pthread_mutex_unlock(&t->lock);
	stream_free_all(out);
	if (fresh)
		stream_free(fresh);
	kv_loc_release(&src->loc);
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
	out = stream_table_shrink(s->table);
	pthread_mutex_unlock(&s->table->lock);
	stream_free_all(out);
}

void stream_hold(struct stream *s)
{
	pthread_mutex_lock(&s->table->lock);
	s->holds++;
	pthread_mutex_unlock(&s->table->lock);
}

/* ---- jobs ahead of a reader ---- */

struct stream_ahead_job {
	struct pool_job job;
	struct stream *s; /* a hold */
	uint64_t first, last;
	struct zarr_guess *guess; /* a reference, or NULL */
	stream_work_fn *work;
};

static void stream_ahead_run(struct pool_job *job)
{
	struct stream_ahead_job *j = container_of(job, struct stream_ahead_job, job);

	if (!j->guess ||
	    (!zarr_guess_is_over(j->guess) && budget_has_room(j->s->z->env->budget, GUESS_ROOM)))
		j->work(j->s, j->first, j->last, j->guess);
	zarr_guess_unref(j->guess);
	stream_put(j->s);
	free(j);
}

void stream_post(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess,
		 stream_work_fn *work)
{
	struct stream_ahead_job *j = calloc(1, sizeof(*j));

	if (!j)
		return;
	*j = (struct stream_ahead_job){ .job.run = stream_ahead_run,
					.s = s,
					.first = first,
					.last = last,
					.guess = zarr_guess_ref(guess),
					.work = work };
	stream_hold(s);
	(guess ? pool_post_idle : pool_post)(s->z->env->pool, &j->job);
}

/* ---- room for decoders ---- */

void stream_room_take(struct stream *s, uint64_t window)
{
	uint64_t n = budget_take_most(&s->table->decoders, window + DECODER_BESIDE);

	pthread_mutex_lock(&s->table->lock);
	s->reserved = n;
	pthread_mutex_unlock(&s->table->lock);
}

bool stream_room_is_ample(struct streams *t, uint64_t window)
{
	return budget_has_room(&t->decoders,
			       window + DECODER_BESIDE + budget_total(&t->decoders) / 2);
}

void stream_room_shrink(struct stream *s, uint64_t bytes)
{
	struct streams *t = s->table;

	pthread_mutex_lock(&t->lock);
	if (bytes < s->reserved) {
		budget_give(&t->decoders, s->reserved - bytes);
		s->reserved = bytes;
	}
	pthread_mutex_unlock(&t->lock);
}
