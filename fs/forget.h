/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.h - makes the kernel forget names of the root, without ever waiting for the mount.
 *
 * FUSE's own way is a notification, for which the kernel locks the directory. A rename or a look-up
 * in the directory holds that lock until the daemon answers it: after a SIGKILL nobody does, and
 * the thread that waits for the lock keeps /dev/fuse open, so the connection never ends. A process
 * of its own, which has no /dev/fuse, may wait: it looks the names up, and the answer to it alone
 * is that they do not exist.
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
	atomic_int helper;    /* its process; 0: none runs */
	pthread_mutex_t lock; /* protects all below */
	pthread_cond_t changed;
	struct buf paths; /* NUL-terminated, one after the other */
	int alive;        /* ends when the helper does; the thread's; -1: none runs */
	bool stop;
};

/* Both are used until forget_stop(). Starts a thread. */
int forget_start(struct forget *f, const char *mountpoint, struct broker *broker);
/* The name is forgotten soon. Never waits. Any thread. */
void forget_name(struct forget *f, const char *name);
/* Whether a request of that process is the helper's, for which no name exists. */
bool forget_asks(struct forget *f, pid_t pid);
/* After the session was unmounted, so that the helper gets an answer. */
void forget_stop(struct forget *f);

/* What argv[0] of the helper is, and what it does with the paths that it reads from stdin. */
#define FORGET_HELPER "pytreefs-forget"
int forget_help(void);

#endif
