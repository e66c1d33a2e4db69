/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.c - the helper process, and the thread that starts it and sends it names.
 *
 * The broker starts the helper (core/sandbox/broker.h), since this process may not: with the first
 * name, or, where descriptors are few, before the first request. The helper runs until the end:
 * when descriptors are used up, which is when names must be forgotten, no pipe to a new one could
 * be made. A SIGKILL ends the thread's wait at once; the helper's wait ends with the connection. An
 * exclusive lookup makes the kernel (since 5.16) send a request for a name that it has cached. An
 * older kernel sends one after NS_ROOT_TTL, when the name is used.
 *
 * Invariant: the helper gets paths only after its process number is known, so its requests are not
 * attributed to another process.
 */
#include "fs/forget.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/base/write_all.h"

#define DESCRIPTORS_FEW 4096

/* Start the helper. Returns a negative error code, without a message. */
static int open_helper(struct forget *f)
{
	auto_close int in = -1, held = -1, to = -1, alive = -1;
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	in = ends[0];
	to = ends[1];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	alive = ends[0];
	held = ends[1];
	r = broker_ask(f->broker, BROKER_FORGET, "", (int[]){ in, held }, 2);
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	f->alive = alive;
	pthread_mutex_unlock(&f->lock);
	atomic_store(&f->helper, r);
	f->to = to;
	to = alive = -1;
	return 0;
}

static void close_helper(struct forget *f)
{
	int alive = f->alive;
	char none;

	if (f->to < 0)
		return;
	close(f->to);
	f->to = -1;
	while (read(alive, &none, 1) < 0 && errno == EINTR)
		;
	atomic_store(&f->helper, 0);
	pthread_mutex_lock(&f->lock);
	f->alive = -1;
	pthread_mutex_unlock(&f->lock);
	close(alive);
}

/* The helper may have been killed, so a failed write is retried once with a new one. */
static void send_paths(struct forget *f, struct span paths)
{
	int code = EPIPE;

	for (int tries = 0; tries < 2; tries++) {
		int r = f->to < 0 ? open_helper(f) : 0;

		if (r < 0) {
			code = -r;
			break;
		}
		if (write_all(f->to, paths) >= 0)
			return;
		close_helper(f);
	}
	log_info("names of the mount are forgotten late: cannot run a process for it: %s",
		 strerror(code));
}

static void *forget_run(void *arg)
{
	struct forget *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->stop) {
		auto_buf paths = { 0 };

		if (!f->paths.n) {
			pthread_cond_wait(&f->changed, &f->lock);
			continue;
		}
		paths = f->paths;
		f->paths = (struct buf){ 0 };
		pthread_mutex_unlock(&f->lock);
		send_paths(f, buf_span(&paths));
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	close_helper(f);
	return NULL;
}

int forget_start(struct forget *f, const char *mountpoint, struct broker *broker)
{
	struct rlimit limit;
	int r;

	*f = (struct forget){ .mountpoint = mountpoint, .broker = broker, .alive = -1, .to = -1 };
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	/*
	 * If descriptors may run out, the helper runs before the first request: programs could
	 * use them up faster than it starts.
	 */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS_FEW)
		open_helper(f);
	r = thread_start(&f->thread, "forget", forget_run, f);
	if (r >= 0)
		return 0;
	close_helper(f);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	return fail(r, "cannot start a thread: %s", strerror(-r));
}

void forget_name(struct forget *f, const char *name)
{
	pthread_mutex_lock(&f->lock);
	if (!f->stop && buf_addf(&f->paths, "%s/%s%c", f->mountpoint, name, 0) < 0)
		err_clear();
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

bool forget_asks(struct forget *f, pid_t pid)
{
	struct pollfd end = { .events = POLLIN };

	if (!pid || pid != atomic_load(&f->helper))
		return false;
	/*
	 * If the helper was killed, another process may have its number by now: the pipe from the
	 * helper reaches its end before the number is reused.
	 */
	pthread_mutex_lock(&f->lock);
	end.fd = f->alive;
	if (end.fd < 0 || poll(&end, 1, 0) != 0)
		end.fd = -1;
	pthread_mutex_unlock(&f->lock);
	return end.fd >= 0;
}

void forget_stop(struct forget *f)
{
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	buf_release(&f->paths);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
}

/* ---- the helper ---- */

int forget_help(void)
{
	auto_buf paths = { 0 };
	ssize_t n;

	do {
		uint8_t piece[4096];
		size_t at = 0;

		n = read(STDIN_FILENO, piece, sizeof(piece));
		if (n > 0 && buf_add(&paths, piece, (size_t)n) < 0)
			return 1;
		while (at < paths.n && memchr(paths.p + at, 0, paths.n - at)) {
			const char *path = (const char *)paths.p + at;

			/*
			 * A link across file systems always fails, so nothing is ever created. But
			 * first, the kernel looks the name up as one that must not exist.
			 */
			if (linkat(AT_FDCWD, "/proc/self/stat", AT_FDCWD, path, 0) == 0)
				return 1;
			at += strlen(path) + 1;
		}
		if (at)
			memmove(paths.p, paths.p + at, paths.n - at);
		paths.n -= at;
	} while (n > 0);
	return 0;
}
