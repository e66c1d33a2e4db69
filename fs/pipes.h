/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipes.h - a pipe per thread, in which a reply is assembled before it is sent.
 *
 * libfuse can send ranges of files by itself, but if a file fails half-way, it sends a short reply,
 * which the kernel takes for the end of the file. So all bytes must be in a pipe before the first
 * one is sent.
 */
#ifndef PYTREEFS_FS_PIPES_H
#define PYTREEFS_FS_PIPES_H

#include <stdbool.h>
#include <stddef.h>

struct thread_pipe {
	int out, in;
	size_t pages;   /* its capacity */
	size_t refused; /* smallest capacity that the kernel has refused; 0: none yet */
};

/*
 * Returns this thread's pipe, empty, with a capacity of at least `pages`; NULL: not possible, which
 * is ordinary.
 */
struct thread_pipe *pipe_of_thread(size_t pages);
bool pipe_is_empty(const struct thread_pipe *p);
/* Close this thread's pipe, with the data that is left in it. The next reply gets a new one. */
void pipe_drop(struct thread_pipe *p);

#endif
