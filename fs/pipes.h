/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipes.h - the pipe of each thread in which an answer is put together before it is sent.
 *
 * libfuse can send ranges of files by itself, but what a file does not give half-way it leaves out,
 * and the kernel takes a short answer for the end of the file. So all bytes are in a pipe of ours
 * before the first is sent.
 */
#ifndef PYTREEFS_FS_PIPES_H
#define PYTREEFS_FS_PIPES_H

#include <stdbool.h>
#include <stddef.h>

struct thread_pipe {
	int out, in;
	size_t pages;   /* that it has places for */
	size_t refused; /* the kernel does not let it grow to so many; 0: not asked yet */
};

/* This thread's pipe, empty, with places for as many pages; NULL: there cannot be one, which is
 * ordinary. */
struct thread_pipe *pipe_of_thread(size_t pages);
bool pipe_is_empty(const struct thread_pipe *p);
/* Close this thread's pipe, with what is left in it. The next answer gets a new one. */
void pipe_drop(struct thread_pipe *p);

#endif
