/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_sync.c - the engine of pread and pwrite: the reference, and the fallback where io_uring is
 * refused.
 *
 * A few helper threads run the requests of a batch while their own thread does something else, as
 * io_uring does by itself. A thread that waits runs those of its requests that no helper has begun,
 * and a single request that is waited for at once is left to it.
 */
#include <pthread.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/io/io_engine.h"

#define HELPERS 4

struct io_sync {
	struct io_engine base;
	pthread_mutex_t lock; /* protects all below, and the results of queued requests */
	pthread_cond_t work, done;
	struct io_req *head, **tail; /* submitted, not begun; oldest first */
	unsigned helpers;            /* number of running helpers */
	unsigned generation;         /* fork generation of the process that started them */
	bool stop;
	pthread_t thread[HELPERS];
};

static void *helper(void *arg)
{
	struct io_sync *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		struct io_req *req = s->head;
		struct io_req mine;

		if (!req) {
			pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		s->head = req->next;
		if (!s->head)
			s->tail = &s->head;
		mine = *req;
		pthread_mutex_unlock(&s->lock);
		io_plain_run(&mine);
		pthread_mutex_lock(&s->lock);
		req->result = mine.result;
		pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int sync_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	struct io_sync *s = container_of(io, struct io_sync, base);

	if (n == 1 && req->at_once) {
		io_plain_run(req);
		return 0;
	}
	pthread_mutex_lock(&s->lock);
	if (s->generation != io_fork_generation()) {
		s->generation = io_fork_generation();
		s->helpers = 0;
	}
	/* With fewer helpers than wanted, or none, the engine is only slower. */
	if (!s->helpers)
		while (s->helpers < HELPERS &&
		       thread_start(&s->thread[s->helpers], "io", helper, s) >= 0)
			s->helpers++;
	for (size_t i = 0; i < n; i++) {
		req[i].result = IO_PENDING;
		req[i].next = NULL;
		*s->tail = &req[i];
		s->tail = &req[i].next;
	}
	if (n == 1)
		pthread_cond_signal(&s->work);
	else
		pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int sync_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	struct io_sync *s = container_of(io, struct io_sync, base);

	if (n == 1 && req->at_once)
		return 0;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n; i++) {
		struct io_req **at = &s->head;

		while (*at && *at != &req[i])
			at = &(*at)->next;
		/* A helper has begun it. */
		if (!*at)
			continue;
		*at = req[i].next;
		if (!*at)
			s->tail = at;
		pthread_mutex_unlock(&s->lock);
		io_plain_run(&req[i]);
		pthread_mutex_lock(&s->lock);
	}
	for (size_t i = 0; i < n; i++)
		while (req[i].result == IO_PENDING)
			pthread_cond_wait(&s->done, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void sync_free(struct io_engine *io)
{
	struct io_sync *s = container_of(io, struct io_sync, base);

	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	if (s->generation == io_fork_generation())
		for (unsigned i = 0; i < s->helpers; i++)
			pthread_join(s->thread[i], NULL);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static const struct io_engine_ops sync_ops = {
	.name = "sync",
	.submit = sync_submit,
	.wait = sync_wait,
	.open = io_plain_open,
	.dirop = io_plain_dirop,
	.truncate = io_plain_truncate,
	.splice = io_plain_splice,
	.free = sync_free,
};

int io_sync_new(struct io_engine **ret)
{
	struct io_sync *s = calloc(1, sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot allocate an I/O engine");
	s->base.ops = &sync_ops;
	s->tail = &s->head;
	s->generation = io_fork_generation();
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->done, NULL);
	*ret = &s->base;
	return 0;
}
