/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many.c - rounds of chunks, and the threads that share them.
 *
 * In a round, views are planned (in parallel) into jobs, these are sorted by place, threads take
 * batches of neighbours, and chunks that could not be decoded within the budget are read through
 * the cache at the end. The caller is one of the threads, so a busy pool only slows it down.
 */
#include "core/zarr/read_many/read_many.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/zarr/read_many/read_many_impl.h"

#define BATCH_BYTES (2 * MiB)
#define REPORT_NS (20 * 1000 * 1000)

void many_fail(struct many_target *t, int r)
{
	struct many *m = t->many;

	pthread_mutex_lock(&m->lock);
	if (!t->note) {
		t->note = malloc(sizeof(*t->note));
		if (t->note)
			err_save(r, t->note);
		atomic_store(&t->failed, r);
	}
	pthread_mutex_unlock(&m->lock);
	err_clear();
}

/* The chunk fails all views that have a part of it. */
static void many_fail_job(const struct many_job *job, int r)
{
	struct err_note why;

	err_save(r, &why);
	for (; job; job = job->twin) {
		err_restore(&why);
		many_fail(job->t, r);
	}
}

void many_report_progress(struct many *m)
{
	int64_t now = clock_ns();
	int r;

	if (now - m->reported_at < REPORT_NS || m->stopped.code)
		return;
	m->reported_at = now;
	r = m->ops->progress(m->arg, atomic_load(&m->done));
	if (r < 0) {
		err_save(r, &m->stopped);
		atomic_store(&m->stop, true);
	}
}

/* ---- batches ---- */

static uint64_t job_bytes(const struct many_job *j)
{
	return j->n ? j->n : j->src.loc.where == KV_FILE ? j->src.len : 0;
}

static int batch_room(struct many_batch *b)
{
	size_t need = 0;

	for (unsigned i = 0; i < b->n; i++)
		if (b->work[i].how == MANY_WHOLE)
			need += round_up(b->work[i].n, 64);
	if (need <= b->n_buf)
		return 0;
	/* Chunks of one array differ by a few bytes, and the kernel clears each new block. */
	need += need / 8;
	block_free(take(b->buf), b->n_buf);
	b->n_buf = 0;
	b->buf = block_alloc(need);
	if (!b->buf)
		return fail(-ENOMEM, "cannot allocate %zu bytes", need);
	b->n_buf = need;
	return 0;
}

/* Submit the reads of a batch; the thread continues meanwhile. */
static void batch_submit(struct many *m, struct many_batch *b)
{
	size_t at = 0;
	int r = batch_room(b);

	if (r < 0) {
		struct err_note why;

		err_save(r, &why);
		for (unsigned i = 0; i < b->n; i++) {
			err_restore(&why);
			many_fail_job(b->work[i].job, r);
		}
		b->n = 0;
		return;
	}
	for (unsigned i = 0; i < b->n; i++) {
		struct many_work *k = &b->work[i];
		const struct many_job *j = k->job;
		uint8_t *to = k->to + j->from;

		if (!k->n || k->how == MANY_THROUGH)
			continue;
		if (k->how == MANY_WHOLE) {
			k->in = to = b->buf + at;
			at += round_up(k->n, 64);
		}
		k->req = (int)b->n_req;
		b->req[b->n_req++] = (struct io_req){
			.op = IO_READ, .file = j->src.loc.file, .p = to, .n = k->n, .off = k->off
		};
	}
	io_submit(m->env->io, b->req, b->n_req);
}

/* Take the next few jobs, and submit their reads; false when none are left. */
static bool batch_begin(struct many *m, struct many_batch *b)
{
	uint64_t bytes = 0;
	size_t first, n = 0;

	pthread_mutex_lock(&m->lock);
	first = m->next;
	while (m->next < m->n_jobs && n < MANY_BATCH) {
		uint64_t more = job_bytes(m->order[m->next]);

		if (n && bytes + more > m->batch_bytes)
			break;
		bytes += more;
		m->next++;
		n++;
	}
	m->left -= bytes;
	pthread_mutex_unlock(&m->lock);
	b->n = b->n_req = 0;
	for (size_t i = 0; i < n; i++)
		if (!many_job_is_off(m->order[first + i]))
			many_work_init(m, m->order[first + i], &b->work[b->n++]);
	if (n)
		batch_submit(m, b);
	return n > 0;
}

/* The result of a read: an error with a note unless all bytes were read. */
static int many_read_result(const struct io_req *q, const struct err_note *why)
{
	if (q->result == (int64_t)q->n)
		return 0;
	io_file_doubt(q->file);
	/* A server's refusal, of this request or of another one of the batch, says more than the
	 * code. */
	if (q->result < 0)
		return fail((int)q->result, "cannot read '%s' at byte %llu, %zu bytes: %s",
			    q->file->name, (unsigned long long)q->off, q->n,
			    q->result == why->code ? why->text : strerror((int)-q->result));
	return fail(-EUCLEAN, "'%s' ends at byte %llu, %zu bytes at %llu were expected",
		    q->file->name, (unsigned long long)(q->off + (uint64_t)q->result), q->n,
		    (unsigned long long)q->off);
}

static void batch_run(struct many_worker *w, struct many_batch *b)
{
	struct many *m = w->many;
	struct err_note why = { 0 };
	int waited = b->n_req ? io_wait(m->env->io, b->req, b->n_req) : 0;

	/* Results are in the requests; a failed one does not affect the others. */
	if (waited < 0) {
		err_save(waited, &why);
		err_clear();
	}
	for (unsigned i = 0; i < b->n; i++) {
		struct many_work *k = &b->work[i];
		int r = 0;

		if (many_job_is_off(k->job) || k->how == MANY_THROUGH)
			continue;
		if (k->req >= 0)
			r = many_read_result(&b->req[k->req], &why);
		r = r < 0 ? many_at(k->job, r) : many_work_run(w, k);
		if (r == -EUCLEAN && k->job->src.loc.where == KV_FILE)
			io_file_doubt(k->job->src.loc.file);
		if (r < 0)
			many_fail_job(k->job, r);
		else if (w->is_caller)
			many_report_progress(m);
	}
}

/* ---- threads ---- */

static void many_run_worker(struct many_worker *w)
{
	struct many *m = w->many;
	struct many_batch *now = w->batch[0], *next = w->batch[1];
	bool has_now = batch_begin(m, now);

	while (has_now) {
		bool has_next;

		/*
		 * Near the end each thread has one batch only, so that none gets two while another
		 * gets none.
		 */
		pthread_mutex_lock(&m->lock);
		has_next = m->left > 2 * m->workers * m->batch_bytes;
		pthread_mutex_unlock(&m->lock);
		has_next = has_next && batch_begin(m, next);
		batch_run(w, now);
		has_now = has_next || batch_begin(m, next);
		next = now;
		now = now == w->batch[0] ? w->batch[1] : w->batch[0];
	}
}

static void work_posted(struct pool_job *job)
{
	struct many_worker *w = container_of(job, struct many_worker, job);
	struct many *m = w->many;

	many_run_worker(w);
	pthread_mutex_lock(&m->lock);
	w->ended = true;
	pthread_cond_signal(&m->ended);
	pthread_mutex_unlock(&m->lock);
}

static void many_wait_all(struct many *m, struct many_worker *w)
{
	pthread_mutex_lock(&m->lock);
	for (unsigned i = 1; i < m->workers; i++)
		while (!w[i].ended) {
			struct timespec at = clock_timespec(clock_ns() + REPORT_NS);

			pthread_cond_timedwait(&m->ended, &m->lock, &at);
			pthread_mutex_unlock(&m->lock);
			many_report_progress(m);
			pthread_mutex_lock(&m->lock);
		}
	pthread_mutex_unlock(&m->lock);
}

static int run_workers(struct many *m)
{
	auto_free struct many_worker *w = calloc(m->workers, sizeof(*w));
	bool has_all = w;

	for (unsigned i = 0; w && i < 2 * m->workers; i++) {
		struct many_batch *b = malloc(sizeof(*b));

		w[i / 2].many = m;
		w[i / 2].job.run = work_posted;
		w[i / 2].batch[i % 2] = b;
		has_all &= b != NULL;
		if (b) {
			b->buf = NULL;
			b->n_buf = 0;
		}
	}
	if (has_all) {
		w[0].is_caller = true;
		for (unsigned i = 1; i < m->workers; i++)
			pool_post(m->pool, &w[i].job);
		many_run_worker(&w[0]);
		many_wait_all(m, w);
	}
	for (unsigned i = 0; w && i < m->workers; i++) {
		for (unsigned k = 0; k < ARRAY_LEN(w[i].batch); k++) {
			if (w[i].batch[k])
				block_free(w[i].batch[k]->buf, w[i].batch[k]->n_buf);
			free(w[i].batch[k]);
		}
		block_free(w[i].scratch, w[i].n_scratch);
	}
	return has_all ? 0 : fail(-ENOMEM, "cannot begin to read");
}

/* ---- a round ---- */

static int many_by_place(const void *a, const void *b)
{
	const struct many_job *x = *(struct many_job *const *)a, *y = *(struct many_job *const *)b;
	const struct io_file *f = x->src.loc.file, *g = y->src.loc.file;
	uint64_t at_x = x->src.loc.off + x->src.off + x->from;
	uint64_t at_y = y->src.loc.off + y->src.off + y->from;

	if (f != g && (!f || !g))
		return f ? 1 : -1;
	if (f != g && (f->dev != g->dev || f->ino != g->ino))
		return f->dev != g->dev ? (f->dev > g->dev ? 1 : -1) : f->ino > g->ino ? 1 : -1;
	return (at_x > at_y) - (at_x < at_y);
}

/* Stored elements are not decoded, so each view reads its own of them. */
static bool is_twin(const struct many_job *a, const struct many_job *b)
{
	const struct zarr *y = a->t->r.z, *z = b->t->r.z;

	return a->number == b->number && y->owner == z->owner && y->tag == z->tag && !z->leaf_raw &&
	       a->src.loc.where == KV_FILE && b->src.loc.where == KV_FILE &&
	       a->src.loc.off == b->src.loc.off && a->src.off == b->src.off &&
	       a->src.len == b->src.len;
}

/* List the round's jobs by place; those of one chunk are joined as twins of the first. */
static int many_collect(struct many *m, struct many_target **active, size_t n)
{
	struct many_job *last = NULL;
	size_t all = 0, n_chunks = 0;

	m->n_jobs = m->next = 0;
	m->left = 0;
	for (size_t i = 0; i < n; i++)
		all += active[i]->n_jobs;
	free(m->order);
	m->order = malloc((all + 1) * sizeof(struct many_job *));
	if (!m->order)
		return fail(-ENOMEM, "cannot list %zu chunks", all);
	for (size_t i = 0, at = 0; i < n; i++)
		for (size_t k = 0; k < active[i]->n_jobs; k++)
			m->order[at++] = &active[i]->job[k];
	qsort(m->order, all, sizeof(struct many_job *), many_by_place);
	for (size_t i = 0; i < all; i++) {
		struct many_job *j = m->order[i];

		if (last && is_twin(last, j)) {
			last->twin = j;
		} else {
			m->order[n_chunks++] = j;
			m->left += job_bytes(j);
		}
		last = j;
	}
	m->n_jobs = n_chunks;
	return 0;
}

/*
 * Determine the number of threads and the size of batches; returns the most that they take of the
 * budget.
 */
static uint64_t many_measure(struct many *m)
{
	uint64_t share, most = 0, all = 0, total = budget_total(m->env->budget) / 4 * 3;
	unsigned threads = MAX(1u, pool_threads(m->env->pool));

	for (size_t i = 0; i < m->n_jobs; i++) {
		const struct many_job *j = m->order[i];
		uint64_t one = job_bytes(j) + (j->t->r.z->leaf_raw ? 0 : j->t->r.z->leaf->bytes);

		most = MAX(most, one);
		all += one;
	}
	share = total / threads;
	m->batch_bytes = MIN(BATCH_BYTES, MAX(share / 8, (uint64_t)64 * KiB));
	m->big_bytes = MAX(share / 2, share - MIN(share, 2 * m->batch_bytes));
	m->workers = (unsigned)MIN((uint64_t)threads, MAX((uint64_t)1, m->left / (256 * KiB)));
	m->workers = (unsigned)MIN((size_t)m->workers, MAX(m->n_jobs, (size_t)1));
	m->workers = m->pool ? m->workers : 1;
	return MIN(MIN(total, all), m->workers * (2 * m->batch_bytes + MIN(most, m->big_bytes)));
}

static int run_round(struct many *m, struct many_target **active, size_t n)
{
	uint64_t budget;
	int r = many_collect(m, active, n);

	if (r < 0 || !m->n_jobs)
		return r;
	budget = many_measure(m);
	while (!atomic_load(&m->stop) && !budget_try(m->env->budget, budget)) {
		usleep(1000);
		many_report_progress(m);
	}
	if (atomic_load(&m->stop))
		return 0;
	trace(TRACE_ZARR, "read %zu chunks by %u threads", m->n_jobs, m->workers);
	r = run_workers(m);
	budget_give(m->env->budget, budget);
	for (size_t i = 0; i < m->n_jobs && r >= 0; i++) {
		struct many_job *j = m->order[i];
		struct many_work k;
		int failed;

		if (many_job_is_off(j))
			continue;
		many_work_init(m, j, &k);
		failed = k.how == MANY_THROUGH ? many_through(m, &k) : 0;
		if (failed < 0)
			many_fail(j->t, failed);
	}
	return r;
}

/* ---- all rounds ---- */

static void many_finish(struct many_target *t, bool report)
{
	int r = atomic_load(&t->failed);

	if (report) {
		if (t->note)
			err_restore(t->note);
		t->many->ops->done(t->many->arg, t->i, r);
		err_clear();
	}
	if (t->is_open)
		zarr_unref(t->r.z);
	free(t->job);
	free(t->note);
	*t = (struct many_target){ 0 };
}

static int read_rounds(struct many *m, size_t n, struct many_target **active)
{
	size_t next = 0, n_active;
	int r = 0;

	while (r >= 0) {
		/* The targets of this round: those that have more chunks, and new ones. */
		n_active = 0;
		for (size_t i = 0; i < m->n_targets; i++) {
			struct many_target *t = &m->target[i];

			if (!t->many && next < n)
				*t = (struct many_target){ .many = m, .i = next++ };
			if (t->many)
				active[n_active++] = t;
		}
		if (!n_active)
			return 0;
		for (size_t i = 0; i < n_active; i++)
			active[i]->max_jobs = MAX((size_t)64, READ_MANY_JOBS / n_active);
		m->first = active[0];
		atomic_store(&m->in_hand, 0);
		r = pool_run(m->pool, many_plan, active, sizeof(struct many_target *), n_active);
		many_report_progress(m);
		if (r >= 0 && !atomic_load(&m->stop))
			r = run_round(m, active, n_active);
		for (size_t i = 0; i < n_active; i++)
			many_jobs_release(active[i]);
		if (atomic_load(&m->stop))
			r = err_restore(&m->stopped);
		for (size_t i = 0; i < n_active && r >= 0; i++)
			if (!active[i]->more || atomic_load(&active[i]->failed))
				many_finish(active[i], true);
	}
	return r;
}

int zarr_read_many(struct zarr_env *env, size_t n, const struct read_many_ops *ops, void *arg)
{
	struct many m = {
		.env = env, .ops = ops, .arg = arg, .pool = ops->is_alone ? NULL : env->pool
	};
	auto_free struct many_target **active = NULL;
	struct err_note why;
	int r;

	if (!n)
		return 0;
	m.n_targets = MIN(n, (size_t)READ_MANY_ARRAYS);
	m.target = calloc(m.n_targets, sizeof(*m.target));
	active = calloc(m.n_targets, sizeof(struct many_target *));
	pthread_mutex_init(&m.lock, NULL);
	clock_cond_init(&m.ended);
	r = m.target && active ? read_rounds(&m, n, active) :
				 fail(-ENOMEM, "cannot read %zu arrays", n);
	err_save(r, &why);
	for (size_t i = 0; m.target && i < m.n_targets; i++)
		if (m.target[i].many)
			many_finish(&m.target[i], false);
	free(m.order);
	free(m.target);
	pthread_cond_destroy(&m.ended);
	pthread_mutex_destroy(&m.lock);
	return r < 0 ? err_restore(&why) : 0;
}
