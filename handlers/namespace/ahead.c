/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.c - the guesses that cursors of readers make, and the jobs that decode them.
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
#include "handlers/namespace/leaf_reader.h"

#define GUESSES 64
/* part of the window for each decoding thread: 16 MiB and a header */
#define THREAD_BYTES (17 * MiB)
#define LEAST_PART (1 * MiB) /* smallest part of a leaf that is worth a job */
#define FIRST_PART 8         /* 1/8 of the window after the first leaf in a store */
#define READ_WHOLE 0x8000 /* in leaf_use: its pages are in the page cache, unless that is short */
#define MISSED_MAX 2      /* unexpected leaves in a row: the reader jumps */

struct guess {
	uint32_t leaf;
	bool is_known; /* `bytes` is the real size, not an estimate */
	uint64_t bytes, asked;
	uint64_t charged; /* to the window: `asked`, of a file in memory THREAD_BYTES at most */
	bool in_file;     /* a leaf that may be in memory is decoded into a file */
	struct zarr_guess *token; /* a reference */
};

struct ahead {
	pthread_mutex_t lock; /* protects all members below except refs */
	atomic_uint more_refs;
	/* borrowed from the creator until ahead_free(); jobs have a reference of their own */
	struct item *item;
	struct memory_files *memory; /* NULL: none */
	/* By leaf: the number of files that are open and read by requests, and READ_WHOLE. */
	uint16_t *leaf_use; /* NULL until the first one */
	bool closed;
	struct leaf_orders orders;
	bool places_asked;
	struct leaf_readers readers;
	uint64_t missed; /* number of leaves in a row that no cursor expected */
	unsigned part;   /* 1/part of the window is used */
	struct guess guess[GUESSES];
	unsigned n_guesses;
	uint64_t charged; /* sum over all guesses */
};

struct job {
	struct pool_job job;
	struct ahead *ahead; /* a reference */
	struct item *item;   /* a reference */
	uint32_t leaf;
	uint64_t from, n;
	bool in_file;
	struct zarr_guess *token; /* a reference; NULL: not for a guess */
};

int ahead_new(struct item *item, struct memory_files *memory, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return fail(-ENOMEM, "cannot follow readers");
	pthread_mutex_init(&a->lock, NULL);
	a->item = item;
	a->memory = memory;
	leaf_orders_init(&a->orders, item->tree);
	leaf_readers_init(&a->readers);
	a->part = 1;
	*ret = a;
	return 0;
}

void ahead_use_memory(struct ahead *a, struct memory_files *memory)
{
	if (a)
		a->memory = memory;
}

static void ahead_unref(struct ahead *a)
{
	if (atomic_fetch_sub_explicit(&a->more_refs, 1, memory_order_acq_rel) != 0)
		return;
	leaf_orders_release(&a->orders);
	free(a->leaf_use);
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
	a->charged -= g->charged;
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
	memory_files_drop(a->memory, a->item->owner);
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
		j->in_file = g->in_file;
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
	return all - MIN(all, MAX(a->charged, cs.ahead_bytes));
}

/* Whether a leaf of that size may be decoded into a file in memory, as a whole. */
static bool is_whole(const struct ahead *a, uint64_t bytes)
{
	return bytes >= MEMORY_FILE_LEAST && bytes <= MEMORY_FILE_MOST &&
	       MIN(bytes, THREAD_BYTES) <= ahead_window(a->item->ckpt);
}

/*
 * The part of the window that n bytes of a leaf take. A file in memory takes none of the cache,
 * which the window protects, and has a limit of its own: it counts as what keeps a thread busy.
 */
static uint64_t guess_charge(const struct ahead *a, const struct guess *g, uint64_t n)
{
	return g->in_file && is_whole(a, g->bytes) ? MIN(n, THREAD_BYTES) : n;
}

static void guess_ask(struct ahead *a, struct guess *g, uint64_t asked)
{
	a->charged -= g->charged;
	g->asked = asked;
	g->charged = guess_charge(a, g, asked);
	a->charged += g->charged;
}

/* Of the next n bytes of a leaf: those that fit what is left of the window, or a whole file. */
static uint64_t guess_room(const struct ahead *a, const struct guess *g, uint64_t n, uint64_t left)
{
	uint64_t charge = guess_charge(a, g, n);

	if (charge <= left)
		return n;
	return g->in_file && is_whole(a, g->bytes) ? 0 : left;
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
		g->is_known = true;
		g->bytes = bytes;
		guess_ask(a, g, 0);
		n = guess_room(a, g, bytes,
			       MAX(window_left(a), a->n_guesses == 1 ? LEAST_PART : 0));
		guess_ask(a, g, n);
	} else if (g && g->token == j->token) {
		n = j->n;
	}
	pthread_mutex_unlock(&a->lock);
	return n;
}

/*
 * memory_file_get(), but for none of an item that is gone: nobody would remove its file until the
 * kernel forgets the item's names.
 */
static struct memory_file *ahead_file(struct ahead *a, const struct item *item,
				      const struct memory_key *key, const struct format *f,
				      const struct zarr_guess *guess)
{
	struct memory_file *file =
		memory_file_get(a->memory, key, atomic_load(&item->is_gone) ? NULL : f, guess);

	if (file && atomic_load(&item->is_gone))
		memory_files_drop(a->memory, key->owner);
	return file;
}

/* Decode n bytes of a leaf: into a file in memory, if they are the whole one. */
static void job_decode(const struct job *j, const struct format *f, uint64_t n)
{
	const struct memory_key key = { j->item->owner, j->leaf };
	struct memory_files *memory = j->ahead->memory;
	struct memory_file *file;

	if (j->in_file && n == f->size && ahead_is_for_memory(f)) {
		file = ahead_file(j->ahead, j->item, &key, f, j->token);
		memory_file_put(memory, file);
		/* A thread that fills it at the moment needs no help. */
		if (file || memory_files_have(memory, &key))
			return;
		/* It has no room there, and not more than this in the cache. */
		n = MIN(n, THREAD_BYTES);
	}
	format_prefetch(f, j->from, n, j->token);
}

static void job_run(struct pool_job *job)
{
	struct job *j = container_of(job, struct job, job);
	const struct tree_node *leaf = j->item->tree->nodes[j->leaf];
	/* The file of a leaf that may be in memory; otherwise its bytes, of which chunks are
	 * decoded. */
	enum name_ext ext = j->in_file ? NAME_EXT_NPY : NAME_EXT_BIN;
	auto_value v = { 0 };
	auto_format f = { 0 };
	uint64_t n;

	if (!zarr_guess_is_over(j->token) && leaf_open(j->item, leaf, &v) >= 0 &&
	    format_open(v.kind == VALUE_ARRAY ? ext : leaf_ext(NULL, leaf), &v, NULL, &f) >= 0) {
		n = job_size(j, f.size);
		trace(TRACE_AHEAD, "'%.*s' %llu+%llu of %llu", SPAN_ARG(leaf->param),
		      (unsigned long long)j->from, (unsigned long long)n,
		      (unsigned long long)f.size);
		if (n)
			job_decode(j, &f, n);
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

/*
 * Whether leaves are guessed after it. In a store one leaf is enough for a part of the window, as
 * connections would be idle until the second one; but not of a reader that jumps between leaves.
 */
static bool is_followed(const struct ahead *a, const struct leaf_cursor *c)
{
	return cursor_is_trusted(c) ||
	       (c->at != LEAF_NONE && a->item->ckpt->env.in_store && a->missed < MISSED_MAX);
}

static bool is_expected(const struct ahead *a, uint32_t leaf)
{
	for (int i = 0; i < READERS; i++)
		for (int o = 0; o < ORDERS; o++) {
			const struct leaf_cursor *c = &a->readers.reader[i].cursor[o];
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

static unsigned leaf_use(const struct ahead *a, uint32_t leaf)
{
	return a->leaf_use ? a->leaf_use[leaf] : 0;
}

/* Add a guess for a leaf of about `bytes` bytes. False: no room. */
static bool guess_add(struct ahead *a, uint32_t leaf, uint64_t bytes, enum ahead_how how)
{
	uint64_t left = window_left(a), all = ahead_window(a->item->ckpt) / a->part;
	struct guess *g = &a->guess[a->n_guesses];

	if (how == AHEAD_IN_FILES && leaf_use(a, leaf) & READ_WHOLE)
		return true;
	if (a->n_guesses == GUESSES)
		return false;
	*g = (struct guess){ .leaf = leaf,
			     .in_file = how != AHEAD_CHUNKS && !leaf_use(a, leaf),
			     .bytes = bytes };
	if (a->charged && left < MIN(guess_charge(a, g, bytes), all))
		return false;
	g->token = calloc(1, sizeof(*g->token));
	if (!g->token || !job_post(a, g, 0, job_run)) {
		free(g->token);
		return false;
	}
	guess_ask(a, g, guess_room(a, g, bytes, left));
	a->n_guesses++;
	return true;
}

/* Decode more of a leaf that did not fit. False: no room. */
static bool guess_more(struct ahead *a, struct guess *g)
{
	uint64_t rest = g->bytes - g->asked, n = guess_room(a, g, rest, window_left(a));

	if (!g->is_known || rest == 0)
		return true;
	if (n < MIN(rest, LEAST_PART) || !job_post(a, g, n, job_run))
		return false;
	guess_ask(a, g, g->asked + n);
	return n == rest;
}

/* Guess as many of the leaves after the cursor as fit the window. */
static void guess_on(struct ahead *a, enum leaf_order order, const struct leaf_cursor *c,
		     uint64_t bytes, enum ahead_how how)
{
	bool room = ahead_window(a->item->ckpt) > 0;

	a->part = cursor_is_trusted(c) ? 1 : c->hits ? 2 : FIRST_PART;
	for (uint32_t i = 1; i <= GUESSES && room; i++) {
		uint32_t leaf = leaf_at(&a->orders, order, c->at + i);
		struct guess *g;

		if (leaf == LEAF_NONE)
			return;
		g = guess_find(a, leaf);
		room = g ? guess_more(a, g) : guess_add(a, leaf, bytes, how);
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

void ahead_begun(struct ahead *a, uint32_t reader, const struct tree_node *leaf, uint64_t bytes,
		 enum ahead_how how)
{
	const struct leaf_cursor *own, *all;
	enum leaf_order own_order, all_order;
	bool expected = false;
	struct leaf_readers *rs;
	struct leaf_reader *rd;
	struct guess *g;

	if (!a || !a->item->ckpt->pool)
		return;
	rs = &a->readers;
	pthread_mutex_lock(&a->lock);
	g = guess_find(a, leaf->id);
	if (g)
		guess_remove(a, g);
	leaf_orders_make(&a->orders);
	/* To find the places takes time, so no other order must predict the reads. */
	if (a->missed > 2 && !a->places_asked)
		a->places_asked = job_post(a, NULL, 0, places_run);
	rs->now++;
	all = reader_move(rs, &rs->reader[0], &a->orders, leaf->id, &all_order, &expected);
	rd = reader_find(rs, reader);
	own = reader_move(rs, rd, &a->orders, leaf->id, &own_order, &expected);
	a->missed = expected ? 0 : a->missed + 1;
	leaf_readers_lose(rs);
	/* The kernel has lost pages of a leaf that was read whole, and maybe those of others. */
	if (how == AHEAD_FILES && leaf_use(a, leaf->id) & READ_WHOLE)
		for (uint32_t i = 0; i < a->item->tree->n_nodes; i++)
			a->leaf_use[i] &= (uint16_t)~READ_WHOLE;
	if (how == AHEAD_FILES && ++rd->unended > REACH)
		rd->reads_all = false;
	if (how == AHEAD_FILES && (!rd->reads_all || !memory_files_allowed(a->memory)))
		how = AHEAD_CHUNKS;
	if (own && bytes >= AHEAD_SMALL && !a->closed && (how != AHEAD_IN_FILES || rd->reads_all)) {
		if (!cursor_is_trusted(own) && cursor_is_trusted(all))
			guess_on(a, all_order, all, bytes, how);
		else if (is_followed(a, own))
			guess_on(a, own_order, own, bytes, how);
	}
	end_unexpected(a);
	pthread_mutex_unlock(&a->lock);
}

/* ---- files in memory ---- */

bool ahead_is_for_memory(const struct format *f)
{
	return format_is_whole_npy(f) && f->size >= MEMORY_FILE_LEAST &&
	       f->size <= MEMORY_FILE_MOST;
}

struct memory_file *ahead_open(struct ahead *a, uint32_t reader, const struct tree_node *leaf,
			       const struct format *f)
{
	const struct leaf_reader *rd;
	struct memory_file *file;
	const struct guess *g;
	struct memory_key key;
	bool fills;

	if (!a || !a->memory || !a->item->ckpt->pool)
		return NULL;
	key = (struct memory_key){ a->item->owner, leaf->id };
	pthread_mutex_lock(&a->lock);
	rd = reader_known(&a->readers, reader);
	g = guess_find(a, leaf->id);
	/* Whether it is decoded into memory now, if it is not there yet. */
	fills = rd && rd->reads_all && (!g || g->in_file) && !leaf_use(a, leaf->id) &&
		is_whole(a, f->size) &&
		(reader_is_next(rd, &a->orders, leaf->id) ||
		 reader_is_next(&a->readers.reader[0], &a->orders, leaf->id));
	pthread_mutex_unlock(&a->lock);
	file = ahead_file(a, a->item, &key, fills ? f : NULL, NULL);
	if (file)
		ahead_begun(a, reader, leaf, f->size, AHEAD_IN_FILES);
	return file;
}

bool ahead_opened(struct ahead *a, const struct tree_node *leaf)
{
	uint16_t *use;
	bool counts;

	if (!a)
		return false;
	pthread_mutex_lock(&a->lock);
	if (!a->leaf_use)
		a->leaf_use = calloc(a->item->tree->n_nodes, sizeof(*a->leaf_use));
	use = a->leaf_use ? &a->leaf_use[leaf->id] : NULL;
	counts = use && (*use & ~READ_WHOLE) < READ_WHOLE - 1;
	if (counts)
		++*use;
	pthread_mutex_unlock(&a->lock);
	return counts;
}

void ahead_closed(struct ahead *a, const struct tree_node *leaf)
{
	pthread_mutex_lock(&a->lock);
	a->leaf_use[leaf->id]--;
	pthread_mutex_unlock(&a->lock);
}

void ahead_ended(struct ahead *a, uint32_t reader, const struct tree_node *leaf)
{
	struct leaf_reader *rd;

	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	rd = reader_known(&a->readers, reader);
	if (rd) {
		rd->reads_all = true;
		rd->unended = 0;
	}
	if (a->leaf_use)
		a->leaf_use[leaf->id] |= READ_WHOLE;
	pthread_mutex_unlock(&a->lock);
}
