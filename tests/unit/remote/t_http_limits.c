/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_http_limits.c - the bounds of a request's tries: pauses that the server asks for, and the
 * deadline of the whole request, whatever its progress is.
 */
#include <curl/curl.h>
#include <dlfcn.h>

#include "core/base/clock.h"
#include "core/remote/transport/http.h"
#include "core/remote/transport/http_outage.h"
#include "tests/unit/lib/scripted_server.h"
#include "tests/unit/lib/unit.h"

#define MS_NS 1000000
#define LONG_MS 60000 /* a test that fails would wait so long */

/* Bytes 10 to 19 of an object, within a deadline. Returns the milliseconds that it took. */
static int64_t read_within(struct server *s, unsigned progress_ms, unsigned request_ms, int *ret,
			   unsigned *ret_tries)
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
	opts.progress_ms = progress_ms;
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
#define REST                                                                                \
	"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 15-19/100\r\nETag: \"a\"\r\n" \
	"Content-Length: 5\r\n\r\n56789"
#define AFTER(status, seconds) \
	"HTTP/1.1 " status "\r\nRetry-After: " seconds "\r\nContent-Length: 0\r\n\r\n"

/* A second, and not the pause of a few milliseconds. */
static void test_a_pause_that_the_server_asks_for(void **state)
{
	struct server s = { .answer = { AFTER("429 Too Many Requests", "1"), HEAD "0123456789" } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, LONG_MS, LONG_MS, &r, &tries), 1000, LONG_MS);
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

	assert_in_range(read_within(&s, LONG_MS, LONG_MS, &r, &tries), 0, LONG_MS - 1);
	assert_int_equal(r, 0);
	assert_int_equal(tries, 3);
}

/* A pause that does not end before the deadline is not begun. */
static void test_a_pause_longer_than_the_deadline(void **state)
{
	struct server s = { .answer = { AFTER("503 Slow Down", "30"), HEAD "0123456789" } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, LONG_MS, 20000, &r, &tries), 0, 19999);
	assert_int_equal(r, -EIO);
	assert_string_equal(err_text(-EIO),
			    "cannot read 'object' at offset 10, 10 bytes: status 503, after 1 "
			    "try (the deadline leaves no time for more)");
	assert_int_equal(s.asked, 1);
}

/* The first byte does not come, or the answer stops in the middle: progress_ms would wait longer. */
static void test_the_deadline_of_a_request(void **state)
{
	struct server s[] = { { .answer = { STALL } }, { .answer = { STALL HEAD "01234" } } };
	unsigned tries;
	int r;

	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		assert_in_range(read_within(&s[i], LONG_MS, 2000, &r, &tries), 2000, LONG_MS - 1);
		assert_int_equal(r, -EIO);
		assert_non_null(strstr(err_text(-EIO), "'object' at offset 10, 10 bytes: "));
		assert_non_null(strstr(err_text(-EIO), "timed out"));
		assert_non_null(strstr(err_text(-EIO), "the deadline leaves no time for more"));
		assert_int_equal(s[i].asked, 1);
	}
}

/* Without a byte for so long the try has failed; the next one asks for the bytes that are missing. */
static void test_an_answer_that_stalls(void **state)
{
	struct server s = { .answer = { STALL, STALL HEAD "01234", REST } };
	unsigned tries;
	int r;

	assert_in_range(read_within(&s, 1000, LONG_MS, &r, &tries), 2000, LONG_MS - 1);
	assert_int_equal(r, 0);
	assert_int_equal(tries, 3);
	assert_non_null(strstr(s.request[1], "Range: bytes=10-19\r\n"));
	assert_non_null(strstr(s.request[2], "Range: bytes=15-19\r\n"));
	assert_non_null(strstr(s.request[2], "If-Match: \"a\"\r\n"));
}

#define S (1000LL * MS_NS)
#define ONE "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"

static struct outage_of of(uint64_t name, uint64_t from, uint64_t to)
{
	return (struct outage_of){ name, from, to };
}

static void test_when_the_deadline_of_a_range_begins(void **state)
{
	static struct outages o;

	assert_int_equal(outage_since(&o, of(1, 0, 10), 100 * S), 100 * S);
	outage_note(&o, of(1, 0, 10), 100 * S, 160 * S);
	outage_note(&o, of(1, 5, 20), 101 * S, 161 * S);
	assert_int_equal(outage_since(&o, of(1, 9, 11), 162 * S), 100 * S);
	assert_int_equal(outage_since(&o, of(1, 19, 30), 162 * S), 100 * S);
	assert_int_equal(outage_since(&o, of(1, 20, 30), 162 * S), 162 * S);
	assert_int_equal(outage_since(&o, of(2, 0, 10), 162 * S), 162 * S);
	/* Nobody asked for a while; it is another outage then. */
	assert_int_equal(outage_since(&o, of(1, 0, 10), 170 * S), 170 * S);
	outage_note(&o, of(1, 0, 10), 170 * S, 200 * S);
	assert_int_equal(outage_since(&o, of(1, 0, 10), 201 * S), 170 * S);
	outage_end(&o, of(1, 10, 20));
	assert_int_equal(outage_since(&o, of(1, 0, 10), 201 * S), 170 * S);
	/* Bytes came; others may stall still. */
	outage_end(&o, of(1, 0, 2));
	outage_end(&o, of(1, 8, 10));
	assert_int_equal(outage_since(&o, of(1, 0, 2), 201 * S), 201 * S);
	assert_int_equal(outage_since(&o, of(1, 1, 3), 201 * S), 170 * S);
	assert_int_equal(outage_since(&o, of(1, 8, 9), 201 * S), 201 * S);
	outage_end(&o, of(1, 0, 10));
	assert_int_equal(outage_since(&o, of(1, 0, 10), 201 * S), 201 * S);
	/* The oldest is forgotten. */
	for (uint64_t name = 10; name < 10 + OUTAGES + 1; name++)
		outage_note(&o, of(name, 0, 1), 300 * S, 301 * S + (int64_t)name);
	assert_int_equal(outage_since(&o, of(10, 0, 1), 302 * S), 302 * S);
	assert_int_equal(outage_since(&o, of(11, 0, 1), 302 * S), 300 * S);
}

/*
 * An object stalls, and is asked for again, as a kernel reads a page again: the same deadline. That
 * of a request that has waited for a silent connection began then. The next object has its own.
 */
static void test_one_deadline_for_whoever_waits(void **state)
{
	struct server s = { .answer = { STALL, ONE, ONE, ONE } };
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request first = { .name = "a", .limit = 1 }, again = first, queued = first,
			    other = first;
	struct http *h;

	opts.progress_ms = LONG_MS;
	opts.request_ms = 2000;
	opts.connections = 1;
	server_start(&s);
	first.url = again.url = queued.url = other.url = s.url;
	queued.name = "b";
	other.name = "c";
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &first), 0);
	assert_int_equal(http_submit(h, &queued), 0);
	assert_int_equal(http_wait(h, &first), -EIO);
	assert_int_equal(first.tries, 1);
	http_wait(h, &queued);
	assert_int_equal(queued.run.began, queued.run.submitted);
	/* A moment may be left of the deadline. */
	do {
		assert_int_equal(http_submit(h, &again), 0);
		http_wait(h, &again);
		assert_true(again.result >= 0 || again.run.began == first.run.began);
	} while (again.result < 0 && again.tries);
	assert_true(again.result >= 0 || strstr(again.why, "no answer for "));
	assert_int_equal(http_submit(h, &other), 0);
	assert_int_equal(http_wait(h, &other), 0);
	assert_true(other.run.began > first.run.began);
	buf_release(&queued.body);
	buf_release(&again.body);
	buf_release(&other.body);
	http_free(h);
	server_stop(&s);
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
		cmocka_unit_test(test_an_answer_that_stalls),
		cmocka_unit_test(test_when_the_deadline_of_a_range_begins),
		cmocka_unit_test(test_one_deadline_for_whoever_waits),
		cmocka_unit_test(test_a_client_that_cannot_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
