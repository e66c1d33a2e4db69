/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_log.c - the last messages are retained, repeats are counted, no control character gets through.
 */
#include "tests/unit/lib/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"

static char path[64];

static int setup(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/t_log.XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return -1;
	close(fd);
	return log_open(false, false, path);
}

static int teardown(void **state)
{
	log_open(false, false, NULL);
	return unlink(path);
}

static char *retained(void)
{
	struct buf text = { 0 };

	assert_int_equal(log_text(&text), 0);
	assert_non_null(buf_str(&text));
	return (char *)text.p;
}

static char *file(void)
{
	static char text[1 << 21];
	FILE *f = fopen(path, "r");
	size_t n = fread(text, 1, sizeof(text) - 1, f);

	fclose(f);
	text[n] = '\0';
	return text;
}

static void a_message_is_retained_and_written(void **state)
{
	auto_free char *text = NULL;

	log_warn("disk %d of %s", 3, "two");
	text = retained();
	assert_non_null(strstr(text, "Z disk 3 of two\n"));
	assert_non_null(strstr(file(), "Z disk 3 of two\n"));
}

static void repeats_are_counted(void **state)
{
	auto_free char *text = NULL, *later = NULL;

	for (int i = 0; i < 5; i++)
		log_error("again");
	text = retained();
	assert_non_null(strstr(text, " again\n"));
	assert_non_null(strstr(text, "Z (the last message came 1 more time)\n"));
	/* log_text() reports the repeats that were not reported yet. */
	assert_non_null(strstr(text, "Z (the last message came 4 more times)\n"));
	log_error("again");
	log_info("other");
	later = retained();
	/* Earlier text is unchanged: a program that follows the log sees each line once. */
	assert_memory_equal(later, text, strlen(text));
	assert_non_null(strstr(later, "Z (the last message came 5 more times)\n"));
	assert_non_null(strstr(later, "Z other\n"));
}

static void no_control_character_gets_through(void **state)
{
	auto_free char *text = NULL;

	log_error("name '%s'", "a\nb\x1b[31m\r\x7f\xc2\x9b\xc2\xa0");
	text = retained();
	assert_non_null(strstr(text, "name 'a?b?[31m?"
				     "???\xc2\xa0'\n"));
	assert_null(strchr(file(), 0x1b));
}

static void a_long_message_is_cut(void **state)
{
	auto_free char *text = NULL, *big = malloc(5001);

	memset(big, 'x', 5000);
	big[5000] = '\0';
	log_error("%s", big);
	log_error("after it");
	text = retained();
	assert_non_null(strstr(text, "xxx\n"));
	assert_non_null(strstr(text, "Z after it\n"));
	assert_true(strlen(text) < 3000);
}

static void only_the_last_ones_are_retained(void **state)
{
	auto_free char *text = NULL;

	for (int i = 0; i < 20000; i++)
		log_info("line %d", i);
	text = retained();
	assert_non_null(strstr(text, " line 19999\n"));
	assert_non_null(strstr(text, " line 17000\n"));
	assert_null(strstr(text, " line 0\n"));
	assert_true(strlen(text) <= 256 << 10);
	/* The first line is a whole one. */
	assert_int_equal(text[10], 'T');
}

static void traces_go_to_the_file_when_asked_for(void **state)
{
	assert_int_equal(log_trace_set("zarr,kv:io"), 0);
	assert_int_equal(log_trace_mask, TRACE_ZARR | TRACE_KV | TRACE_IO);
	trace(TRACE_ZARR, "read %d", 7);
	trace(TRACE_FS, "never");
	assert_non_null(strstr(file(), "trace zarr: read 7\n"));
	assert_null(strstr(file(), "never"));
	assert_int_equal(log_trace_set("all"), 0);
	assert_int_equal(log_trace_mask, ~0u);
	assert_int_equal(log_trace_set("zarr,nothing"), -EINVAL);
	assert_non_null(strstr(err_text(-EINVAL), "'nothing'"));
	assert_int_equal(log_trace_set(""), 0);
	assert_int_equal(log_trace_mask, 0);
}

static void a_log_that_cannot_be_opened_is_an_error(void **state)
{
	assert_int_equal(log_open(false, false, "/nonexistent/log"), -ENOENT);
	/* The old log is still in use. */
	log_info("still here");
	assert_non_null(strstr(file(), "still here"));
}

static void *chatter(void *arg)
{
	for (int i = 0; i < 300; i++) {
		auto_buf text = { 0 };

		log_info("thread %d says %d", *(int *)arg, i / 3);
		if (i % 50 == 0)
			log_text(&text);
	}
	return NULL;
}

static void many_threads(void **state)
{
	int who[4] = { 1, 2, 3, 4 };
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, chatter, &who[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_retained_and_written),
		cmocka_unit_test(repeats_are_counted),
		cmocka_unit_test(no_control_character_gets_through),
		cmocka_unit_test(a_long_message_is_cut),
		cmocka_unit_test(only_the_last_ones_are_retained),
		cmocka_unit_test(traces_go_to_the_file_when_asked_for),
		cmocka_unit_test(a_log_that_cannot_be_opened_is_an_error),
		cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
