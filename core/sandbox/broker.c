/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.c - starts the broker and sends it requests, which fs/broker_main.c answers.
 *
 * A request is one packet: the task, its text, and files. The reply is a result. Only one request
 * is in progress at a time, since each takes a moment only.
 */
#include "core/sandbox/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/mem.h"

extern char **environ;

static int spawn(int socket, bool quiet, pid_t *ret)
{
	char *argv[] = { BROKER_PROGRAM, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t blocked;
	int e;

	/*
	 * Signals that end a mount must not end the broker: a terminal and systemd send them to
	 * both.
	 */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGHUP);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGQUIT);
	sigaddset(&blocked, SIGTERM);
	posix_spawnattr_init(&how);
	posix_spawnattr_setsigmask(&how, &blocked);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&files);
	e = posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
	/* Libraries open files without O_CLOEXEC. */
	if (!e)
		e = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
	for (int fd = STDOUT_FILENO; quiet && !e && fd <= STDERR_FILENO; fd++)
		e = posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
	if (!e)
		e = posix_spawn(ret, "/proc/self/exe", &files, &how, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&how);
	return -e;
}

/* The first packet: "MOUNTPOINT\0COMMAND\0LOG\0". */
static int send_parameters(int fd, const struct broker_parameters *p)
{
	auto_buf text = { 0 };
	int r = buf_addf(&text, "%s%c%s%c%s%c", p->mountpoint, 0, p->on_commit ? p->on_commit : "",
			 0, p->log ? p->log : "", 0);

	if (r < 0)
		return r;
	if (text.n > BROKER_TEXT_MAX)
		return -E2BIG;
	if (send(fd, text.p, text.n, MSG_NOSIGNAL) != (ssize_t)text.n)
		r = -errno;
	return MIN(r, 0);
}

int broker_start(struct broker *b, const struct broker_parameters *parameters)
{
	int ends[2], r;

	*b = (struct broker){ .fd = -1 };
	pthread_mutex_init(&b->lock, NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys("cannot make", "socket");
	r = spawn(ends[1], parameters->quiet, &b->pid);
	close(ends[1]);
	b->fd = ends[0];
	if (r >= 0)
		r = send_parameters(b->fd, parameters);
	if (r < 0) {
		broker_stop(b);
		return fail(r, "cannot start the process that unmounts: %s", strerror(-r));
	}
	return 0;
}

static int ask_packet(struct broker *b, enum broker_task task, const char *text, const int *files,
		      unsigned n_files, int *ret_file)
{
	auto_buf packet = { 0 };
	int received[BROKER_FILES_MAX] = { -1 }, r;
	int32_t result = 0;

	if (b->fd < 0)
		return -EPIPE;
	if (buf_add_byte(&packet, (uint8_t)task) < 0 || buf_add_str(&packet, text) < 0)
		return -ENOMEM;
	if (packet.n >= BROKER_TEXT_MAX)
		return -E2BIG;
	pthread_mutex_lock(&b->lock);
	r = broker_packet_send(b->fd, packet.p, packet.n, files, n_files);
	if (r < 0)
		r = r == -ECONNRESET ? -EPIPE : r;
	else if (broker_packet_receive(b->fd, &result, sizeof(result), received) != sizeof(result))
		r = -EPIPE;
	pthread_mutex_unlock(&b->lock);
	if (r < 0)
		return r;
	/* Only the reply to broker_ask_file() has one. */
	if (!ret_file || result < 0)
		return result;
	*ret_file = received[0];
	return *ret_file < 0 ? -EBADF : result;
}

int broker_ask(struct broker *b, enum broker_task task, const char *text, const int *files,
	       unsigned n_files)
{
	return ask_packet(b, task, text, files, n_files, NULL);
}

int broker_ask_file(struct broker *b, enum broker_task task, int *ret_file)
{
	return ask_packet(b, task, "", NULL, 0, ret_file);
}

void broker_stop(struct broker *b)
{
	const uint8_t end = BROKER_END;

	if (b->fd >= 0) {
		broker_packet_send(b->fd, &end, sizeof(end), NULL, 0);
		close(b->fd);
	}
	b->fd = -1;
	pthread_mutex_destroy(&b->lock);
}
