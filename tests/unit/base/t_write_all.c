/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_write_all.c - bytes written to a pipe, in pieces and with signals between
 * them.
 */
#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "core/base/write_all.h"

#define BYTES ((size_t)1 << 20) /* more than a pipe holds */
#define SIGNALS 20

static atomic_uint signals;

static void count_signal(int number)
{
	atomic_fetch_add(&signals, 1);
}

struct writer {
	int fd, r;
	const uint8_t *p;
};

static void *write_it(void *arg)
{
	struct writer *w = arg;

	w->r = write_all(w->fd, span_of(w->p, BYTES));
	close(w->fd);
	return NULL;
}

static void everything_is_written_though_signals_interrupt(void **state)
{
	const struct sigaction act = { .sa_handler = count_signal }; /* no SA_RESTART */
	uint8_t *bytes = malloc(BYTES), *back = malloc(BYTES + 1);
	struct writer w = { .p = bytes };
	size_t n = 0;
	ssize_t some;
	pthread_t thread;
	int ends[2];

	assert_non_null(bytes);
	assert_non_null(back);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	w.fd = ends[1];
	assert_int_equal(pthread_create(&thread, NULL, write_it, &w), 0);
	/*
	 * Nobody reads yet, so the pipe is soon full. The write that the first signal interrupts
	 * has written some bytes, later ones none.
	 */
	for (unsigned i = 1; i <= SIGNALS; i++) {
		assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
		while (atomic_load(&signals) < i)
			sched_yield();
	}
	while ((some = read(ends[0], back + n, BYTES + 1 - n)) > 0)
		n += (size_t)some;
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(w.r, 0);
	assert_int_equal(n, BYTES);
	assert_memory_equal(back, bytes, BYTES);
	close(ends[0]);
	free(bytes);
	free(back);
}

static void a_reader_that_is_gone_is_an_error(void **state)
{
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	assert_int_equal(write_all(ends[1], span_str("text")), -EPIPE);
	assert_int_equal(write_all(ends[1], span_of(NULL, 0)), 0);
	close(ends[1]);
	assert_int_equal(write_all(-1, span_str("text")), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_is_written_though_signals_interrupt),
		cmocka_unit_test(a_reader_that_is_gone_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
