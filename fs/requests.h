/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.h - requests in progress: a signal ends the wait of a caller, whatever its request waits
 * for.
 *
 * The kernel lets a caller wait until its request is answered, even after a SIGKILL. It tells of a
 * signal by an INTERRUPT, which comes through /dev/fuse as other requests do. So one thread always
 * reads: at most FS_THREADS_MAX threads of libfuse's loop serve requests at a time, and the one
 * more that the loop has puts requests that come meanwhile into a list. Threads that are free again
 * take them from there. Requests that have been served for more than a second, since a server or a
 * disk does not answer, do not count any more: the threads of this module serve others instead.
 *
 * A request whose caller shall not wait any longer is abandoned: it is answered with EINTR, and the
 * work for it goes on. When that is done, the kernel refuses its reply as that of a caller that is
 * gone (ENOENT), and the operation takes back what it has opened or counted. Callers:
 *
 * - one that is being killed, by SIGKILL or by any signal that it does not handle, is answered at
 * once: it will not see the answer;
 *
 * - one that handles SIGINT, SIGQUIT, SIGALRM, SIGTERM or SIGHUP is answered soon, unless its
 * answer comes first. With SIGTERM and SIGHUP, which tell programs to save what they have, only
 * calls that change nothing end, since a program that goes on needs to know what has become of a
 * change;
 *
 * - other signals end nothing, as on a disk: programs do not expect EINTR of stat(2) because a
 * child process has ended.
 *
 * While work for an abandoned request goes on, requests that the kernel would have sent only after
 * its answer wait for it: RELEASE and FORGET of what it uses, and a second change of the same file
 * or directory, or reading of the same open directory.
 *
 * Requests that come over io_uring (queue.h) are not abandoned: only the thread that serves one can
 * answer it.
 */
#ifndef PYTREEFS_FS_REQUESTS_H
#define PYTREEFS_FS_REQUESTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FS_THREADS_MAX 16                    /* threads that serve requests */
#define FS_THREADS_LOOP (FS_THREADS_MAX + 1) /* threads of the loop */
#define FS_THREADS_MORE 240                  /* at most, beside requests that make no progress */

struct fs;
struct interrupt;
struct server;
struct waiting;

struct requests {
	struct fs *fs;
	pthread_t watcher;
	atomic_uint busy;      /* requests that threads of the loop serve */
	atomic_uint n_waiting; /* changed with the lock held */
	atomic_uint n_abandoned;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t changed;
	struct server *servers; /* all threads that have served a request */
	struct waiting *first, **last;
	struct interrupt *interrupts; /* signals of which the kernel has told */
	size_t n_interrupts, max_interrupts;
	unsigned more; /* threads of this module that serve requests */
	bool ending;
};

/* Starts a thread. Returns a negative error code with a note. */
int requests_start(struct requests *q, struct fs *fs);
/* After the loop has ended: waits for threads that still serve requests. */
void requests_stop(struct requests *q);
/*
 * The next request that this thread of the loop serves, as read(2) from the device fd. The last one
 * has been answered. A cancellation point.
 */
ssize_t requests_read(struct requests *q, int fd, void *buf, size_t n);
/* The device to which a reply of this thread belongs; fd: that of the loop. */
int requests_device(int fd);
/* Whether the request that this thread serves was abandoned. */
bool requests_is_abandoned(void);

#endif
