/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_write.c - the stream of an array's bytes, cut into bands.
 *
 * Invariants: bands cover the stream without gaps; a band that is not stored is in memory; each
 * live band holds its cost of the budget. zarr_encode.c encodes a band.
 */
#include "core/zarr/write/zarr_write.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/stream.h"
#include "core/zarr/write/zarr_encode.h"

#define HAND_OVER_BYTES 65536 /* a smaller band is encoded sooner than another thread wakes up */

struct band {
	struct pool_job job;
	struct band *next; /* list of the writer; protected by its lock */
	struct zarr_writer *w;
	bool is_failed; /* it is to be encoded again; protected by the writer's lock */
	uint64_t at, n; /* the range of the stream that it covers: [at, at + n) */
	uint64_t filled;
	uint8_t *bytes; /* a block of w->plan.band_bytes */
};

struct zarr_writer {
	struct write_env *we;
	struct kv *kv;  /* a reference */
	struct zarr *z; /* the stored array, for reading back */
	struct encode_plan plan;
	uint64_t pos;             /* number of accepted bytes; used by the appending thread only */
	struct band *filling;     /* the same thread's, or NULL */
	atomic_bool drops_failed; /* failed bands are freed, not encoded again: ZARR_WRITER_BLOCK */
	/* NULL: the codecs are decided; used by the appending thread only */
	zarr_choose_fn *choose;
	void *choose_arg;

	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t changed;
	struct band *bands;     /* live bands, in no particular order */
	unsigned finishing;     /* number of bands whose job still uses the writer */
	struct err_note failed; /* error of a band that could not be stored; code 0: none */
};

void write_env_init(struct write_env *we, struct zarr_env *env, struct budget *budget)
{
	*we = (struct write_env){ .env = env, .budget = budget };
	pthread_mutex_init(&we->lock, NULL);
	pthread_cond_init(&we->done, NULL);
}

void write_env_release(struct write_env *we)
{
	pthread_cond_destroy(&we->done);
	pthread_mutex_destroy(&we->lock);
}

int write_env_check(const struct write_env *we)
{
	return we->check ? we->check(we->check_arg) : 0;
}

/* Put the array's document, and open the array that it describes. */
static int put_document(struct zarr_writer *w, struct span json, struct zarr **ret)
{
	const char *name = memmem(json.p, json.n, "\"zarr_format\":2", 15) ? ".zarray" :
									     "zarr.json";
	int r = kv_put(w->kv, span_str(name), json);

	return r < 0 ? r : zarr_open(w->we->env, w->kv, span_of(NULL, 0), cache_owner(), 0, ret);
}

/* Values without codecs can be mapped where they are stored. */
static void writer_tell_raw(struct zarr_writer *w)
{
	kv_will_be_raw(w->kv, w->z->leaf->codecs.n ? 0 : w->z->leaf->bytes);
}

int zarr_writer_open(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		     struct zarr_writer **ret)
{
	auto_of(zarr_writer) struct zarr_writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return fail(-ENOMEM, "cannot open a writer");
	w->we = we;
	w->kv = kv_ref(kv);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	r = put_document(w, json, &w->z);
	if (r < 0)
		return r;
	r = encode_plan(w->z, budget_total(we->budget), &w->plan);
	if (r < 0)
		return r;
	writer_tell_raw(w);
	w->plan.omit_fill = fill == ZARR_FILL_OMIT;
	*ret = take(w);
	return 0;
}

void zarr_writer_defer(struct zarr_writer *w, zarr_choose_fn *choose, void *arg)
{
	w->choose = choose;
	w->choose_arg = arg;
}

struct zarr *zarr_writer_array(const struct zarr_writer *w)
{
	return w->z;
}

uint64_t zarr_writer_cost(const struct zarr_writer *w)
{
	return encode_band_cost(&w->plan);
}

/* ---- bands ---- */

static void band_free(struct band *b)
{
	block_free(b->bytes, b->w->plan.band_bytes);
	budget_give(b->w->we->budget, zarr_writer_cost(b->w));
	free(b);
}

/* Encode and store a band, and free it unless it failed and is tried again. Called without the
 * lock. */
static void band_encode(struct band *b)
{
	struct zarr_writer *w = b->w;
	struct write_env *we = w->we;
	int r = encode_band(we, w->kv, w->z, &w->plan, b->at, b->bytes);

	pthread_mutex_lock(&w->lock);
	if (r < 0 && !w->failed.code)
		err_save(r, &w->failed);
	if (r < 0 && !w->drops_failed) {
		b->is_failed = true;
		b = NULL;
	} else {
		struct band **at = &w->bands;

		while (*at != b)
			at = &(*at)->next;
		*at = b->next;
	}
	pthread_mutex_unlock(&w->lock);
	/* Return the memory before reporting that some is available. */
	if (b)
		band_free(b);
	pthread_mutex_lock(&we->lock);
	we->under_way--;
	pthread_cond_broadcast(&we->done);
	pthread_mutex_unlock(&we->lock);
	/* This comes last: a thread that waits for it may free the writer. */
	pthread_mutex_lock(&w->lock);
	w->finishing--;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void band_job(struct pool_job *job)
{
	band_encode(container_of(job, struct band, job));
}

static void band_submit(struct zarr_writer *w, struct band *b)
{
	trace(TRACE_ZARR, "write %llu+%llu", (unsigned long long)b->at, (unsigned long long)b->n);
	pthread_mutex_lock(&w->we->lock);
	w->we->under_way++;
	pthread_mutex_unlock(&w->we->lock);
	pthread_mutex_lock(&w->lock);
	b->is_failed = false;
	w->finishing++;
	pthread_mutex_unlock(&w->lock);
	b->job.run = band_job;
	if (w->we->env->pool && b->n > HAND_OVER_BYTES)
		pool_post(w->we->env->pool, &b->job);
	else
		band_encode(b);
}

/* Begin the band that is filled next. Its memory is taken from the budget. */
static int band_new(struct zarr_writer *w, enum zarr_writer_wait wait)
{
	struct write_env *we = w->we;
	uint64_t cost = zarr_writer_cost(w);
	struct band *b;
	int r = 0;

	if (wait == ZARR_WRITER_BLOCK) {
		r = budget_take(we->budget, cost);
	} else if (cost > budget_total(we->budget)) {
		r = -EAGAIN;
	} else {
		pthread_mutex_lock(&we->lock);
		while (!budget_try(we->budget, cost) && r == 0) {
			if (we->under_way == 0)
				r = -EAGAIN;
			else
				pthread_cond_wait(&we->done, &we->lock);
		}
		pthread_mutex_unlock(&we->lock);
	}
	if (r < 0)
		return r;
	b = calloc(1, sizeof(*b));
	if (b) {
		b->w = w;
		b->bytes = block_alloc(w->plan.band_bytes);
	}
	if (!b || !b->bytes) {
		free(b);
		budget_give(we->budget, cost);
		return fail(-ENOMEM, "cannot allocate a band of %llu bytes",
			    (unsigned long long)w->plan.band_bytes);
	}
	b->at = w->pos;
	b->n = encode_band_len(w->z, &w->plan, w->pos);
	pthread_mutex_lock(&w->lock);
	b->next = w->bands;
	w->bands = b;
	pthread_mutex_unlock(&w->lock);
	w->filling = b;
	return 0;
}

/* Encode all failed bands again, in this thread, or return the error of those that were dropped. */
static int retry(struct zarr_writer *w)
{
	struct band *b = NULL;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	if (!w->failed.code || w->drops_failed) {
		r = w->failed.code ? err_restore(&w->failed) : 0;
		pthread_mutex_unlock(&w->lock);
		return r;
	}
	while (w->finishing)
		pthread_cond_wait(&w->changed, &w->lock);
	w->failed.code = 0;
	do {
		for (b = w->bands; b && !b->is_failed; b = b->next)
			;
		if (!b)
			break;
		pthread_mutex_unlock(&w->lock);
		trace(TRACE_ZARR, "band at %llu again", (unsigned long long)b->at);
		band_submit(w, b);
		pthread_mutex_lock(&w->lock);
		while (w->finishing)
			pthread_cond_wait(&w->changed, &w->lock);
	} while (!w->failed.code);
	if (w->failed.code)
		r = err_restore(&w->failed);
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Submit the band, which is full, to be encoded; before the first one, decide how. */
static int band_done(struct zarr_writer *w)
{
	struct band *b = w->filling;

	if (w->choose) {
		auto_buf json = { 0 };
		struct zarr *z = NULL;
		int r = w->choose(w->choose_arg, span_of(b->bytes, b->n), &json);

		r = r < 0 ? r : put_document(w, buf_span(&json), &z);
		if (r < 0)
			return r;
		/* Nothing was encoded, so nobody has seen the old array. */
		zarr_unref(w->z);
		w->z = z;
		w->choose = NULL;
		writer_tell_raw(w);
	}
	w->filling = NULL;
	band_submit(w, b);
	return 0;
}

int zarr_writer_append(struct zarr_writer *w, const void *p, size_t n, enum zarr_writer_wait wait,
		       size_t *ret_taken)
{
	const uint8_t *from = p;
	int r;

	w->drops_failed = wait == ZARR_WRITER_BLOCK;
	r = retry(w);
	*ret_taken = 0;
	if (r < 0)
		return r;
	if (n > w->z->meta.bytes - w->pos)
		return fail(-EFBIG, "%zu bytes at %llu of an array of %llu", n,
			    (unsigned long long)w->pos, (unsigned long long)w->z->meta.bytes);
	while (n > 0 && r >= 0) {
		struct band *b;
		size_t part;

		r = w->filling ? 0 : band_new(w, wait);
		if (r < 0)
			return r;
		b = w->filling;
		part = (size_t)MIN((uint64_t)n, b->n - b->filled);
		memcpy(b->bytes + b->filled, from, part);
		b->filled += part;
		w->pos += part;
		from += part;
		n -= part;
		*ret_taken += part;
		if (b->filled == b->n)
			r = band_done(w);
	}
	return r;
}

int zarr_writer_flush(struct zarr_writer *w)
{
	struct band *b = w->filling;
	int r = 0;

	/* A band whose codecs could not be decided is still here. */
	if (b && b->filled == b->n)
		r = band_done(w);
	pthread_mutex_lock(&w->lock);
	while (w->finishing)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return r < 0 ? r : retry(w);
}

int zarr_writer_read(struct zarr_writer *w, uint64_t off, size_t n, void *p)
{
	uint8_t *to = p;

	while (n > 0) {
		uint64_t gap = n, got = 0;
		int r = 0;

		pthread_mutex_lock(&w->lock);
		for (struct band *b = w->bands; b && !got; b = b->next) {
			if (off >= b->at && off < b->at + b->filled) {
				got = MIN((uint64_t)n, b->at + b->filled - off);
				memcpy(to, b->bytes + (off - b->at), got);
			} else if (b->at > off) {
				/* Stored bytes end at the nearest later band. */
				gap = MIN(gap, b->at - off);
			}
		}
		pthread_mutex_unlock(&w->lock);
		/* A band that is stored between these two look-ups is read from the store. */
		if (!got) {
			got = gap;
			r = zarr_read_into(w->z, NULL, off, gap, to);
		}
		if (r < 0)
			return r;
		off += got;
		to += got;
		n -= got;
	}
	return 0;
}

void zarr_writer_close(struct zarr_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	while (w->finishing)
		pthread_cond_wait(&w->changed, &w->lock);
	pthread_mutex_unlock(&w->lock);
	while (w->bands) {
		struct band *next = w->bands->next;

		band_free(w->bands);
		w->bands = next;
	}
	if (w->z) {
		streams_drop(w->we->env->streams, w->z->owner);
		cache_drop(w->we->env->cache, w->z->owner);
	}
	zarr_unref(w->z);
	kv_free(w->kv);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
