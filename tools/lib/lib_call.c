/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_call.c - calls that take long, during which the calling thread reports progress.
 */
#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/thread.h"
#include "tools/lib/lib.h"

#define REPORT_NS (20 * 1000 * 1000)

struct call {
	int (*fn)(void *arg);
	void *arg;
	pthread_mutex_t lock; /* protects the following members */
	pthread_cond_t changed;
	bool ended;
	int result;
	struct err_note note;
};

static void *call_thread(void *arg)
{
	struct call *c = arg;
	int r = c->fn(c->arg);

	pthread_mutex_lock(&c->lock);
	c->result = r;
	if (r < 0)
		err_save(r, &c->note);
	c->ended = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Report progress until the call has ended; ret_stopped is the error of the caller's function. */
static void report_until_ended(struct lib_work *w, const struct lib_progress *progress,
			       struct call *c, struct err_note *ret_stopped)
{
	pthread_mutex_lock(&c->lock);
	while (!c->ended) {
		struct timespec at = clock_timespec(clock_ns() + REPORT_NS);
		int r;

		pthread_cond_timedwait(&c->changed, &c->lock, &at);
		if (c->ended || ret_stopped->code)
			continue;
		pthread_mutex_unlock(&c->lock);
		r = lib_progress((void *)progress, atomic_load(&w->done));
		if (r < 0) {
			err_save(r, ret_stopped);
			atomic_store(&w->stop, true);
		}
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

int lib_call(struct lib_work *w, const struct lib_progress *progress, int (*fn)(void *arg),
	     void *arg)
{
	struct call c = { .fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct err_note stopped = { 0 };
	pthread_t thread;
	int r = lib_progress((void *)progress, atomic_load(&w->done));

	if (r < 0)
		return r;
	atomic_store(&w->stop, false);
	clock_cond_init(&c.changed);
	if (thread_start(&thread, "draft", call_thread, &c) >= 0) {
		report_until_ended(w, progress, &c, &stopped);
		pthread_join(thread, NULL);
	} else {
		/* Without a thread there is only no progress. */
		err_clear();
		call_thread(&c);
	}
	pthread_cond_destroy(&c.changed);
	if (c.result < 0)
		return err_restore(stopped.code ? &stopped : &c.note);
	return 0;
}

int lib_work_check(void *arg)
{
	struct lib_work *w = arg;

	return atomic_load(&w->stop) ? fail(-ECANCELED, "canceled") : 0;
}
