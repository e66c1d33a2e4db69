/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.h - a process that keeps the rights that a mount gives up.
 *
 * It is started before the mount's process confines itself (core/sandbox), and carries out four
 * tasks on its request, with the parameters that it got at the start: it parses nothing that came
 * from a checkpoint. fs/broker_main.c is its side.
 */
#ifndef PYTREEFS_CORE_SANDBOX_BROKER_H
#define PYTREEFS_CORE_SANDBOX_BROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BROKER_PROGRAM "pytreefs-broker" /* its argv[0] */
#define BROKER_TEXT_MAX 8192             /* bytes of a request's text */
#define BROKER_FILES_MAX 2

enum broker_task {
	/* Run the command of the start. Text: its argument. File: a pipe for a struct
	 * broker_ended. */
	BROKER_ON_COMMIT,
	/* Start the process of fs/forget.h. Files: its stdin, and one that it holds while it lives.
	 * The result is its process number. */
	BROKER_FORGET,
	BROKER_UNMOUNT, /* the mount point of the start, lazily */
	/* Whether a process is in a system call that creates a file exclusively. Text: its number.
	 * The result is 0 or 1. */
	BROKER_IS_CREATING,
};

struct broker_ended {
	int32_t error;  /* why it could not be run; 0: it was */
	int32_t status; /* as of waitpid() */
};

struct broker {
	int fd; /* -1: none */
	pid_t pid;
	pthread_mutex_t lock; /* held from a request to its reply */
};

/*
 * Start it. on_commit: NULL for none. quiet: it and what it runs have no output, for a process that
 * leaves the user's terminal. A negative error code with a note.
 */
int broker_start(struct broker *b, const char *mountpoint, const char *on_commit, bool quiet);
/* The result, or a negative error code without a note: -EPIPE when the process is gone. Any
 * thread. */
int broker_ask(struct broker *b, enum broker_task task, const char *text, const int *files,
	       unsigned n_files);
/* It ends; what it has started lives on. */
void broker_stop(struct broker *b);

#endif
