/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_line PORT DELAY_US BYTES_PER_S - a long line to the server at that port of this machine.
 *
 * Prints the port that it listens at. Every byte arrives DELAY_US later, in both directions, a new
 * connection takes two of these as TCP's handshake does, and all connections together have so
 * many bytes a second in each direction. Each byte of its input is a command: after 64 MiB more of
 * answers, the connection that carries them sends nothing any more, and stays open. Ends when its
 * input does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE (64 << 10)
#define PIECES 96 /* under way in one direction: more than the line holds */
#define STALL_AFTER (64 << 20)

struct piece {
	int64_t due;
	size_t n;
	uint8_t bytes[PIECE];
};

/* One direction of a connection: one thread reads, another one writes what is due. */
struct way {
	int from, to;
	bool answers;
	int64_t not_before;
	struct piece *ring;
	size_t first, n;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t reader, writer;
};

static int64_t delay_ns;
static double ns_per_byte;
static pthread_mutex_t line = PTHREAD_MUTEX_INITIALIZER;
static int64_t line_is_free[2];  /* by direction; protected by line */
static _Atomic int64_t stall_in; /* bytes of answers until a connection stalls; 0: none will */

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When the last of n bytes has gone through the part of the line that all share. */
static int64_t through(bool answers, size_t n)
{
	int64_t t = now();

	pthread_mutex_lock(&line);
	if (line_is_free[answers] < t)
		line_is_free[answers] = t;
	line_is_free[answers] += (int64_t)((double)n * ns_per_byte);
	t = line_is_free[answers];
	pthread_mutex_unlock(&line);
	return t;
}

static void *read_all(void *arg)
{
	struct way *w = arg;

	for (ssize_t n = 1; n > 0;) {
		struct piece *p;

		pthread_mutex_lock(&w->lock);
		while (w->n == PIECES)
			pthread_cond_wait(&w->changed, &w->lock);
		p = &w->ring[(w->first + w->n) % PIECES];
		pthread_mutex_unlock(&w->lock);
		n = read(w->from, p->bytes, PIECE);
		p->n = n > 0 ? (size_t)n : 0;
		p->due = through(w->answers, p->n) + delay_ns;
		if (p->due < w->not_before)
			p->due = w->not_before;
		pthread_mutex_lock(&w->lock);
		w->n++;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

/* Whether it is this connection that stalls, with a piece of n bytes. */
static bool stalls(const struct way *w, size_t n)
{
	int64_t left = w->answers ? atomic_load(&stall_in) : 0;

	while (left > 0 && !atomic_compare_exchange_weak(&stall_in, &left,
							 left > (int64_t)n ? left - (int64_t)n : 0))
		;
	return left > 0 && left <= (int64_t)n;
}

static bool wait_for_close(int fd)
{
	struct pollfd f = { .fd = fd, .events = POLLRDHUP };

	poll(&f, 1, -1);
	return false;
}

static bool write_piece(int fd, const struct piece *p)
{
	for (size_t at = 0; at < p->n;) {
		ssize_t n = send(fd, p->bytes + at, p->n - at, MSG_NOSIGNAL);

		if (n < 0)
			return false;
		at += (size_t)n;
	}
	return p->n > 0;
}

static void *write_all(void *arg)
{
	struct way *w = arg;
	bool open = true;

	while (open) {
		struct piece *p;
		struct timespec t;

		pthread_mutex_lock(&w->lock);
		while (!w->n)
			pthread_cond_wait(&w->changed, &w->lock);
		p = &w->ring[w->first];
		pthread_mutex_unlock(&w->lock);
		t = (struct timespec){ p->due / 1000000000, p->due % 1000000000 };
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
			;
		open = stalls(w, p->n) ? wait_for_close(w->to) : write_piece(w->to, p);
		pthread_mutex_lock(&w->lock);
		w->first = (w->first + 1) % PIECES;
		w->n--;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
	}
	/* Both readers end, and with them this connection. */
	shutdown(w->to, SHUT_RDWR);
	shutdown(w->from, SHUT_RDWR);
	return NULL;
}

static void begin_way(struct way *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->ring = malloc(PIECES * sizeof(*w->ring));
	if (!w->ring || pthread_create(&w->reader, NULL, read_all, w) ||
	    pthread_create(&w->writer, NULL, write_all, w))
		exit(1);
}

static int server_port;

static void *serve(void *arg)
{
	int client = (int)(intptr_t)arg, server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)server_port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct way way[2] = { { .from = client, .to = server },
			      { .from = server, .to = client, .answers = true } };

	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(server, (struct sockaddr *)&a, sizeof(a)) == 0) {
		way[0].not_before = now() + 3 * delay_ns;
		for (int i = 0; i < 2; i++)
			begin_way(&way[i]);
		for (int i = 0; i < 2; i++) {
			pthread_join(way[i].writer, NULL);
			pthread_join(way[i].reader, NULL);
			free(way[i].ring);
		}
	}
	close(client);
	close(server);
	return NULL;
}

static void *obey_input(void *arg)
{
	char c;

	while (read(0, &c, 1) > 0)
		atomic_store(&stall_in, STALL_AFTER);
	exit(0);
}

int main(int argc, char **argv)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	pthread_t t;

	if (argc != 4 || s < 0)
		return 2;
	server_port = atoi(argv[1]);
	delay_ns = atoll(argv[2]) * 1000;
	ns_per_byte = 1e9 / atof(argv[3]);
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 256) < 0 ||
	    getsockname(s, (struct sockaddr *)&a, &n) < 0)
		return 1;
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	if (pthread_create(&t, NULL, obey_input, NULL))
		return 1;
	for (;;) {
		int fd = accept(s, NULL, NULL);

		if (fd >= 0 && pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) == 0)
			pthread_detach(t);
	}
}
