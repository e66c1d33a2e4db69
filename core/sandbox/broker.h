/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.h - a process that keeps the rights that a mount gives up.
 *
 * It is started before the mount's process confines itself (core/sandbox), and carries out eight
 * tasks for it, with parameters that it got at the start. It parses no data from a checkpoint.
 * fs/broker_main.c is its implementation.
 */
#ifndef PYTREEFS_CORE_SANDBOX_BROKER_H
#define PYTREEFS_CORE_SANDBOX_BROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/sandbox/broker_packet.h"

#define BROKER_PROGRAM "pytreefs-broker" /* its argv[0] */
#define BROKER_TEXT_MAX 8192             /* limit for the text of a request */

enum broker_task {
	/*
	 * Run the command given at the start. Text: its argument. File: a pipe for a struct
	 * broker_ended.
	 */
	BROKER_ON_COMMIT,
	/*
	 * Start the process of fs/forget.h. Files: its stdin, and one that it keeps open while it
	 * runs. The result is its process number.
	 */
	BROKER_FORGET,
	BROKER_UNMOUNT, /* lazily unmount the mount point given at the start */
	/* Whether a process is in a system call that creates a file exclusively. Text: its number.
	 * The result is 0 or 1. */
	BROKER_IS_CREATING,
	/* Tell the kernel that the second file may back files of the mount whose /dev/fuse is the
	 * first. The result is its number, from 1 on. */
	BROKER_BACKING_OPEN,
	/* The file of that number backs no more files. Text: the number. File: /dev/fuse. */
	BROKER_BACKING_CLOSE,
	/* Open the log file given at the start, or create it. Replies with the file. */
	BROKER_LOG_FILE,
	/*
	 * Send a message to syslog, which may have been restarted. Text: the digit of its priority,
	 * and the message.
	 */
	BROKER_SYSLOG,
	BROKER_END, /* end: the mount's process was not killed. Without a reply */
};

struct broker_ended {
	int32_t error;  /* errno when it could not be run; 0: it was run */
	int32_t status; /* status of waitpid() */
};

struct broker {
	int fd; /* -1: none */
	pid_t pid;
	pthread_mutex_t lock; /* held from a request until its reply */
};

struct broker_parameters {
	const char *mountpoint;
	const char *on_commit; /* NULL: none */
	const char *log;       /* absolute path without links; NULL: none */
	/*
	 * The broker and its child processes have no output, for a mount that detaches from the
	 * user's terminal.
	 */
	bool quiet;
};

/* Start the broker. Returns a negative error code with a note. */
int broker_start(struct broker *b, const struct broker_parameters *parameters);
/*
 * Returns the result, or a negative error code without a note: -EPIPE when the broker is gone. Any
 * thread may call this.
 */
int broker_ask(struct broker *b, enum broker_task task, const char *text, const int *files,
	       unsigned n_files);
/* The same for a task that replies with a file, which the caller closes. */
int broker_ask_file(struct broker *b, enum broker_task task, int *ret_file);
/* End the broker. Processes that it has started continue. */
void broker_stop(struct broker *b);

#endif
