/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - a signal ends the mount, or lets it open its log again, whichever thread receives it,
 * and whatever the others are doing.
 *
 * The handlers of libfuse end the loop if the main thread receives the signal while it sleeps. A
 * signal just before it falls asleep, or to another thread, is not noticed until the next request.
 * Here, a thread interrupts the main thread's sleep until the loop has ended. It does not send a
 * request to the mount instead: after a SIGKILL, a thread that waits for the mount keeps /dev/fuse
 * open without ever getting a reply.
 */
#ifndef PYTREEFS_FS_SIGNALS_H
#define PYTREEFS_FS_SIGNALS_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct signals {
	struct fuse_session *se;
	void (*ending)(void *arg), (*hung_up)(void *arg);
	void *arg;
	pthread_t thread, main;
	atomic_bool looping; /* the main thread is in the session's loop, or about to enter it */
	atomic_bool ended;
};

/*
 * Let SIGHUP, SIGINT and SIGTERM, unless they were ignored, end the session's loop, which the
 * caller runs. `s` is zeroed but for `se`, which is used until signals_stop(), and for
 *
 * - ending(arg): called on such a signal: it should let requests that wait for something finish, so
 * that the loop can end;
 *
 * - hung_up(arg): called on SIGHUP instead. NULL: SIGHUP ends the loop, too.
 *
 * A thread of its own calls both. Only one instance per process.
 */
int signals_start(struct signals *s);
/* The signal that ended the loop; 0: none did. */
int signals_which(void);
/* Block these signals until the caller restores the returned mask. */
void signals_hold(sigset_t *ret_old);
/* Called in a signal handler: let the thread log that a system call was refused. */
void signals_refused(void);
/* End the loop as SIGTERM does. Any thread, after signals_start(). */
void signals_end(void);
/* The loop has ended: stop interrupting the main thread. */
void signals_loop_ended(struct signals *s);
void signals_stop(struct signals *s);

#endif
