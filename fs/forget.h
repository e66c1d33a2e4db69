/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.h - makes the kernel forget names of the root without ever waiting for the mount.
 *
 * FUSE has a notification for this, for which the kernel locks the directory. A rename or lookup in
 * the directory holds this lock until the daemon replies. After a SIGKILL there is no reply, and
 * the thread that waits for the lock keeps /dev/fuse open, so the connection would never end. A
 * separate process without /dev/fuse may wait. It looks the names up, and gets a special reply:
 * they do not exist.
 */
#ifndef PYTREEFS_FS_FORGET_H
#define PYTREEFS_FS_FORGET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/sandbox/broker.h"
#include "core/base/buf.h"

struct forget {
	const char *mountpoint;
	struct broker *broker; /* starts the helper */
	pthread_t thread;
	atomic_int helper;    /* process number of the helper; 0: not running */
	pthread_mutex_t lock; /* protects the members below up to stop */
	pthread_cond_t changed;
	struct buf paths; /* NUL-terminated, one after another */
	int alive;        /* reaches end of file when the helper ends; -1: it is not running */
	bool stop;
	int to; /* the helper's stdin, used by the thread only; -1: it is not running */
};

/* Start the thread. mountpoint and broker are borrowed until forget_stop(). */
int forget_start(struct forget *f, const char *mountpoint, struct broker *broker);
/* Let the kernel forget a name soon. Never waits. Any thread may call this. */
void forget_name(struct forget *f, const char *name);
/* Whether a request of that process comes from the helper, for which no name exists. */
bool forget_asks(struct forget *f, pid_t pid);
/* Call after the session was unmounted, so that the helper gets a reply. */
void forget_stop(struct forget *f);

/* argv[0] of the helper, and its main function, which reads paths from stdin. */
#define FORGET_HELPER "pytreefs-forget"
int forget_help(void);

#endif
