/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_request_reader.c - bursts of requests, served by threads that read them from a pipe.
 */
#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "fs/request_reader.h"

#define THREADS 4
#define QUIT FUSE_RENAME2 /* not small: whoever reads it lets a parked thread read the next one */
#define SLOW 77

static struct request_reader request_reader;
static int requests[2]; /* a pipe in packet mode: a read gets one request */
static int answers[2];
static atomic_int polled_count;
static sem_t may_end; /* slow requests wait for it */

/* Answered at once, but for node SLOW. A LOOKUP counts as small whatever it takes, an FSYNC does
 * not. */
static void *serve(void *arg)
{
	char buf[65536];

	for (;;) {
		const struct fuse_in_header *h = (const void *)buf;
		bool polled;
		ssize_t n = request_reader_read(&request_reader, requests[0], buf, sizeof(buf),
						&polled);

		if (n <= 0 || h->opcode == QUIT)
			return NULL;
		atomic_fetch_add(&polled_count, polled);
		if (h->nodeid == SLOW)
			sem_wait(&may_end);
		if (write(answers[1], &h->unique, sizeof(h->unique)) != sizeof(h->unique))
			return NULL;
	}
}

static void ask(uint32_t opcode, uint64_t node, uint64_t unique)
{
	struct fuse_in_header h = {
		.len = sizeof(h), .opcode = opcode, .unique = unique, .nodeid = node
	};

	assert_int_equal(write(requests[1], &h, sizeof(h)), sizeof(h));
}

static uint64_t answer(void)
{
	uint64_t unique;

	assert_int_equal(read(answers[0], &unique, sizeof(unique)), sizeof(unique));
	return unique;
}

static void run(enum busy_poll mode, void (*what)(void))
{
	pthread_t thread[THREADS];

	assert_int_equal(pipe2(requests, O_DIRECT | O_CLOEXEC), 0);
	assert_int_equal(pipe2(answers, O_CLOEXEC), 0);
	atomic_store(&polled_count, 0);
	sem_init(&may_end, 0, 0);
	assert_int_equal(request_reader_start(&request_reader, mode), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, serve, NULL), 0);
	what();
	for (int i = 0; i < THREADS; i++)
		ask(QUIT, 0, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	request_reader_stop(&request_reader);
	sem_destroy(&may_end);
	for (int i = 0; i < 2; i++) {
		close(requests[i]);
		close(answers[i]);
	}
}

static void burst(int n)
{
	for (int i = 1; i <= n; i++) {
		ask(FUSE_GETATTR, 1, (uint64_t)i);
		assert_int_equal(answer(), i);
	}
}

/* Until all but one are parked; a busy machine makes pauses, which end a burst. */
static void burst_until_parked(void)
{
	/* Looked at once: a pause right after that look ends the burst again. */
	while (atomic_load(&request_reader.parked) < THREADS - 1)
		burst(16);
}

static void in_a_burst(void)
{
	burst_until_parked();
	/* The last thread that is not parked may have come to its first poll, or not. */
	while (!atomic_load(&polled_count))
		burst(16);
}

static void one_thread_serves_a_burst_and_polls(void **state)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	run(BUSY_POLL_ON, in_a_burst);
}

static void without_polling(void)
{
	burst(2000);
	assert_int_equal(atomic_load(&request_reader.parked), 0);
	assert_int_equal(atomic_load(&polled_count), 0);
}

static void nobody_polls_when_that_is_off(void **state)
{
	run(BUSY_POLL_OFF, without_polling);
}

/* One that does not end before the others were answered. */
static void others_overtake(uint32_t opcode)
{
	burst_until_parked();
	ask(opcode, SLOW, 1000);
	burst(50);
	sem_post(&may_end);
	assert_int_equal(answer(), 1000);
}

static void a_slow_look_up(void)
{
	others_overtake(FUSE_LOOKUP);
}

static void a_sync(void)
{
	others_overtake(FUSE_FSYNC);
}

static void a_request_that_takes_long_keeps_no_other_waiting(void **state)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	run(BUSY_POLL_ON, a_slow_look_up);
	run(BUSY_POLL_ON, a_sync);
}

static void many_at_once(void)
{
	burst_until_parked();
	for (uint64_t i = 0; i < 200; i++)
		ask(FUSE_LOOKUP, 1, i);
	for (int i = 0; i < 200; i++)
		answer();
}

static void requests_of_many_programs_are_all_answered(void **state)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	run(BUSY_POLL_ON, many_at_once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_serves_a_burst_and_polls),
		cmocka_unit_test(nobody_polls_when_that_is_off),
		cmocka_unit_test(a_request_that_takes_long_keeps_no_other_waiting),
		cmocka_unit_test(requests_of_many_programs_are_all_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
