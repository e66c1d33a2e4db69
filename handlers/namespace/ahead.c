/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.c - cursors that follow readers, and the guesses that they make.
 *
 * Invariants: a guess is in the table from its creation until its leaf is begun or the guess ends;
 * its token is ended only if the guess was wrong. The lock is held for arithmetic only, never while
 * a leaf is opened or decoded.
 */
#include "handlers/namespace/ahead.h"

#include <pthread.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/guess.h"
#include "handlers/format/format.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/leaf_order.h"

#define READERS 17 /* number of readers to follow; the first one stands for all together */
#define REACH 4    /* leaves that a trusted reader may skip, or several threads may read at once */
#define LOST 4     /* a reader is gone after this many times its usual interval */
#define LOST_LEAST 4 /* smallest value of that interval */
#define GUESSES 64
#define THREAD_BYTES (16 * MiB) /* part of the window for each decoding thread */
#define LEAST_PART (1 * MiB)    /* smallest part of a leaf that is worth a job */
#define FIRST_PART 8            /* 1/8 of the window after the first leaf in a store */
#define MISSED_MAX 2            /* unexpected leaves in a row: the reader jumps */

/* The place of a reader in one order, or LEAF_NONE. */
struct cursor {
	uint32_t at;
	unsigned hits;
};

struct reader {
	uint32_t id;        /* value of file.reader */
	uint64_t when, gap; /* in numbers of begun leaves: its last leaf, and its usual interval */
	struct cursor cursor[ORDERS];
};

struct guess {
	uint32_t leaf;
	bool is_known; /* `bytes` is the real size, not an estimate */
	uint64_t bytes, asked;
	struct zarr_guess *token; /* a reference */
};

struct ahead {
	pthread_mutex_t lock; /* protects all members below except refs */
	atomic_uint more_refs;
	/* borrowed from the creator until ahead_free(); jobs have a reference of their own */
	struct item *item;
	bool closed;
	struct leaf_orders orders;
	bool places_asked;
	struct reader reader[READERS];
	uint64_t now;    /* number of leaves begun */
	uint64_t missed; /* number of leaves in a row that no cursor expected */
	unsigned part;   /* 1/part of the window is used */
	struct guess guess[GUESSES];
	unsigned n_guesses;
	uint64_t asked; /* sum over all guesses */
};

struct job {
	struct pool_job job;
	struct ahead *ahead; /* a reference */
	struct item *item;   /* a reference */
	uint32_t leaf;
	uint64_t from, n;
	struct zarr_guess *token; /* a reference; NULL: not for a guess */
};

static void reader_init(struct reader *rd, uint32_t id)
{
	*rd = (struct reader){ .id = id };
	for (int o = 0; o < ORDERS; o++)
		rd->cursor[o].at = LEAF_NONE;
}

int ahead_new(struct item *item, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return fail(-ENOMEM, "cannot follow readers");
	pthread_mutex_init(&a->lock, NULL);
	a->item = item;
	leaf_orders_init(&a->orders, item->tree);
	for (int i = 0; i < READERS; i++)
		reader_init(&a->reader[i], 0);
	a->part = 1;
	*ret = a;
	return 0;
}

static void ahead_unref(struct ahead *a)
{
	if (atomic_fetch_sub_explicit(&a->more_refs, 1, memory_order_acq_rel) != 0)
		return;
	leaf_orders_release(&a->orders);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* ---- the table of guesses; with the lock held ---- */

static struct guess *guess_find(struct ahead *a, uint32_t leaf)
{
	for (unsigned i = 0; i < a->n_guesses; i++)
		if (a->guess[i].leaf == leaf)
			return &a->guess[i];
	return NULL;
}

static void guess_remove(struct ahead *a, struct guess *g)
{
	a->asked -= g->asked;
	zarr_guess_unref(g->token);
	*g = a->guess[--a->n_guesses];
}

static void guess_end(struct ahead *a, struct guess *g)
{
	trace(TRACE_AHEAD, "not '%.*s'", SPAN_ARG(a->item->tree->nodes[g->leaf]->param));
	zarr_guess_end(g->token);
	guess_remove(a, g);
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->closed = true;
	while (a->n_guesses)
		guess_end(a, &a->guess[0]);
	pthread_mutex_unlock(&a->lock);
	ahead_unref(a);
}

/* ---- jobs ---- */

static void job_free(struct job *j)
{
	zarr_guess_unref(j->token);
	ahead_unref(j->ahead);
	item_unref(j->item);
	free(j);
}

/* g: the leaf, and its guess if it has a token; NULL: the job is for no leaf. */
static bool job_post(struct ahead *a, const struct guess *g, uint64_t n,
		     void (*run)(struct pool_job *job))
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return false;
	atomic_fetch_add_explicit(&a->more_refs, 1, memory_order_relaxed);
	*j = (struct job){ .job.run = run, .ahead = a, .item = item_ref(a->item) };
	if (g) {
		j->leaf = g->leaf;
		j->from = g->is_known ? g->asked : 0;
		j->n = n;
		j->token = zarr_guess_ref(g->token);
	}
	(g && !g->token ? pool_post : pool_post_idle)(a->item->ckpt->pool, &j->job);
	return true;
}

uint64_t ahead_window(const struct ckpt *c)
{
	uint64_t n = MIN(cache_limit_now(c->cache) / 4, budget_total(c->env.budget) / 2);

	/* Decoding more than keeps all threads busy would only pollute the processors' caches. */
	n = MIN(n, (pool_threads(c->pool) + 1) * THREAD_BYTES);
	return n < AHEAD_LEAST ? 0 : n;
}

/* The free part of the window. Called with the lock held. */
static uint64_t window_left(const struct ahead *a)
{
	struct cache_stats cs;
	uint64_t all = ahead_window(a->item->ckpt) / a->part;

	/* Readers of other items use the window, too. */
	cache_stats(a->item->ckpt->cache, &cs);
	return all - MIN(all, MAX(a->asked, cs.ahead_bytes));
}

/* Set the size of a leaf, which is known now. Returns the part of it to decode. */
static uint64_t job_size(struct job *j, uint64_t bytes)
{
	struct ahead *a = j->ahead;
	uint64_t n = 0;
	struct guess *g;

	if (!j->token)
		return MIN(bytes, j->n);
	pthread_mutex_lock(&a->lock);
	g = guess_find(a, j->leaf);
	if (g && g->token == j->token && !g->is_known) {
		a->asked -= g->asked;
		n = MIN(bytes, MAX(window_left(a), a->n_guesses == 1 ? LEAST_PART : 0));
		g->is_known = true;
		g->bytes = bytes;
		g->asked = n;
		a->asked += n;
	} else if (g && g->token == j->token) {
		n = j->n;
	}
	pthread_mutex_unlock(&a->lock);
	return n;
}

static void job_run(struct pool_job *job)
{
	struct job *j = container_of(job, struct job, job);
	const struct tree_node *leaf = j->item->tree->nodes[j->leaf];
	auto_value v = { 0 };
	auto_format f = { 0 };
	uint64_t n;

	if (!zarr_guess_is_over(j->token) && leaf_open(j->item, leaf, &v) >= 0 &&
	    format_open(v.kind == VALUE_ARRAY ? NAME_EXT_BIN : leaf_ext(NULL, leaf), &v, NULL,
			&f) >= 0) {
		n = job_size(j, f.size);
		trace(TRACE_AHEAD, "'%.*s' %llu+%llu of %llu", SPAN_ARG(leaf->param),
		      (unsigned long long)j->from, (unsigned long long)n,
		      (unsigned long long)f.size);
		if (n)
			format_prefetch(&f, j->from, n, j->token);
	}
	/* The program that opens the leaf gets the error. */
	err_clear();
	job_free(j);
}

void ahead_leaf(struct ahead *a, const struct tree_node *leaf, uint64_t n)
{
	const struct guess g = { .leaf = leaf->id };

	job_post(a, &g, n, job_run);
}

/* ---- cursors; with the lock held ---- */

static bool is_trusted(const struct cursor *c)
{
	return c->at != LEAF_NONE && c->hits >= AHEAD_HITS;
}

/*
 * Whether leaves are guessed after it. In a store one leaf is enough for a part of the window, as
 * connections would be idle until the second one; but not of a reader that jumps between leaves.
 */
static bool is_followed(const struct ahead *a, const struct cursor *c)
{
	return is_trusted(c) ||
	       (c->at != LEAF_NONE && a->item->ckpt->env.in_store && a->missed < MISSED_MAX);
}

/* Whether the cursor expects the leaf. The cursor then moves there, or starts there anew. */
static bool cursor_move(struct ahead *a, enum leaf_order order, struct cursor *c, uint32_t leaf)
{
	uint32_t place = leaf_place(&a->orders, order, leaf), reach = is_trusted(c) ? REACH : 1;
	bool is_near = place != LEAF_NONE && c->at != LEAF_NONE;

	/* Another thread reads the same leaf, or is later than its neighbours. */
	if (is_near && (place == c->at || (is_trusted(c) && c->at - place <= REACH)))
		return true;
	if (!is_near || place - c->at > reach) {
		*c = (struct cursor){ .at = place };
		return false;
	}
	*c = (struct cursor){ place, c->hits + 1 };
	return true;
}

static struct reader *reader_find(struct ahead *a, uint32_t id)
{
	struct reader *old = &a->reader[1];

	for (int i = 1; i < READERS; i++) {
		if (a->reader[i].id == id)
			return &a->reader[i];
		if (a->reader[i].when < old->when)
			old = &a->reader[i];
	}
	reader_init(old, id);
	return old;
}

/*
 * Returns the cursor of the order that the reader has followed longest, NULL when none has the
 * leaf; *ret_expected: whether any cursor expected the leaf.
 */
static const struct cursor *reader_move(struct ahead *a, struct reader *rd, uint32_t leaf,
					enum leaf_order *ret, bool *ret_expected)
{
	const struct cursor *best = NULL;

	for (int o = 0; o < ORDERS; o++) {
		struct cursor *c = &rd->cursor[o];
		bool hit = cursor_move(a, (enum leaf_order)o, c, leaf);

		*ret_expected |= hit && c->hits;
		if (c->at != LEAF_NONE && (!best || c->hits > best->hits)) {
			best = c;
			*ret = (enum leaf_order)o;
		}
	}
	rd->gap = rd->when ? MAX(a->now - rd->when, 3 * rd->gap / 4) : 1;
	rd->when = a->now;
	return best;
}

/* Drop readers that are gone: nothing more is decoded for them. */
static void lose_readers(struct ahead *a)
{
	for (int i = 0; i < READERS; i++) {
		struct reader *rd = &a->reader[i];

		if (rd->when && a->now - rd->when >= LOST * MAX(rd->gap, (uint64_t)LOST_LEAST))
			reader_init(rd, 0);
	}
}

static bool is_expected(const struct ahead *a, uint32_t leaf)
{
	for (int i = 0; i < READERS; i++)
		for (int o = 0; o < ORDERS; o++) {
			const struct cursor *c = &a->reader[i].cursor[o];
			uint32_t place = leaf_place(&a->orders, (enum leaf_order)o, leaf);

			if (is_followed(a, c) && place != LEAF_NONE && place + REACH >= c->at &&
			    place <= c->at + GUESSES)
				return true;
		}
	return false;
}

static void end_unexpected(struct ahead *a)
{
	bool ended = false;

	for (unsigned i = a->n_guesses; i-- > 0;)
		if (!is_expected(a, a->guess[i].leaf)) {
			guess_end(a, &a->guess[i]);
			ended = true;
		}
	if (ended && a->n_guesses == 0)
		cache_end_ahead(a->item->ckpt->cache, a->item->owner);
}

/* ---- guessing ---- */

/* Add a guess for a leaf of about `bytes` bytes. False: no room. */
static bool guess_add(struct ahead *a, uint32_t leaf, uint64_t bytes)
{
	struct guess *g = &a->guess[a->n_guesses];

	if (a->n_guesses == GUESSES ||
	    (a->asked && window_left(a) < MIN(bytes, ahead_window(a->item->ckpt) / a->part)))
		return false;
	*g = (struct guess){ .leaf = leaf, .bytes = bytes, .asked = MIN(bytes, window_left(a)) };
	g->token = calloc(1, sizeof(*g->token));
	if (!g->token || !job_post(a, g, 0, job_run)) {
		free(g->token);
		return false;
	}
	a->asked += g->asked;
	a->n_guesses++;
	return true;
}

/* Decode more of a leaf that did not fit. False: no room. */
static bool guess_more(struct ahead *a, struct guess *g)
{
	uint64_t rest = g->bytes - g->asked, n = MIN(rest, window_left(a));

	if (!g->is_known || rest == 0)
		return true;
	if (n < MIN(rest, LEAST_PART) || !job_post(a, g, n, job_run))
		return false;
	g->asked += n;
	a->asked += n;
	return n == rest;
}

/* Guess as many of the leaves after the cursor as fit the window. */
static void guess_on(struct ahead *a, enum leaf_order order, const struct cursor *c, uint64_t bytes)
{
	bool room = ahead_window(a->item->ckpt) > 0;

	a->part = is_trusted(c) ? 1 : c->hits ? 2 : FIRST_PART;
	for (uint32_t i = 1; i <= GUESSES && room; i++) {
		uint32_t leaf = leaf_at(&a->orders, order, c->at + i);
		struct guess *g;

		if (leaf == LEAF_NONE)
			return;
		g = guess_find(a, leaf);
		room = g ? guess_more(a, g) : guess_add(a, leaf, bytes);
	}
}

static void places_run(struct pool_job *job)
{
	struct job *j = container_of(job, struct job, job);
	struct leaf_row places = leaf_places(j->item);

	pthread_mutex_lock(&j->ahead->lock);
	j->ahead->orders.row[ORDER_PLACES] = places;
	pthread_mutex_unlock(&j->ahead->lock);
	job_free(j);
}

void ahead_begun(struct ahead *a, uint32_t reader, const struct tree_node *leaf, uint64_t bytes)
{
	const struct cursor *own, *all;
	enum leaf_order own_order, all_order;
	bool expected = false;
	struct reader *rd;
	struct guess *g;

	if (!a || !a->item->ckpt->pool)
		return;
	pthread_mutex_lock(&a->lock);
	a->now++;
	g = guess_find(a, leaf->id);
	if (g)
		guess_remove(a, g);
	leaf_orders_make(&a->orders);
	/* To find the places takes time, so no other order must predict the reads. */
	if (a->missed > 2 && !a->places_asked)
		a->places_asked = job_post(a, NULL, 0, places_run);
	all = reader_move(a, &a->reader[0], leaf->id, &all_order, &expected);
	rd = reader_find(a, reader);
	own = reader_move(a, rd, leaf->id, &own_order, &expected);
	a->missed = expected ? 0 : a->missed + 1;
	lose_readers(a);
	if (own && bytes >= AHEAD_SMALL && !a->closed) {
		if (!is_trusted(own) && is_trusted(all))
			guess_on(a, all_order, all, bytes);
		else if (is_followed(a, own))
			guess_on(a, own_order, own, bytes);
	}
	end_unexpected(a);
	pthread_mutex_unlock(&a->lock);
}
