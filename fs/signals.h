/*
 * signals.h - a signal ends the mount, whichever thread gets it and whatever the others do then.
 *
 * libfuse's own handlers end the loop when the main thread gets the signal while it
 * sleeps. A signal that comes just before it falls asleep, or to another thread, is
 * not noticed until the next request; here a request is made.
 */
#ifndef PYTREEFS_FS_SIGNALS_H
#define PYTREEFS_FS_SIGNALS_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct signals {
	struct fuse_session *se;
	const char *mountpoint;
	pthread_t thread;
	atomic_bool ended;
};

/*
 * From now on SIGHUP, SIGINT and SIGTERM end the session's loop, those that were ignored before excepted.
 * se and mountpoint are used until signals_stop(). One at a time in a process. Starts a thread.
 */
int signals_start(struct signals *s, struct fuse_session *se, const char *mountpoint);
/* After the session was unmounted: what its thread may ask of the mount gets an answer by then. */
void signals_stop(struct signals *s);

#endif
