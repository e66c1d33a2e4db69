/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h - this process gives up what it does not need, for good.
 *
 * Four layers, each where the system has it: no new privileges by execve(), few capabilities,
 * Landlock (which files, which network) and a filter of system calls. What has to do more is a
 * process that was started before (broker.h).
 */
#ifndef PYTREEFS_CORE_SANDBOX_SANDBOX_H
#define PYTREEFS_CORE_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"

/* In the order of the words of -o sandbox=. */
enum sandbox_mode {
	SANDBOX_AUTO,    /* what the system has */
	SANDBOX_OFF,     /* nothing is given up */
	SANDBOX_REQUIRE, /* all layers, or an error */
};

enum sandbox_access {
	SANDBOX_READ = 1 << 0,  /* files and listings */
	SANDBOX_WRITE = 1 << 1, /* contents and names */
	SANDBOX_DEVICE = 1 << 2 /* ioctl() of a device */
};

/* A file, or a directory with all that is below it now or later. */
struct sandbox_place {
	const char *path; /* NULL: by fd; one that does not exist is left out */
	int fd;
	unsigned access;
};

struct sandbox_rules {
	enum sandbox_mode mode;
	const struct sandbox_place *place;
	size_t n_places;
	bool reads_everywhere; /* places are for writing */
	bool writes_everywhere;
	bool changes_owners; /* of what it writes, in another user's name */
	bool makes_rings;    /* rings of io_uring are not all made yet */
	bool uses_network;   /* it connects to servers, by name */
	bool is_rank;        /* MPI opens files, sockets and shared memory whenever it wants */
	int broker;          /* the socket on which files are sent; -1: none */
	/* Called in a signal handler when a system call was refused; NULL: nobody. */
	void (*on_refused)(void);
};

/*
 * Give up everything else. Before any thread is started: Landlock and capabilities belong to
 * threads. -EPERM with a note names all that is missing under SANDBOX_REQUIRE.
 */
int sandbox_enter(const struct sandbox_rules *rules);
/* Log which layers are not in force although they were asked for, and why; nothing when all are. */
void sandbox_log_missing(void);
/* What is in force, as a JSON object. */
int sandbox_print(struct buf *ret);
/* Log the system calls that were refused since the last time, each once. Not in a signal handler. */
void sandbox_log_refused(void);

#endif
