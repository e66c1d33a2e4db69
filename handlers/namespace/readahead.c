/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readahead.c - the run of a sequential reader, and the guess after it.
 *
 * The lock is held for arithmetic, and while a reader that jumps gives up what was guessed for it;
 * never while chunks are prefetched or dropped.
 */
#include "handlers/namespace/readahead.h"

#include "handlers/namespace/ahead.h"
#include "handlers/namespace/ns.h"

#define STORE_BYTES (64 * MiB) /* the longest run in a store, where it fills all connections */
/* parallel requests of one sequential reader are at most this far apart */
#define NEAR_BYTES (8 * MiB)
/*
 * A reader that has read this much sequentially continues: it is more than the kernel requests
 * around one touched page.
 */
#define SURE_BYTES (2 * NEAR_BYTES)
#define PASS_STEP (2 * MiB) /* interval at which data that was read is dropped */

static const struct ckpt *readahead_ckpt(const struct readahead *ra)
{
	return ra->file->node->ns->ckpt;
}

void readahead_init(struct readahead *ra, const struct readahead_ops *ops, struct file *f,
		    uint64_t size)
{
	const struct ns *ns = f->node->ns;

	*ra = (struct readahead){ .ops = ops, .file = f, .size = size };
	/*
	 * The kernel has it in its page cache, or the next reader would find the cache full of the
	 * end of the file.
	 */
	ra->drops = !ns->options->direct_io || size > cache_limit(ns->ckpt->cache) / 2;
	pthread_mutex_init(&ra->lock, NULL);
}

/* ---- the guess; with the lock held ---- */

/* Give up the first n parts: what idle threads have not begun, they will not. */
static void guesses_end(struct readahead *ra, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		zarr_guess_end(ra->guess[i].token);
		zarr_guess_unref(ra->guess[i].token);
	}
	ra->n_guesses -= n;
	memmove(ra->guess, ra->guess + n, ra->n_guesses * sizeof(*ra->guess));
}

/* Extend the guess. Returns a reference, and the range up to ra->guessed; NULL: not now. */
static struct zarr_guess *guess_extend(struct readahead *ra, uint64_t *ret_from)
{
	uint64_t window = ra->ops->end_ahead ? ahead_window(readahead_ckpt(ra)) : 0;
	uint64_t got = ra->reached - ra->first, to;
	struct zarr_guess *token;

	ra->guessed = MAX(ra->guessed, ra->asked);
	if (!window || got <= SURE_BYTES || ra->n_guesses == READAHEAD_GUESSES)
		return NULL;
	/* Never guess more than made the guess likely. */
	to = MIN(ra->asked + MIN(window, got - SURE_BYTES), ra->size);
	if (to <= ra->guessed || (to < ra->size && to - ra->guessed < window / 8))
		return NULL;
	token = calloc(1, sizeof(*token));
	if (!token)
		return NULL;
	*ret_from = ra->guessed;
	ra->guessed = to;
	ra->guess[ra->n_guesses++] = (struct readahead_guess){ to, zarr_guess_ref(token) };
	ra->has_guessed = true;
	return token;
}

/* ---- the run ---- */

/* The next read of a reader that jumps cannot be predicted. Called with the lock held. */
static void readahead_jump(struct readahead *ra, uint64_t off, uint64_t end)
{
	guesses_end(ra, ra->n_guesses);
	if (ra->has_guessed)
		ra->ops->end_ahead(ra->file);
	ra->has_guessed = false;
	ra->first = off;
	ra->reached = ra->asked = ra->guessed = ra->dropped = end;
}

void readahead_release(struct readahead *ra)
{
	if (!ra->ops)
		return;
	readahead_jump(ra, 0, 0);
	pthread_mutex_destroy(&ra->lock);
}

bool readahead_request(struct readahead *ra, uint64_t off, uint64_t end)
{
	const struct ckpt *c = readahead_ckpt(ra);
	uint64_t ahead =
		MIN(c->env.in_store ? STORE_BYTES : READAHEAD_BYTES, cache_limit(c->cache) / 4);
	uint64_t to = MIN(end + ahead, ra->size), from = 0, n = 0, guess_from = 0, guess_to;
	struct zarr_guess *guess = NULL;
	unsigned passed = 0;
	bool jumps;

	pthread_mutex_lock(&ra->lock);
	jumps = off > ra->reached + NEAR_BYTES || off + 8 * NEAR_BYTES < ra->reached;
	if (jumps)
		readahead_jump(ra, off, end);
	ra->reached = MAX(ra->reached, end);
	/* Proceed in steps, so that the cost is not paid by every request. */
	if (!jumps && to > ra->asked && (to - ra->asked >= ahead / 8 || to == ra->size)) {
		from = MAX(ra->asked, end);
		n = to - MIN(from, to);
		ra->asked = to;
		/* Where the run has caught up, its jobs decode the rest of the parts. */
		while (passed < ra->n_guesses && ra->guess[passed].end <= ra->asked)
			passed++;
		guesses_end(ra, passed);
		guess = guess_extend(ra, &guess_from);
	}
	guess_to = ra->guessed;
	pthread_mutex_unlock(&ra->lock);
	if (n)
		ra->ops->prefetch(ra->file, from, n, NULL);
	if (guess)
		ra->ops->prefetch(ra->file, guess_from, guess_to - guess_from, guess);
	zarr_guess_unref(guess);
	return !jumps;
}

void readahead_answered(struct readahead *ra, uint64_t end)
{
	bool all = end == ra->size;
	uint64_t to = all ? end : end - MIN(end, NEAR_BYTES), from;

	if (!ra->drops)
		return;
	pthread_mutex_lock(&ra->lock);
	from = ra->dropped;
	if (to >= from + (all ? 1 : PASS_STEP))
		ra->dropped = to;
	else
		to = from;
	pthread_mutex_unlock(&ra->lock);
	/* The kernel sends parallel requests, which are answered in any order. */
	if (to > from)
		ra->ops->drop_behind(ra->file, from, to);
}
