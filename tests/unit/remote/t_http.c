/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_http.c - the client against a server that answers each connection with the next line of a
 * script: right and wrong ranges, transient failures, and objects that change.
 */
#include "core/remote/transport/http.h"
#include "tests/unit/lib/scripted_server.h"
#include "tests/unit/lib/unit.h"

#define SIZE 100

/* Bytes 10 to 19 of an object of 100 bytes, read into two buffers; byte 14, between them, is
 * dropped. */
struct reading {
	uint8_t low[4], high[5];
	struct http_piece piece[2];
	struct http_request req;
};

static int read_pinned(struct server *s, const char *tag, const char *tag_header,
		       struct reading *ret)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http *h;
	int r;

	opts.first_pause_ms = 1;
	opts.tries = 3;
	*ret = (struct reading){ 0 };
	ret->piece[0] = (struct http_piece){ ret->low, 10, 4 };
	ret->piece[1] = (struct http_piece){ ret->high, 15, 5 };
	ret->req = (struct http_request){ .url = s->url,
					  .name = "object",
					  .piece = ret->piece,
					  .n_pieces = 2,
					  .off = 10,
					  .n = 10,
					  .tag = tag,
					  .tag_header = tag_header,
					  .size = SIZE };
	server_start(s);
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &ret->req), 0);
	r = http_wait(h, &ret->req);
	http_free(h);
	server_stop(s);
	return r;
}

static int read_range(struct server *s, struct reading *ret)
{
	return read_pinned(s, "\"a\"", NULL, ret);
}

#define RANGE_HEAD \
	"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/100\r\nETag: \"a\"\r\n"
#define GOOD RANGE_HEAD "Content-Length: 10\r\n\r\n0123456789"
#define BUSY "HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"

static void check_bytes(const struct reading *g)
{
	assert_memory_equal(g->low, "0123", 4);
	assert_memory_equal(g->high, "56789", 5);
}

static void check_untouched(const struct reading *g)
{
	static const uint8_t zero[5];

	assert_memory_equal(g->low, zero, 4);
	assert_memory_equal(g->high, zero, 5);
}

static void test_range(void **state)
{
	struct server s = { .answer = { GOOD } };
	struct reading g;

	assert_int_equal(read_range(&s, &g), 0);
	check_bytes(&g);
	assert_non_null(strstr(s.request[0], "Range: bytes=10-19\r\n"));
	assert_non_null(strstr(s.request[0], "If-Match: \"a\"\r\n"));
	assert_int_equal(g.req.tries, 1);
}

static void test_failures_that_pass(void **state)
{
	struct server s = { .answer = { BUSY, "", GOOD } };
	struct reading g;

	assert_int_equal(read_range(&s, &g), 0);
	check_bytes(&g);
	assert_int_equal(g.req.tries, 3);
}

static void test_too_many_failures(void **state)
{
	struct server s = { .answer = { BUSY, BUSY, BUSY, GOOD } };
	struct reading g;

	assert_int_equal(read_range(&s, &g), -EIO);
	assert_string_equal(
		err_text(-EIO),
		"cannot read 'object' at offset 10, 10 bytes: status 503, after 3 tries");
	check_untouched(&g);
	assert_int_equal(s.asked, 3);
}

/* The second try asks for the bytes that the first connection did not deliver. */
static void test_truncated(void **state)
{
	struct server s = {
		.answer = { RANGE_HEAD "Content-Length: 10\r\n\r\n012345",
			    "HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\n"
			    "Content-Range: bytes 16-19/100\r\nContent-Length: 4\r\n\r\n6789" }
	};
	struct reading g;

	assert_int_equal(read_range(&s, &g), 0);
	check_bytes(&g);
	assert_non_null(strstr(s.request[1], "Range: bytes=16-19\r\n"));
}

/* The same when another header than ETag has the tag: the request resumes without If-Match. */
static void test_tag_of_another_header(void **state)
{
	struct server s = {
		.answer = { "HTTP/1.1 206 P\r\nX-Goog-Generation: 7\r\nETag: C7\r\n"
			    "Content-Range: bytes 10-19/100\r\nContent-Length: 10\r\n\r\n012345",
			    "HTTP/1.1 206 P\r\nX-Goog-Generation: 7\r\nETag: C7\r\n"
			    "Content-Range: bytes 16-19/100\r\nContent-Length: 4\r\n\r\n6789" }
	};
	struct server other = { .answer = { "HTTP/1.1 206 P\r\nX-Goog-Generation: 8\r\n"
					    "Content-Range: bytes 10-19/100\r\n"
					    "Content-Length: 10\r\n\r\n0123456789" } };
	struct reading g;

	assert_int_equal(read_pinned(&s, "7", "x-goog-generation", &g), 0);
	check_bytes(&g);
	assert_non_null(strstr(s.request[1], "Range: bytes=16-19\r\n"));
	assert_null(strstr(s.request[0], "If-Match"));
	assert_int_equal(read_pinned(&other, "7", "x-goog-generation", &g), -ESTALE);
	assert_non_null(strstr(err_text(-ESTALE), "its tag is 8, and was 7"));
	check_untouched(&g);
}

static void refused(const char *answer, int code, const char *why)
{
	struct server s = { .answer = { answer } };
	struct reading g;

	assert_int_equal(read_range(&s, &g), code);
	assert_non_null(strstr(err_text(code), "'object' at offset 10, 10 bytes: "));
	if (!strstr(err_text(code), why))
		fail_msg("'%s' is not in '%s'", why, err_text(code));
	check_untouched(&g);
	assert_int_equal(s.asked, 1);
}

static void test_wrong_answers(void **state)
{
	refused("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789", -EIO, "status 200");
	refused("HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/100\r\nContent-Length: 10\r\n\r\n0123456789",
		-EIO, "the range 0-10 in its place");
	refused("HTTP/1.1 206 P\r\nContent-Length: 10\r\n\r\n0123456789", -EIO, "does not say");
	refused("HTTP/1.1 206 P\r\nContent-Range: bytes 10-19/100\r\nContent-Length: 11\r\n\r\n0123456789x",
		-EIO, "has 11 bytes");
	refused("HTTP/1.1 416 R\r\nContent-Length: 0\r\n\r\n", -EUCLEAN, "ends before");
	refused("HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		-EIO, "elsewhere");
}

/* An answer without Content-Length has one byte more than the range. */
static void test_longer(void **state)
{
	struct server s = { .answer = { RANGE_HEAD "\r\n0123456789x" } };
	struct reading g;

	assert_int_equal(read_range(&s, &g), -EIO);
	assert_non_null(strstr(err_text(-EIO), "longer than the range"));
}

static void test_replaced(void **state)
{
	refused("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n", -ESTALE,
		"was replaced");
	refused("HTTP/1.1 206 P\r\nETag: \"b\"\r\nContent-Range: bytes 10-19/100\r\n"
		"Content-Length: 10\r\n\r\n0123456789",
		-ESTALE, "its tag is \"b\", and was \"a\"");
	refused("HTTP/1.1 206 P\r\nETag: \"a\"\r\nContent-Range: bytes 10-19/99\r\n"
		"Content-Length: 10\r\n\r\n0123456789",
		-ESTALE, "it has 99 bytes, and had 100");
}

static void test_absent_and_forbidden(void **state)
{
	refused("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", -ENOENT, "status 404");
	refused("HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno", -EACCES, "status 403");
}

static bool explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	const char *where = http_refusal_header(refusal, "X-Region");

	snprintf(req->why, sizeof(req->why), "%d '%.*s' at %s", refusal->status,
		 SPAN_ARG(refusal->document), where ? where : "?");
	req->result = -EPERM;
	return refusal->status == 400;
}

/* The caller's explain() sets the result of a refusal, and allows another try or not. */
static void test_explained(void **state)
{
	struct server s = {
		.answer = { "HTTP/1.1 400 B\r\nContent-Length: 3\r\n\r\nold",
			    "HTTP/1.1 403 F\r\nx-region: there\r\nContent-Length: 2\r\n\r\nno" }
	};
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .name = "x",
				  .limit = 5,
				  .method = "PUT",
				  .send = { (const uint8_t *)"abc", 3 },
				  .explain = explain };
	struct http *h;

	opts.first_pause_ms = 1;
	server_start(&s);
	q.url = s.url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), -EPERM);
	assert_string_equal(err_text(-EPERM), "cannot read 'x': 403 'no' at there");
	assert_memory_equal(s.request[1], "PUT /object ", 12);
	assert_non_null(strstr(s.request[1], "Content-Length: 3\r\n"));
	buf_release(&q.body);
	http_free(h);
	server_stop(&s);
}

static int add_secret(void *arg, const struct http_request *req, struct http_headers *ret)
{
	int r = http_header(ret, "Authorization: secret");

	return r < 0 ? r : http_header(ret, "X-Token: secret");
}

static void test_document(void **state)
{
	struct server s = {
		.answer = { "HTTP/1.1 301 M\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
			    "HTTP/1.1 200 OK\r\nETag: W/\"x\"\r\nLast-Modified: Thu, 01 Jan 1970 "
			    "00:00:07 GMT\r\nContent-Length: 5\r\n\r\nhello" }
	};
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .limit = 5, .follow = true, .authorize = add_secret };
	struct http *h;

	server_start(&s);
	q.url = s.url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), 0);
	assert_int_equal(q.body.n, 5);
	assert_memory_equal(q.body.p, "hello", 5);
	assert_string_equal(q.answer.tag, "W/\"x\"");
	assert_int_equal(q.answer.mtime, 7);
	assert_int_equal(q.answer.size, 5);
	assert_non_null(strstr(s.request[0], "Authorization: secret\r\n"));
	buf_release(&q.body);
	http_free(h);
	server_stop(&s);
}

/* Run one request that has a method; returns its result. */
static int send_once(struct server *s, struct http_request *q)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http *h;
	int r;

	opts.first_pause_ms = 1;
	server_start(s);
	q->url = s->url;
	q->name = "bucket/object";
	q->verb = "write";
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, q), 0);
	r = http_wait(h, q);
	http_free(h);
	server_stop(s);
	return r;
}

static void test_put(void **state)
{
	struct server s = {
		.answer = { BUSY, "HTTP/1.1 204 N\r\nETag: \"a\"\r\nLocation: /there\r\n\r\n" }
	};
	struct http_request q = { .method = "PUT",
				  .send = span_str("12345"),
				  .header = "Location" };

	assert_int_equal(send_once(&s, &q), 0);
	assert_int_equal(s.asked, 2);
	for (int i = 0; i < 2; i++) {
		assert_non_null(strstr(s.request[i], "PUT /object "));
		assert_non_null(strstr(s.request[i], "\r\n\r\n12345"));
		assert_null(strstr(s.request[i], "Expect:"));
	}
	assert_string_equal(buf_str(&q.value), "/there");
	assert_string_equal(q.answer.tag, "\"a\"");
	buf_release(&q.value);
}

static void test_put_once(void **state)
{
	struct server s = { .answer = { BUSY, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" } };
	struct http_request q = { .method = "PUT",
				  .send = span_str("12345"),
				  .is_single_try = true };

	assert_int_equal(send_once(&s, &q), -EIO);
	assert_int_equal(s.asked, 1);
	assert_true(q.is_transient);
	assert_string_equal(err_text(-EIO), "cannot write 'bucket/object': status 503");
}

static void test_put_refused(void **state)
{
	struct server there = { .answer = { "HTTP/1.1 412 P\r\nContent-Length: 0\r\n\r\n" } };
	struct server more = {
		.answer = { "HTTP/1.1 308 R\r\nRange: bytes=0-9\r\nContent-Length: 0\r\n\r\n" }
	};
	struct server other = { .answer = { "HTTP/1.1 308 R\r\nContent-Length: 0\r\n\r\n" } };
	struct http_request q = { .method = "PUT", .header = "Range", .accepted_status = 308 };

	assert_int_equal(send_once(&there, &q), -EEXIST);
	assert_string_equal(err_text(-EEXIST), "cannot write 'bucket/object': it is there already");
	assert_int_equal(send_once(&more, &q), 0);
	assert_int_equal(q.answer.status, 308);
	assert_string_equal(buf_str(&q.value), "bytes=0-9");
	q.accepted_status = 0;
	assert_int_equal(send_once(&other, &q), -EIO);
	buf_release(&q.value);
}

static void test_document_too_large(void **state)
{
	struct server s = { .answer = { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!" } };
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .limit = 5 };
	struct http *h;

	server_start(&s);
	q.url = s.url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), -EFBIG);
	buf_release(&q.body);
	http_free(h);
	server_stop(&s);
}

/* An answer without the expected header, as of another server, is refused. */
static void test_expected_header(void **state)
{
	struct server s = {
		.answer = { "HTTP/1.1 200 OK\r\nx-kind: That\r\nContent-Length: 2\r\n\r\nok",
			    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" }
	};
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .limit = 5, .expect = "X-Kind: That" };
	struct http *h;

	server_start(&s);
	q.url = s.url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), 0);
	assert_int_equal(q.body.n, 2);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), -EIO);
	assert_non_null(strstr(err_text(-EIO), "the answer has no header 'X-Kind: That'"));
	assert_int_equal(q.body.n, 0);
	buf_release(&q.body);
	http_free(h);
	server_stop(&s);
}

/* A redirect to another port counts as another host, which gets none of the caller's headers. */
static void test_redirect_without_credentials(void **state)
{
	struct server there = { .answer = { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" } },
		      here = { 0 };
	struct http_opts opts = HTTP_OPTS_DEFAULT;
	struct http_request q = { .limit = 5, .follow = true, .authorize = add_secret };
	char answer[256];
	struct http *h;

	server_start(&there);
	snprintf(answer, sizeof(answer),
		 "HTTP/1.1 302 F\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", there.url);
	here.answer[0] = answer;
	server_start(&here);
	q.url = here.url;
	assert_int_equal(http_new(&opts, &h), 0);
	assert_int_equal(http_submit(h, &q), 0);
	assert_int_equal(http_wait(h, &q), 0);
	assert_non_null(strstr(here.request[0], "secret"));
	assert_null(strstr(there.request[0], "secret"));
	buf_release(&q.body);
	/* http_free() accepts a client that was quiesced already. */
	http_quiesce(h);
	http_free(h);
	server_stop(&here);
	server_stop(&there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_failures_that_pass),
		cmocka_unit_test(test_too_many_failures),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_tag_of_another_header),
		cmocka_unit_test(test_wrong_answers),
		cmocka_unit_test(test_longer),
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_absent_and_forbidden),
		cmocka_unit_test(test_explained),
		cmocka_unit_test(test_document),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_put_once),
		cmocka_unit_test(test_put_refused),
		cmocka_unit_test(test_document_too_large),
		cmocka_unit_test(test_expected_header),
		cmocka_unit_test(test_redirect_without_credentials),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
