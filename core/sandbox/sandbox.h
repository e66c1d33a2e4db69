/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h - lets this process permanently give up rights that it does not need.
 *
 * There are four layers, as far as the system has them: no new privileges by execve(), few
 * capabilities, Landlock (files, network) and a filter of system calls. A process that was started
 * before does what needs more rights (broker.h).
 */
#ifndef PYTREEFS_CORE_SANDBOX_SANDBOX_H
#define PYTREEFS_CORE_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"

/* In the order of the words of -o sandbox=. */
enum sandbox_mode {
	SANDBOX_AUTO,    /* all layers that the system has */
	SANDBOX_OFF,     /* no layers */
	SANDBOX_REQUIRE, /* all layers, or an error */
};

enum sandbox_access {
	SANDBOX_READ = 1 << 0,  /* files and listings */
	SANDBOX_WRITE = 1 << 1, /* contents and names */
	SANDBOX_DEVICE = 1 << 2 /* ioctl() of a device */
};

/* A file, or a directory with everything below it, now or later. */
struct sandbox_place {
	const char *path; /* NULL: by fd; a path that does not exist is ignored */
	int fd;
	unsigned access;
};

struct sandbox_rules {
	enum sandbox_mode mode;
	const struct sandbox_place *place;
	size_t n_places;
	bool reads_everywhere; /* the places are only for writing */
	bool writes_everywhere;
	bool changes_owners; /* it sets owners of files, and acts in the name of other users */
	bool makes_rings;    /* it makes rings of io_uring later */
	bool uses_network;   /* it connects to servers by name */
	bool is_rank;        /* MPI opens files, sockets and shared memory at any time */
	int broker;          /* socket on which files are sent; -1: none */
	/* Called in a signal handler when a system call was refused; NULL: not called. */
	void (*on_refused)(void);
};

/*
 * Give up everything else. Call before any thread starts, since Landlock and capabilities belong to
 * threads. -EPERM: the note has all layers that are missing under SANDBOX_REQUIRE.
 */
int sandbox_enter(const struct sandbox_rules *rules);
/* Log the requested layers that are not active, with reasons; nothing if there are none. */
void sandbox_log_missing(void);
/* Returns "off", "in part" (a requested layer is missing) or "whole". */
const char *sandbox_extent(void);
/* Print the active layers as a JSON object. */
int sandbox_print(struct buf *ret);
/*
 * Log the system calls that were refused since the last call, each once. Not for signal handlers.
 */
void sandbox_log_refused(void);

#endif
