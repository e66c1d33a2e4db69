/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_http_first.c - first ranges of objects whose size and tag are not known yet.
 */
#include "core/remote/transport/http.h"
#include "tests/unit/lib/scripted_server.h"
#include "tests/unit/lib/unit.h"

struct reading {
	uint8_t low[4];
	struct http_piece piece[1];
	struct http_request req;
};

/* Read four bytes at off of an object whose size and tag are not known. */
static int read_first(const char *answer, uint64_t off, struct reading *ret)
{
	struct server s = { .answer = { answer } };
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http *h;
	int r;

	opts.tries = 1;
	*ret = (struct reading){ 0 };
	ret->piece[0] = (struct http_piece){ ret->low, off, 4 };
	ret->req = (struct http_request){ .url = s.url,
					  .piece = ret->piece,
					  .n_pieces = 1,
					  .off = off,
					  .n = 4,
					  .is_first = true };
	server_start(&s);
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &ret->req), 0);
	r = http_wait(h, &ret->req);
	http_free(h);
	server_stop(&s);
	assert_null(strstr(s.request[0], "If-Match"));
	return r;
}

#define PART "HTTP/1.1 206 P\r\nETag: \"a\"\r\nContent-Range: bytes "

static void test_first_range(void **state)
{
	struct reading g;

	assert_int_equal(read_first(PART "6-9/100\r\nContent-Length: 4\r\n\r\n6789", 6, &g), 0);
	assert_memory_equal(g.low, "6789", 4);
	assert_true(g.req.received == 4 && g.req.answer.has_size && g.req.answer.size == 100);
	assert_string_equal(g.req.answer.tag, "\"a\"");
	/* The object ends inside the range; a server without ranges sends all of it. */
	assert_int_equal(read_first(PART "8-9/10\r\nContent-Length: 2\r\n\r\n89", 8, &g), 0);
	assert_memory_equal(g.low, "89\0\0", 4);
	assert_true(g.req.received == 2 && g.req.answer.size == 10);
	assert_int_equal(read_first("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n012", 0, &g), 0);
	assert_true(g.req.received == 3 && g.req.answer.size == 3);
	/* A longer whole object is not received: the headers give its tag and size. */
	assert_int_equal(
		read_first("HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 50\r\n\r\n01234", 0,
			   &g),
		0);
	assert_true(g.req.received == 0 && g.req.answer.size == 50);
	assert_int_equal(read_first("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n01234", 6, &g),
			 0);
	assert_true(g.req.received == 0 && g.req.answer.size == 50);
}

static void test_wrong_first_ranges(void **state)
{
	static const struct {
		const char *answer;
		int code;
	} wrong[] = {
		{ PART "6-8/100\r\nContent-Length: 3\r\n\r\n678", -EIO },
		{ PART "5-8/100\r\nContent-Length: 4\r\n\r\n5678", -EIO },
		{ PART "6-9/2\r\nContent-Length: 4\r\n\r\n6789", -EIO },
		{ PART "6-7/8\r\nContent-Length: 3\r\n\r\n678", -EIO },
		{ PART "6-7/8\r\n\r\n678", -EIO },
		{ PART "6-9/100\r\nContent-Length: 4\r\n\r\n67", -EIO },
		{ "HTTP/1.1 416 R\r\nContent-Range: bytes */3\r\nContent-Length: 0\r\n\r\n",
		  -EUCLEAN },
	};
	struct reading g;

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(read_first(wrong[i].answer, 6, &g), wrong[i].code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_range),
		cmocka_unit_test(test_wrong_first_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
