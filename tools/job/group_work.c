/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_work.c - collective calls of the ranks of a command, shares of the work, and one progress
 * bar.
 *
 * The caller defines the work. A collective call is an agreement (core/job/agree.h); none waits for
 * a rank that does not answer any more.
 *
 * Invariants: a collective call has the same number on all ranks, so a message of another call is
 * never taken for one of this call.
 */
#include "tools/job/group_work.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/wire.h"
#include "core/job/agree.h"
#include "tools/cli/cmd.h"
#include "tools/cli/interrupt.h"

#define LOOK_NS (SECOND_NS / 10) /* interval of checks for failures of other ranks while working */
#define SLICE_NS (SECOND_NS / 5) /* longest single wait */
#define JOB_BYTES (64 * KiB)     /* cost of a job besides its bytes */

struct group_work {
	struct progress *progress;
	uint64_t round;       /* number of the last collective call */
	pthread_mutex_t lock; /* protects all members below */
	int64_t looked;
	uint64_t reported;       /* bytes that were reported to rank 0 */
	struct err_note stopped; /* failure of another rank; code 0: none */
};

/* ---- the bar of all ranks ---- */

/* Called with the lock held. */
static void exchange_progress(struct rank_group *t)
{
	struct group_work *w = t->work;
	auto_of(peers_msg) struct peers_msg *m = NULL;
	uint64_t done = atomic_load(&w->progress->done);
	uint8_t body[8];

	if (!group_is_lead(t)) {
		set_u64le(body, done - w->reported);
		if (done != w->reported &&
		    peers_send(t->peers, 0, &(struct peers_head){ .kind = PEERS_PROGRESS },
			       span_of(body, 8)) >= 0)
			w->reported = done;
	}
	while (group_is_lead(t) && peers_recv(t->peers, PEERS_PROGRESS, 0, -1, 0, &m) >= 0) {
		struct wire in = wire_of(buf_span(&m->body));

		progress_add(w->progress, wire_u64le(&in));
		peers_msg_free(take(m));
	}
	err_clear();
}

/* ---- failures ---- */

/* Whether another rank has failed, for interrupt_check(). */
static int look_for_trouble(void *arg)
{
	struct rank_group *t = arg;
	struct group_work *w = t->work;
	int64_t now = clock_ns();
	auto_unlock pthread_mutex_t *held = lock_hold(&w->lock);
	auto_of(peers_msg) struct peers_msg *m = NULL;

	if (!w->stopped.code && now - w->looked >= LOOK_NS) {
		w->looked = now;
		exchange_progress(t);
		if (peers_recv(t->peers, PEERS_TROUBLE, w->round + 1, -1, 0, &m) >= 0)
			err_save(fail(-ECANCELED, "rank %d: %.*s", m->from,
				      SPAN_ARG(buf_span(&m->body))),
				 &w->stopped);
		err_clear();
	}
	return w->stopped.code ? err_restore(&w->stopped) : 0;
}

void group_work_begin(struct rank_group *t, struct progress *progress)
{
	if (!t)
		return;
	t->work = calloc(1, sizeof(*t->work));
	/* If this fails, the next collective call fails. */
	if (!t->work)
		return;
	pthread_mutex_init(&t->work->lock, NULL);
	t->work->progress = progress;
	if (!group_is_lead(t))
		progress->on = false;
	interrupt_also(look_for_trouble, t);
}

void group_work_end(struct rank_group *t)
{
	if (!t || !t->work)
		return;
	interrupt_also(NULL, NULL);
	pthread_mutex_destroy(&t->work->lock);
	free(take(t->work));
}

/* ---- waiting ---- */

/* Wait for a message of another rank as long as that rank has not ended. */
static int await(void *arg, enum peers_kind kind, uint64_t id, int from, struct peers_msg **ret)
{
	struct rank_group *t = arg;
	struct peers_silence silence = { 0 };
	int64_t pinged = clock_ns();

	for (;;) {
		auto_of(peers_msg) struct peers_msg *left = NULL;
		int64_t now = clock_ns();
		int r = peers_recv(t->peers, kind, id, from,
				   t->rank[from].left ? 0 : now + SLICE_NS, ret);

		if (r != -ETIMEDOUT)
			return r;
		if (peers_recv(t->peers, PEERS_TROUBLE, GROUP_LEFT, from, 0, &left) >= 0)
			t->rank[from].left = true;
		err_clear();
		if (t->rank[from].left)
			return fail(-EIO, "rank %d has come to its end", from);
		pthread_mutex_lock(&t->work->lock);
		exchange_progress(t);
		pthread_mutex_unlock(&t->work->lock);
		if (peers_silent_for(t->peers, from, SLICE_NS, &silence) >
		    PEERS_GIVE_UP_SECONDS * SECOND_NS) {
			t->rank[from].left = t->rank[from].ended = true;
			t->rank[from].status = t->error_status;
			return fail(-ETIMEDOUT, "rank %d does not answer", from);
		}
		if (now - pinged > SECOND_NS) {
			peers_ping(t->peers, from);
			pinged = now;
		}
	}
}

/* ---- meetings ---- */

/*
 * Begin the next agreement, which ends the work before it. The note of an error in the work is
 * kept.
 */
static int begin_meeting(struct rank_group *t, int r, struct agreement *ret)
{
	struct group_work *w = t->work;
	struct err_note note;

	if (!w)
		return fail(-ENOMEM, "cannot work with %d ranks", t->peers->size);
	err_save(r, &note);
	pthread_mutex_lock(&w->lock);
	exchange_progress(t);
	*ret = (struct agreement){ .peers = t->peers, .id = ++w->round, .wait = await, .arg = t };
	w->stopped = (struct err_note){ 0 };
	pthread_mutex_unlock(&w->lock);
	if (r < 0)
		err_restore(&note);
	return 0;
}

int group_gather(struct rank_group *t, int r, struct span text, struct buf *ret)
{
	struct agreement a;
	struct err_note note;
	bool answered;
	int e;

	if (!t)
		return r;
	if (r < 0 && r != -ECANCELED && t->work)
		group_tell_trouble(t, t->work->round + 1, r);
	e = begin_meeting(t, r, &a);
	if (e < 0)
		return e;
	r = agree(&a, r, text, ret, &answered);
	t->agreed |= r < 0 && answered;
	if (!group_is_lead(t))
		return r;
	/* Receive messages that were sent before the votes. */
	err_save(r, &note);
	pthread_mutex_lock(&t->work->lock);
	exchange_progress(t);
	pthread_mutex_unlock(&t->work->lock);
	return r < 0 ? err_restore(&note) : 0;
}

int group_reduce(struct rank_group *t, int r)
{
	return group_gather(t, r, span_of(NULL, 0), NULL);
}

int group_broadcast(struct rank_group *t, int r, struct buf *text)
{
	struct agreement a;
	bool answered;
	int e;

	if (!t)
		return r;
	e = begin_meeting(t, r, &a);
	if (e < 0)
		return e;
	if (group_is_lead(t)) {
		e = agree_answer(&a, -1, MIN(r, 0), text ? buf_span(text) : span_of(NULL, 0));
		return r < 0 || e >= 0 ? r : e;
	}
	r = agree_await(&a, text, &answered);
	t->agreed |= r < 0 && answered;
	return r;
}

/* ---- shares ---- */

struct job {
	uint64_t bytes;
	size_t i;
};

static int largest_first(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->i < y->i ? -1 : x->i > y->i;
}

int group_split(const struct rank_group *t, size_t n, const uint64_t *bytes, int *owner)
{
	int size = t ? t->peers->size : 1;
	auto_free struct job *job = calloc(n + 1, sizeof(*job));
	auto_free uint64_t *load = calloc((size_t)size, sizeof(*load));
	size_t left = 0;

	if (!job || !load)
		return fail(-ENOMEM, "cannot share %zu leaves", n);
	for (size_t i = 0; i < n; i++) {
		if (owner[i] >= 0)
			load[owner[i]] += bytes[i] + JOB_BYTES;
		else
			job[left++] = (struct job){ bytes[i], i };
	}
	qsort(job, left, sizeof(*job), largest_first);
	for (size_t k = 0; k < left; k++) {
		int least = 0;

		for (int i = 1; i < size; i++)
			if (load[i] < load[least])
				least = i;
		owner[job[k].i] = least;
		load[least] += job[k].bytes + JOB_BYTES;
	}
	return 0;
}

struct own {
	worker_fn *fn;
	void *arg;
	size_t *job;
};

static int run_own(void *arg, size_t i, struct worker *worker)
{
	const struct own *o = arg;

	return o->fn(o->arg, o->job[i], worker);
}

int group_parallel_for(const struct rank_group *t, unsigned threads, size_t n, const int *owner,
		       worker_fn *fn, void *arg)
{
	auto_free size_t *job = calloc(n + 1, sizeof(*job));
	struct own own = { fn, arg, job };
	int rank = t ? t->peers->rank : 0;
	size_t mine = 0;

	if (!job)
		return fail(-ENOMEM, "cannot share %zu leaves", n);
	for (size_t i = 0; i < n; i++)
		if (owner[i] == rank)
			job[mine++] = i;
	return parallel_for(threads, mine, run_own, &own);
}
