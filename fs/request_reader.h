/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_reader.h - selects the thread that waits for the kernel's next request.
 *
 * A request that finds every thread asleep costs an interrupt to another processor, often more than
 * the request itself. Programs that send many small requests in a row (ls -lR, find, tar of small
 * files, np.save in a loop) pay that each time. During such a burst one thread serves all requests:
 * it polls for the next one for some microseconds before it sleeps, and the other threads are
 * parked.
 *
 * A request that is or may be slow un-parks a thread that waits for the next one, so a request
 * waits for another one for at most a tick.
 */
#ifndef PYTREEFS_FS_REQUEST_READER_H
#define PYTREEFS_FS_REQUEST_READER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "handlers/options/options.h"

struct request_reader {
	enum busy_poll mode;
	atomic_int waiters; /* threads that poll for a request, or sleep in the kernel until one
			       arrives */
	atomic_int parked;
	atomic_int streak;    /* small requests in a row, up to a maximum */
	_Atomic int64_t done; /* time of the last reply; clock_ns() */
	_Atomic uint64_t arrivals;
	atomic_bool watched; /* the watcher runs */
	atomic_bool ending;
	sem_t places; /* parked threads wait for one */
	sem_t watch;
	pthread_t watcher;
};

/* Starts the watcher thread. With BUSY_POLL_OFF, request_reader_read() is read(2). */
int request_reader_start(struct request_reader *w, enum busy_poll mode);
/* After the threads that call request_reader_read() have ended. */
void request_reader_stop(struct request_reader *w);
/*
 * read(2) of the next request from /dev/fuse; any number of threads may call it, each after it has
 * answered its last request. A cancellation point. ret_polled: the request arrived while this
 * thread polled.
 */
ssize_t request_reader_read(struct request_reader *w, int fd, void *buf, size_t n,
			    bool *ret_polled);

#endif
