/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.c - the helper process, and the thread that starts it and hands it names.
 *
 * The helper is started with the first name and stays until the end: when descriptors are used up,
 * which is when names must be forgotten, no pipe could be made to a new one. The thread's wait ends
 * with a SIGKILL at once; the helper's ends with the connection. An
 * exclusive look-up makes the kernel (since 5.16) ask for a name that it still trusts. An older
 * kernel asks when it trusts the name no longer, after NS_ROOT_TTL, when somebody uses it.
 *
 * Invariant: the helper gets its paths only after its process number is known, so no request of it
 * is taken for somebody else's.
 */
#include "fs/forget.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

extern char **environ;

#define DESCRIPTORS_FEW 4096

/* stdin is the pipe, nothing else is open. */
static int start_helper(int stdin_fd, pid_t *ret)
{
	char *argv[] = { FORGET_HELPER, NULL };
	posix_spawn_file_actions_t files;
	int r;

	posix_spawn_file_actions_init(&files);
	r = posix_spawn_file_actions_adddup2(&files, stdin_fd, STDIN_FILENO);
	if (!r)
		r = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (!r)
		r = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (!r)
		r = posix_spawn(ret, "/proc/self/exe", &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* false: nobody reads any more, or the write failed otherwise. */
static bool write_all(int fd, struct span s)
{
	while (s.n > 0) {
		ssize_t n = write(fd, s.p, s.n);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0)
			s = span_of(s.p + n, s.n - (size_t)n);
	}
	return true;
}

/* Start the helper. Returns the end of the pipe to write paths to, or a negative error code. */
static int open_helper(struct forget *f)
{
	int ends[2], r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = start_helper(ends[0], &pid);
	close(ends[0]);
	if (r < 0) {
		close(ends[1]);
		return r;
	}
	atomic_store(&f->helper, pid);
	return ends[1];
}

static void close_helper(struct forget *f, int fd)
{
	int status;

	if (fd < 0)
		return;
	close(fd);
	while (waitpid(atomic_load(&f->helper), &status, 0) < 0 && errno == EINTR)
		;
	atomic_store(&f->helper, 0);
}

/* Somebody may have killed the helper, so a write that fails is tried with a new one, once. */
static int send_paths(struct forget *f, int fd, struct span paths)
{
	int code = EPIPE;

	for (int tries = 0; tries < 2; tries++) {
		if (fd < 0)
			fd = open_helper(f);
		if (fd < 0) {
			code = -fd;
			break;
		}
		if (write_all(fd, paths))
			return fd;
		close_helper(f, fd);
		fd = -1;
	}
	log_info("names of the mount are forgotten late: cannot run a process for it: %s",
		 strerror(code));
	return -1;
}

static bool descriptors_are_few(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < DESCRIPTORS_FEW;
}

static void *forget_run(void *arg)
{
	struct forget *f = arg;
	/* To the helper; -1: it does not run. Where descriptors may run out it runs from the start.
	 */
	int fd = descriptors_are_few() ? open_helper(f) : -1;

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
		fd = send_paths(f, fd, buf_span(&paths));
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	close_helper(f, fd);
	return NULL;
}

int forget_start(struct forget *f, const char *mountpoint)
{
	int r;

	*f = (struct forget){ .mountpoint = mountpoint };
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	r = thread_start(&f->thread, "forget", forget_run, f);
	if (r >= 0)
		return 0;
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
	return pid && pid == atomic_load(&f->helper);
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

/*
 * A link across file systems always fails, so nothing is ever made; but the kernel has looked the
 * name up before, as one that must not exist.
 */
static bool look_up(const char *path)
{
	return linkat(AT_FDCWD, "/proc/self/stat", AT_FDCWD, path, 0) < 0;
}

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
			if (!look_up((const char *)paths.p + at))
				return 1;
			at += strlen((const char *)paths.p + at) + 1;
		}
		if (at)
			memmove(paths.p, paths.p + at, paths.n - at);
		paths.n -= at;
	} while (n > 0);
	return 0;
}
