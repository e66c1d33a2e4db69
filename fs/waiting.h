/*
 * waiting.h - which thread waits for the kernel's next request, and how.
 *
 * A request that finds every thread asleep costs an interrupt to another processor,
 * often more than the request itself. Programs that make many small requests one
 * after the other (ls -lR, find, tar of small files, np.save in a loop) pay that each
 * time. While such a storm lasts one thread alone serves it: it looks for the next
 * request for some microseconds before it sleeps, and the others are parked.
 *
 * A request that takes long, or may, lets a parked thread wait for the next one, so
 * nobody waits for another's work for more than a tick.
 */
#ifndef PYTREEFS_FS_WAITING_H
#define PYTREEFS_FS_WAITING_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct waiting {
	bool polls;			/* not on one processor: who polls there keeps the program from running */
	atomic_int waiters;		/* threads that poll for a request, or sleep in the kernel until one comes */
	atomic_int parked;
	atomic_int streak;		/* small requests that came one right after the other, up to a maximum */
	_Atomic int64_t done;		/* when a request was last answered; clock_ns() */
	_Atomic uint64_t arrivals;
	atomic_bool watched;		/* the watcher is awake */
	atomic_bool ending;
	sem_t places;			/* parked threads wait for one */
	sem_t watch;
	pthread_t watcher;
};

/* polls: whether storms are treated as such; false makes waiting_read() a read(2). Starts a thread. */
int waiting_start(struct waiting *w, bool polls);
/* After the threads that call waiting_read() have ended. */
void waiting_stop(struct waiting *w);
/*
 * read(2) of the next request from a /dev/fuse, from any number of threads, each of which has answered
 * its last one. A point of cancellation. ret_polled: it came while this thread polled.
 */
ssize_t waiting_read(struct waiting *w, int fd, void *buf, size_t n, bool *ret_polled);

#endif
