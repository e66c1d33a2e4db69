/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scripted_server.h - a server that answers each connection with the next line of a script.
 */
#ifndef PYTREEFS_TESTS_SCRIPTED_SERVER_H
#define PYTREEFS_TESTS_SCRIPTED_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/lib/unit.h"

#define ANSWERS 24
/* In front of an answer: the connection stays open until the server ends. */
#define STALL "\1"

struct server {
	int fd;
	char url[64];
	const char *answer[ANSWERS]; /* "": the connection is closed without one */
	unsigned n, asked;
	int held[ANSWERS]; /* connections that stay open; 0: none */
	char request[ANSWERS][1024];
	pthread_t thread;
};

/* A request and its body. What is left unread when a connection is closed makes it end as one that
 * was lost, whatever had been answered. */
static bool is_whole(const char *text)
{
	const char *body = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");

	return body && (!length || strlen(body + 4) >= strtoul(length + 16, NULL, 10));
}

static void receive(int fd, char *text, size_t n)
{
	size_t have = 0;

	while (have < n - 1 && !is_whole(text)) {
		ssize_t got = read(fd, text + have, n - 1 - have);

		if (got <= 0)
			break;
		have += (size_t)got;
		text[have] = '\0';
	}
}

/* The client is told that the connection is closed, so that its next request never races with that.
 */
static void send_answer(int fd, const char *answer)
{
	const char *rest = strstr(answer, "\r\n") + 2;
	char text[1024];
	int n = snprintf(text, sizeof(text), "%.*sConnection: close\r\n%s", (int)(rest - answer),
			 answer, rest);

	assert_in_range(n, 1, sizeof(text) - 1);
	assert_int_equal(write(fd, text, (size_t)n), n);
}

static void *serve(void *arg)
{
	struct server *s = arg;

	for (unsigned i = 0; i < s->n; i++) {
		const char *answer = s->answer[i];
		int fd = accept(s->fd, NULL, NULL);

		if (fd < 0)
			break;
		receive(fd, s->request[i], sizeof(s->request[i]));
		s->asked++;
		if (*answer == *STALL) {
			s->held[i] = fd;
			answer++;
		}
		if (*answer)
			send_answer(fd, answer);
		if (!s->held[i])
			close(fd);
	}
	return NULL;
}

static void server_start(struct server *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);

	while (s->n < ANSWERS && s->answer[s->n])
		s->n++;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(s->fd, 16), 0);
	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &len), 0);
	snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%d/object", ntohs(a.sin_port));
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_stop(struct server *s)
{
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	for (unsigned i = 0; i < ANSWERS; i++)
		if (s->held[i])
			close(s->held[i]);
	close(s->fd);
}

#endif
