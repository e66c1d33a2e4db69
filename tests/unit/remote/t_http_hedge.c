/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_http_hedge.c - hedged requests: the thresholds, the allowance, and which transfer's bytes are
 * used.
 */
#include "core/remote/transport/http.h"
#include "core/remote/transport/http_hedge.h"
#include "tests/unit/lib/scripted_server.h"
#include "tests/unit/lib/unit.h"

#define MS 1000000LL

/* ---- thresholds and allowance ---- */

static void test_thresholds(void **state)
{
	struct hedging h;

	hedging_init(&h, 10000);
	assert_true(hedging_silence_ns(&h) == 2000 * MS);
	assert_true(hedging_whole_ns(&h, 1 << 20) == INT64_MAX);
	for (int i = 0; i < 64; i++)
		hedging_note(&h, 1 << 20, 20 * MS, i < 60 ? 50 * MS : 5000 * MS);
	assert_true(hedging_silence_ns(&h) == 160 * MS);
	assert_true(hedging_whole_ns(&h, 1 << 20) == 250 * MS);
	/* Another size has a threshold of its own. */
	assert_true(hedging_whole_ns(&h, 8 << 20) == INT64_MAX);
	/* When all ranges have become slower, the thresholds follow. */
	for (int i = 0; i < 64; i++)
		hedging_note(&h, 1 << 20, 3000 * MS, 4000 * MS);
	assert_true(hedging_silence_ns(&h) == 9100 * MS);
	assert_true(hedging_whole_ns(&h, 1 << 20) == 12100 * MS);
}

static unsigned most(struct hedging *h)
{
	unsigned n = 0;

	for (; hedging_allows(h); n++)
		hedging_take(h);
	return n;
}

static void test_the_allowance(void **state)
{
	struct hedging h;

	hedging_init(&h, 10000);
	assert_int_equal(most(&h), 2);
	for (int i = 0; i < 50; i++)
		hedging_note(&h, 100, MS, MS);
	assert_int_equal(most(&h), 2);
	for (int i = 0; i < 1000; i++)
		hedging_note(&h, 100, MS, MS);
	assert_int_equal(most(&h), 4);
}

/* ---- transfers ---- */

#define RANGE_HEAD \
	"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/100\r\nETag: \"a\"\r\n"
#define GOOD RANGE_HEAD "Content-Length: 10\r\n\r\n0123456789"
#define HALF RANGE_HEAD "Content-Length: 10\r\n\r\n01234"
#define REST                                                                                  \
	"HTTP/1.1 206 P\r\nContent-Range: bytes 15-19/100\r\nETag: \"a\"\r\nContent-Length: " \
	"5\r\n\r\n56789"
#define BUSY "HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
#define OTHER "HTTP/1.1 412 P\r\nContent-Length: 0\r\n\r\n"
/* Enough ranges to have thresholds. */
#define KNOWN GOOD, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD

struct reading {
	uint8_t bytes[10];
	struct http_piece piece;
	struct http_request req;
	struct http_stats stats;
};

/* Read n ranges, one after the other; returns the result of the last one. */
static int read_all(struct server *s, const char *tag, unsigned n, unsigned progress_ms,
		    struct reading *ret)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http *h;
	int r = 0;

	opts.first_pause_ms = 1;
	opts.progress_ms = progress_ms;
	server_start(s);
	assert_int_equal(http_new(&opts, &h), 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(r, 0);
		*ret = (struct reading){ .piece = { ret->bytes, 10, 10 } };
		ret->req = (struct http_request){ .url = s->url,
						  .piece = &ret->piece,
						  .n_pieces = 1,
						  .off = 10,
						  .n = 10,
						  .tag = tag,
						  .size = 100 };
		assert_int_equal(http_submit(h, &ret->req), 0);
		r = http_wait(h, &ret->req);
	}
	http_stats(h, &ret->stats);
	http_free(h);
	server_stop(s);
	return r;
}

static void test_a_slow_first_byte(void **state)
{
	struct server s = { .answer = { KNOWN, STALL, GOOD } };
	struct reading g;

	assert_int_equal(read_all(&s, "\"a\"", 9, 10000, &g), 0);
	assert_memory_equal(g.bytes, "0123456789", 10);
	assert_true(g.stats.hedges == 1 && g.stats.hedges_won == 1 && g.stats.retries == 0);
	assert_non_null(strstr(s.request[9], "Range: bytes=10-19\r\n"));
	assert_non_null(strstr(s.request[9], "If-Match: \"a\"\r\n"));
}

/* The second request asks for the missing bytes only. */
static void test_a_stall_in_the_middle(void **state)
{
	struct server s = { .answer = { KNOWN, STALL HALF, REST } };
	struct reading g;

	assert_int_equal(read_all(&s, "\"a\"", 9, 10000, &g), 0);
	assert_memory_equal(g.bytes, "0123456789", 10);
	assert_true(g.stats.hedges == 1 && g.stats.hedges_won == 1 && g.stats.retries == 0);
	assert_non_null(strstr(s.request[9], "Range: bytes=15-19\r\n"));
}

/* A hedge is made even before any range is known, and for an object without a tag. */
static void test_the_first_request(void **state)
{
	struct server s = { .answer = { STALL, GOOD } };
	struct reading g;

	assert_int_equal(read_all(&s, NULL, 1, 10000, &g), 0);
	assert_memory_equal(g.bytes, "0123456789", 10);
	assert_true(g.stats.hedges == 1 && g.stats.hedges_won == 1 && g.stats.retries == 0);
}

/* A second request that fails changes nothing while the first goes on. */
static void test_the_first_one_wins(void **state)
{
	static const char *const seconds[] = { BUSY, "", OTHER };

	for (size_t i = 0; i < ARRAY_LEN(seconds); i++) {
		struct server s = { .answer = { KNOWN, LATER GOOD, seconds[i] } };
		struct reading g;

		assert_int_equal(read_all(&s, "\"a\"", 9, 10000, &g), 0);
		assert_memory_equal(g.bytes, "0123456789", 10);
		assert_true(g.stats.hedges == 1 && g.stats.hedges_won == 0);
		assert_true(g.req.tries == 1 && g.stats.retries == 0);
	}
}

/* When the first transfer fails, the second one continues. */
static void test_the_first_one_fails(void **state)
{
	struct server s = { .answer = { KNOWN, LATER BUSY, STALL, GOOD } };
	struct reading g;

	/* The hedge stalls, too: the request is tried again after progress_ms. */
	assert_int_equal(read_all(&s, "\"a\"", 9, 10000, &g), 0);
	assert_memory_equal(g.bytes, "0123456789", 10);
	assert_true(g.stats.hedges == 1 && g.req.tries == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thresholds),
		cmocka_unit_test(test_the_allowance),
		cmocka_unit_test(test_a_slow_first_byte),
		cmocka_unit_test(test_a_stall_in_the_middle),
		cmocka_unit_test(test_the_first_request),
		cmocka_unit_test(test_the_first_one_wins),
		cmocka_unit_test(test_the_first_one_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
