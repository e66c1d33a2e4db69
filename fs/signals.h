/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.h - a signal ends the mount, whichever thread gets it and whatever the others do then.
 *
 * libfuse's own handlers end the loop when the main thread gets the signal while it sleeps. A
 * signal that comes just before it falls asleep, or to another thread, is not noticed until the
 * next request. Here a thread interrupts the main thread's sleep until the loop has ended. No
 * request is made for it: a thread that waits for the mount keeps /dev/fuse open after a SIGKILL,
 * and nobody ever answers.
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
	void (*ending)(void *arg);
	void *arg;
	pthread_t thread, main;
	atomic_bool looping; /* the main thread is in the session's loop, or about to be */
	atomic_bool ended;
};

/*
 * From now on SIGHUP, SIGINT and SIGTERM end the session's loop, those that were ignored before
 * excepted. The caller runs the loop. se is used until signals_stop(). One at a time in a process.
 * Starts a thread, which calls ending(arg) then: requests that wait for something must not hold up
 * the end of the loop.
 */
int signals_start(struct signals *s, struct fuse_session *se, void (*ending)(void *arg), void *arg);
/* Those signals wait until the caller sets the mask that it gets. */
void signals_hold(sigset_t *ret_old);
/* In a signal handler: the thread is to log that a system call was refused. */
void signals_refused(void);
/* The loop has ended: the main thread is interrupted no more. */
void signals_loop_ended(struct signals *s);
void signals_stop(struct signals *s);

#endif
