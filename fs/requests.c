/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.c - a list of what each thread serves, one of what waits for a thread, and a thread that
 * watches both.
 *
 * A request is answered on the device from which it was read, since each thread of the loop has a
 * clone of its own, in which the kernel looks the request up. The kernel never uses a number of a
 * request again, so an answer that comes twice finds nothing.
 *
 * Invariants: a thread's request is abandoned, or the thread is done with it, under the thread's
 * lock; a request is counted as abandoned before its caller is answered, so every later request
 * meets it; the watcher runs while anything waits or is interrupted. Lock order: the lock of
 * requests, then that of a thread.
 */
#include "fs/requests.h"

#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "fs/fs.h"
#include "fs/operations.h"
#include "fs/request.h"
#include "fs/serving.h"

#define TICK_NS (SECOND_NS / 10)
#define STUCK_NS SECOND_NS          /* served for longer: it waits for something */
#define PATIENCE_NS (SECOND_NS / 5) /* of a caller that handles the signal */
#define LATE_NS (5 * SECOND_NS)     /* until its thread has said that it serves the request */

struct server {
	struct server *next;
	struct requests *all;
	struct waiting *first; /* until the thread has it */
	pthread_mutex_t lock;  /* protects request, and changes of is_abandoned */
	struct request request;
	atomic_bool is_abandoned;
	bool is_of_loop;
};

struct waiting {
	struct waiting *next;
	struct request request;
	size_t n;
	char bytes[];
};

struct interrupt {
	uint64_t unique;
	int64_t since;
	bool was_found;
};

/* Called with the lock held. */
static bool must_wait(struct requests *q, const struct request *r, const void *buf, size_t n)
{
	bool found = false;

	if (!atomic_load(&q->n_abandoned))
		return false;
	for (struct server *s = q->servers; s && !found; s = s->next) {
		pthread_mutex_lock(&s->lock);
		found = s->request.unique && atomic_load(&s->is_abandoned) &&
			request_must_wait_for(&s->request, r, buf, n);
		pthread_mutex_unlock(&s->lock);
	}
	return found;
}

/* ---- threads ---- */

static struct server *server_new(struct requests *q, bool is_of_loop)
{
	struct server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->all = q;
	s->is_of_loop = is_of_loop;
	return s;
}

/* Called with the lock held. */
static void list_server(struct requests *q, struct server *s)
{
	s->next = q->servers;
	q->servers = s;
}

static void server_free(struct server *s)
{
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void requests_begin(struct server *s, const struct request *r)
{
	pthread_mutex_lock(&s->lock);
	s->request = *r;
	s->request.since = clock_ns();
	atomic_store(&s->is_abandoned, false);
	pthread_mutex_unlock(&s->lock);
	operation_begin(r->opcode);
}

static void requests_finish(struct requests *q, struct server *s)
{
	bool was_abandoned;

	if (!s->request.unique)
		return;
	operation_end(q->fs->ns, s->request.since);
	pthread_mutex_lock(&s->lock);
	s->request.unique = 0;
	was_abandoned = atomic_load(&s->is_abandoned);
	pthread_mutex_unlock(&s->lock);
	if (was_abandoned)
		atomic_fetch_sub(&q->n_abandoned, 1);
	if (s->is_of_loop)
		atomic_fetch_sub(&q->busy, 1);
}

int requests_device(int fd)
{
	const struct server *self = serving()->server;

	return self && self->request.unique ? self->request.fd : fd;
}

bool requests_is_abandoned(void)
{
	const struct server *self = serving()->server;

	return self && atomic_load(&self->is_abandoned);
}

/* ---- requests that wait for a thread ---- */

/* Returns false without memory for it. */
static bool keep_waiting(struct requests *q, const struct request *r, const void *buf, size_t n)
{
	struct waiting *w = malloc(sizeof(*w) + n);

	if (!w)
		return false;
	w->next = NULL;
	w->request = *r;
	w->n = n;
	memcpy(w->bytes, buf, n);
	*q->last = w;
	q->last = &w->next;
	atomic_fetch_add(&q->n_waiting, 1);
	pthread_cond_signal(&q->changed);
	return true;
}

static struct waiting *requests_take_out(struct requests *q, struct waiting **at)
{
	struct waiting *w = *at;

	*at = w->next;
	if (!w->next)
		q->last = at;
	atomic_fetch_sub(&q->n_waiting, 1);
	return w;
}

/* Called with the lock held. */
static struct waiting *first_that_may(struct requests *q)
{
	for (struct waiting **at = &q->first; *at; at = &(*at)->next)
		if (!must_wait(q, &(*at)->request, (*at)->bytes, (*at)->n))
			return requests_take_out(q, at);
	return NULL;
}

static struct waiting *next_waiting(struct requests *q, struct server *s)
{
	struct waiting *w;
	bool may;

	if (!atomic_load(&q->n_waiting))
		return NULL;
	pthread_mutex_lock(&q->lock);
	may = !s->is_of_loop || atomic_fetch_add(&q->busy, 1) < FS_THREADS_MAX;
	w = may && !q->ending ? first_that_may(q) : NULL;
	if (!w && s->is_of_loop)
		atomic_fetch_sub(&q->busy, 1);
	if (w)
		requests_begin(s, &w->request);
	pthread_mutex_unlock(&q->lock);
	return w;
}

/* Whether this thread serves the request that it has read; else it waits for another one. */
static bool requests_may_begin(struct requests *q, struct server *s, int fd, const void *buf,
			       size_t n)
{
	struct request r = request_describe(fd, buf, n);
	bool may = atomic_fetch_add(&q->busy, 1) < FS_THREADS_MAX && !atomic_load(&q->n_abandoned);

	if (!may) {
		pthread_mutex_lock(&q->lock);
		may = atomic_load(&q->busy) <= FS_THREADS_MAX && !must_wait(q, &r, buf, n);
		if (!may) {
			may = !keep_waiting(q, &r, buf, n);
			atomic_fetch_sub(&q->busy, !may);
		}
		pthread_mutex_unlock(&q->lock);
	}
	if (may)
		requests_begin(s, &r);
	return may;
}

static void note_interrupt(struct requests *q, const void *buf, size_t n)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_interrupt_in *in = (const void *)(h + 1);

	if (n < sizeof(*h) + sizeof(*in))
		return;
	pthread_mutex_lock(&q->lock);
	if (q->n_interrupts == q->max_interrupts) {
		size_t max = q->max_interrupts * 2 + 16;
		void *more = realloc(q->interrupts, max * sizeof(*q->interrupts));

		if (more) {
			q->interrupts = more;
			q->max_interrupts = max;
		}
	}
	/* Without memory, the caller waits for its answer. */
	if (q->n_interrupts < q->max_interrupts)
		q->interrupts[q->n_interrupts++] =
			(struct interrupt){ .unique = in->unique, .since = clock_ns() };
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

/* A thread of the loop reads for the first time. */
static struct server *requests_enter(struct requests *q)
{
	struct server *s = server_new(q, true);

	if (!s)
		return NULL;
	pthread_mutex_lock(&q->lock);
	list_server(q, s);
	pthread_mutex_unlock(&q->lock);
	serving()->server = s;
	return s;
}

ssize_t requests_read(struct requests *q, int fd, void *buf, size_t n)
{
	struct server *self = serving()->server;
	struct waiting *w;
	bool polled;
	ssize_t r;

	if (!self && !(self = requests_enter(q))) {
		errno = ENOMEM;
		return -1;
	}
	requests_finish(q, self);
	for (;;) {
		w = next_waiting(q, self);
		if (w) {
			r = (ssize_t)MIN(w->n, n);
			memcpy(buf, w->bytes, (size_t)r);
			free(w);
			return r;
		}
		r = request_reader_read(&q->fs->request_reader, fd, buf, n, &polled);
		if (r < (ssize_t)sizeof(struct fuse_in_header))
			return r;
		if (((const struct fuse_in_header *)buf)->opcode == FUSE_INTERRUPT) {
			note_interrupt(q, buf, (size_t)r);
			continue;
		}
		init_see_request(&q->fs->init, buf, (size_t)r);
		atomic_fetch_add_explicit(&q->fs->ns->requests, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&q->fs->ns->requests_polled, polled,
					  memory_order_relaxed);
		if (requests_may_begin(q, self, fd, buf, (size_t)r))
			return r;
	}
}

/* ---- more threads ---- */

static void *serve_more(void *arg)
{
	struct server *s = arg, **at;
	struct requests *q = s->all;
	struct waiting *w = take(s->first);

	serving()->server = s;
	operation_begin(s->request.opcode);
	while (w) {
		struct fuse_buf buf = { .mem = w->bytes, .size = w->n };

		err_clear();
		fuse_session_process_buf(q->fs->se, &buf);
		requests_finish(q, s);
		free(w);
		w = next_waiting(q, s);
	}
	pthread_mutex_lock(&q->lock);
	for (at = &q->servers; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	q->more--;
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
	server_free(s);
	return NULL;
}

/* Called with the lock held. */
static unsigned in_progress(struct requests *q)
{
	int64_t now = clock_ns();
	unsigned n = 0;

	for (struct server *s = q->servers; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		n += s->request.unique && !atomic_load(&s->is_abandoned) &&
		     now - s->request.since < STUCK_NS;
		pthread_mutex_unlock(&s->lock);
	}
	return n;
}

/* Called with the lock held. */
static bool start_one_more(struct requests *q)
{
	struct server *s = server_new(q, false);
	struct waiting *w = s ? first_that_may(q) : NULL;
	pthread_t thread;

	if (w) {
		s->first = w;
		requests_begin(s, &w->request);
		if (thread_start(&thread, "fuse_more", serve_more, s) >= 0) {
			pthread_detach(thread);
			list_server(q, s);
			q->more++;
			return true;
		}
		w->next = q->first;
		if (!q->first)
			q->last = &w->next;
		q->first = w;
		atomic_fetch_add(&q->n_waiting, 1);
	}
	if (s)
		server_free(s);
	return false;
}

/* ---- interrupts ---- */

static uint64_t bit(int number)
{
	return UINT64_C(1) << (number - 1);
}

static bool ends_wait(const struct request *r, int64_t since)
{
	const uint64_t program = bit(SIGINT) | bit(SIGQUIT) | bit(SIGALRM);
	const uint64_t notices = bit(SIGTERM) | bit(SIGHUP);
	uint64_t came = caller_signals(r->pid);

	if (came & bit(SIGKILL))
		return true;
	return clock_ns() - since >= PATIENCE_NS &&
	       came & (r->changes ? program : program | notices);
}

static void answer(const struct request *r)
{
	struct fuse_out_header h = { .len = sizeof(h), .error = -EINTR, .unique = r->unique };

	/* ENOENT: its thread has just answered it. */
	if (write(r->fd, &h, sizeof(h)) < 0 && errno != ENOENT)
		log_error("cannot answer a caller that was interrupted: %s", strerror(errno));
}

static void requests_abandon(struct requests *q, struct server *s, uint64_t unique)
{
	pthread_mutex_lock(&s->lock);
	if (s->request.unique == unique && !atomic_exchange(&s->is_abandoned, true)) {
		atomic_fetch_add(&q->n_abandoned, 1);
		answer(&s->request);
	}
	pthread_mutex_unlock(&s->lock);
}

static struct server *find_server(struct requests *q, uint64_t unique, struct request *ret)
{
	for (struct server *s = q->servers; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		*ret = s->request;
		pthread_mutex_unlock(&s->lock);
		if (ret->unique == unique)
			return s;
	}
	return NULL;
}

/* Whether nothing is left to do for it. Called with the lock held. */
static bool requests_look_at(struct requests *q, struct interrupt *in)
{
	struct waiting **at = &q->first;
	struct server *s = NULL;
	struct request r;

	while (*at && (*at)->request.unique != in->unique)
		at = &(*at)->next;
	if (*at)
		r = (*at)->request;
	else
		s = find_server(q, in->unique, &r);
	/* It is done, or the thread that has read it has not said so yet. */
	if (!*at && !s)
		return in->was_found || clock_ns() - in->since > LATE_NS;
	in->was_found = true;
	if (!ends_wait(&r, in->since))
		return false;
	trace(TRACE_FS, "request %llu: the caller is interrupted", (unsigned long long)r.unique);
	if (s) {
		requests_abandon(q, s, in->unique);
	} else {
		struct waiting *w = requests_take_out(q, at);

		answer(&w->request);
		free(w);
	}
	return true;
}

static void look_at_interrupts(struct requests *q)
{
	size_t n = q->n_interrupts;

	q->n_interrupts = 0;
	for (size_t i = 0; i < n; i++) {
		struct interrupt in = q->interrupts[i];

		if (!requests_look_at(q, &in))
			q->interrupts[q->n_interrupts++] = in;
	}
}

static void *requests_watch(void *arg)
{
	struct requests *q = arg;

	pthread_mutex_lock(&q->lock);
	while (!q->ending) {
		struct timespec until;

		if (!q->n_interrupts && !q->first) {
			pthread_cond_wait(&q->changed, &q->lock);
			continue;
		}
		until = clock_timespec(clock_ns() + TICK_NS);
		pthread_cond_timedwait(&q->changed, &q->lock, &until);
		look_at_interrupts(q);
		while (q->first && q->more < FS_THREADS_MORE && in_progress(q) < FS_THREADS_MAX &&
		       start_one_more(q))
			;
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int requests_start(struct requests *q, struct fs *fs)
{
	int r;

	*q = (struct requests){ .fs = fs };
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	clock_cond_init(&q->changed);
	r = thread_start(&q->watcher, "requests", requests_watch, q);
	if (r >= 0)
		return 0;
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	return fail(r, "cannot start a thread: %s", strerror(-r));
}

void requests_stop(struct requests *q)
{
	pthread_mutex_lock(&q->lock);
	q->ending = true;
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->watcher, NULL);
	pthread_mutex_lock(&q->lock);
	while (q->more > 0)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
	while (q->first)
		free(requests_take_out(q, &q->first));
	while (q->servers) {
		struct server *s = q->servers;

		q->servers = s->next;
		server_free(s);
	}
	free(take(q->interrupts));
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
}
