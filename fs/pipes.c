/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipes.c - a pipe per thread, in which a reply is assembled before it is sent.
 *
 * Invariants: pipe_of_thread() returns an empty pipe; a user that leaves data in it drops the pipe.
 */
#include "fs/pipes.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void close_pipe(void *arg)
{
	struct thread_pipe *p = arg;

	close(p->out);
	close(p->in);
	free(p);
}

static void make_key(void)
{
	has_key = pthread_key_create(&key, close_pipe) == 0;
}

static struct thread_pipe *pipe_new(void)
{
	struct thread_pipe *p = calloc(1, sizeof(*p));
	int fd[2];

	if (!p || pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0) {
		free(p);
		return NULL;
	}
	p->out = fd[0];
	p->in = fd[1];
	if (pthread_setspecific(key, p) == 0)
		return p;
	close_pipe(p);
	return NULL;
}

/* Only root may exceed fs.pipe-max-size, and all pipes of a user together have a limit, too. */
static bool pipes_grow(struct thread_pipe *p, size_t pages)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int bytes;

	if (p->pages >= pages)
		return true;
	if (p->refused && pages >= p->refused)
		return false;
	bytes = fcntl(p->in, F_SETPIPE_SZ, pages * page);
	if (bytes > 0)
		p->pages = (size_t)bytes / page;
	else
		p->refused = pages;
	return bytes > 0;
}

struct thread_pipe *pipe_of_thread(size_t pages)
{
	struct thread_pipe *p;

	pthread_once(&once, make_key);
	if (!has_key)
		return NULL;
	p = pthread_getspecific(key);
	if (!p)
		p = pipe_new();
	return p && pipes_grow(p, pages) ? p : NULL;
}

bool pipe_is_empty(const struct thread_pipe *p)
{
	int n;

	return ioctl(p->out, FIONREAD, &n) == 0 && n == 0;
}

void pipe_drop(struct thread_pipe *p)
{
	pthread_setspecific(key, NULL);
	close_pipe(p);
}
