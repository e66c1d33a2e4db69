/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_http_limits.c - the bounds of a request's tries: pauses that the server asks for, and the
 * deadline of the whole request, whatever its progress is.
 */
#include <curl/curl.h>
#include <dlfcn.h>

#include "core/base/clock.h"
#include "core/http/http.h"
#include "tests/unit/lib/scripted_server.h"
#include "tests/unit/lib/unit.h"

#define MS_NS 1000000
#define LONG_MS 60000 /* a test that fails would wait so long */

/* Bytes 10 to 19 of an object, within a deadline. Returns the milliseconds that it took. */
static int64_t read_within(struct server *s, unsigned request_ms, int *ret, unsigned *ret_tries)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	uint8_t bytes[10];
	struct http_piece piece = { bytes, 10, sizeof(bytes) };
	struct http_request q = { .name = "object",
				  .piece = &piece,
				  .n_pieces = 1,
				  .off = 10,
				  .n = 10,
				  .tag = "\"a\"",
				  .size = 100 };
	int64_t began = clock_ns();
	struct http *h;

	opts.first_pause_ms = 1;
	opts.progress_ms = LONG_MS;
	opts.request_ms = request_ms;
	server_start(s);
	q.url = s->url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	*ret = http_wait(h, &q);
	*ret_tries = q.tries;
	if (*ret >= 0)
		assert_memory_equal(bytes, "0123456789", 10);
	http_free(h);
	server_stop(s);
	return (clock_ns() - began) / MS_NS;
}

#define HEAD                                                                                \
	"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/100\r\nETag: \"a\"\r\n" \
	"Content-Length: 10\r\n\r\n"
#define AFTER(status, seconds) \
	"HTTP/1.1 " status "\r\nRetry-After: " seconds "\r\nContent-Length: 0\r\n\r\n"

/* A second, and not the pause of a few milliseconds. */
static void test_a_pause_that_the_server_asks_for(void **state)
{
	struct server s = { .answer = { AFTER("429 Too Many Requests", "1"), HEAD "0123456789" } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, LONG_MS, &r, &tries), 1000, LONG_MS);
	assert_int_equal(r, 0);
	assert_int_equal(tries, 2);
}

/* A date, or a time in the past, is not a number of seconds to wait. */
static void test_a_pause_that_is_not_a_number(void **state)
{
	struct server s = { .answer = { AFTER("503 U", "Fri, 31 Dec 1999 23:59:59 GMT"),
					AFTER("503 U", "-5"), HEAD "0123456789" } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, LONG_MS, &r, &tries), 0, LONG_MS - 1);
	assert_int_equal(r, 0);
	assert_int_equal(tries, 3);
}

/* A pause that does not end before the deadline is not begun. */
static void test_a_pause_longer_than_the_deadline(void **state)
{
	struct server s = { .answer = { AFTER("503 Slow Down", "30"), HEAD "0123456789" } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, 20000, &r, &tries), 0, 19999);
	assert_int_equal(r, -EIO);
	assert_string_equal(err_text(-EIO),
			    "cannot read 'object' at offset 10, 10 bytes: status 503, after 1 "
			    "tries (the deadline leaves no time for more)");
	assert_int_equal(s.asked, 1);
}

/* The first byte does not come, or the answer stops in the middle: progress_ms would wait longer. */
static void test_the_deadline_of_a_request(void **state)
{
	struct server s[] = { { .answer = { STALL } }, { .answer = { STALL HEAD "01234" } } };
	unsigned tries;
	int r;

	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		assert_in_range(read_within(&s[i], 2000, &r, &tries), 2000, LONG_MS - 1);
		assert_int_equal(r, -EIO);
		assert_non_null(strstr(err_text(-EIO), "'object' at offset 10, 10 bytes: "));
		assert_non_null(strstr(err_text(-EIO), "timed out"));
		assert_non_null(strstr(err_text(-EIO), "the deadline leaves no time for more"));
		assert_int_equal(s[i].asked, 1);
	}
}

static bool is_short_of_memory;

/* In place of libcurl's. */
CURLM *curl_multi_init(void)
{
	CURLM *(*init)(void) = (CURLM * (*)(void)) dlsym(RTLD_NEXT, "curl_multi_init");

	return is_short_of_memory ? NULL : init();
}

/* The failure is the result of a request that had another one before, and nobody waits for it. */
static void test_a_client_that_cannot_start(void **state)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .url = "http://127.0.0.1:1/", .name = "object" };
	struct http *h;

	assert_int_equal(http_new(&opts, &h), 0);
	is_short_of_memory = true;
	assert_int_equal(http_submit(h, &q), -ENOMEM);
	is_short_of_memory = false;
	assert_int_equal(q.result, -ENOMEM);
	assert_int_equal(http_wait(h, &q), -ENOMEM);
	assert_string_equal(err_text(-ENOMEM),
			    "cannot read 'object': cannot make a client for http");
	http_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_pause_that_the_server_asks_for),
		cmocka_unit_test(test_a_pause_that_is_not_a_number),
		cmocka_unit_test(test_a_pause_longer_than_the_deadline),
		cmocka_unit_test(test_the_deadline_of_a_request),
		cmocka_unit_test(test_a_client_that_cannot_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
