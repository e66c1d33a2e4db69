/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel_for.c - threads that take the next job until all are taken.
 */
#include "tools/cli/parallel_for.h"

#include <pthread.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "tools/cli/interrupt.h"

struct workers {
	pthread_mutex_t lock;
	size_t next, n;         /* protected by lock */
	struct err_note failed; /* protected by lock */
	worker_fn *fn;
	void *arg;
};

static void *worker_main(void *arg)
{
	struct workers *l = arg;
	struct worker worker = { .buf = block_alloc(WORKER_BYTES) };

	pthread_mutex_lock(&l->lock);
	while (l->next < l->n && !l->failed.code) {
		size_t i = l->next++;
		int r;

		pthread_mutex_unlock(&l->lock);
		r = worker.buf ? interrupt_check() : fail(-ENOMEM, "cannot allocate a buffer");
		if (r >= 0)
			r = l->fn(l->arg, i, &worker);
		pthread_mutex_lock(&l->lock);
		if (r < 0 && !l->failed.code)
			err_save(r, &l->failed);
	}
	pthread_mutex_unlock(&l->lock);
	block_free(worker.buf, WORKER_BYTES);
	return NULL;
}

int parallel_for(unsigned threads, size_t n, worker_fn *fn, void *arg)
{
	struct workers l = { .lock = PTHREAD_MUTEX_INITIALIZER, .n = n, .fn = fn, .arg = arg };
	pthread_t thread[LIMIT_THREADS];
	unsigned begun = 0;

	/*
	 * This thread is a worker, too, so it is not an error if fewer threads than wanted start.
	 */
	while (begun + 1 < MIN((size_t)MIN(threads, (unsigned)LIMIT_THREADS), n) &&
	       thread_start(&thread[begun], NULL, worker_main, &l) >= 0)
		begun++;
	worker_main(&l);
	for (unsigned i = 0; i < begun; i++)
		pthread_join(thread[i], NULL);
	return l.failed.code ? err_restore(&l.failed) : interrupt_check();
}
