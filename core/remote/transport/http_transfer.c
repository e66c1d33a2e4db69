/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_transfer.c - one try of a request: its headers, the checks of the answer, and the places of
 * its bytes.
 *
 * Before a byte is stored, the answer's own headers must match the request: the status, the range
 * and the size in Content-Range, the length, the tag.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/remote/transport/http_impl.h"

#define RETRY_AFTER_MAX 60

int http_header(struct http_headers *h, const char *line)
{
	struct curl_slist *more = curl_slist_append(h->list, line);

	if (!more)
		return fail(-ENOMEM, "cannot make a request");
	h->list = more;
	return 0;
}

/* Free the headers of the request. They may contain secrets, so they are wiped. */
static void free_headers(struct transfer *t)
{
	for (struct curl_slist *l = t->headers.list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(t->headers.list);
	t->headers.list = NULL;
}

static bool is_ranged(const struct http_request *q)
{
	return q->n_pieces > 0;
}

/* Whether a strong tag ensures that two answers have bytes of the same object. */
static bool transfer_is_pinned(const struct http_request *q)
{
	return q->tag && (q->tag_header ? q->tag[0] != '\0' : q->tag[0] == '"');
}

/* ---- the answer ---- */

static int transfer_refuse(struct transfer *t, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int transfer_refuse(struct transfer *t, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->why, sizeof(t->why), fmt, ap);
	va_end(ap);
	t->refused = code;
	return code;
}

static void begin_answer(struct transfer *t, const char *line)
{
	t->answer = (struct http_answer){ .mtime = -1 };
	t->has_range = t->has_length = t->has_expected = false;
	t->retry_after = -1;
	sscanf(line, "HTTP/%*s %d", &t->answer.status);
}

/* "bytes 0-9/100"; the size may be "*". */
static void parse_range(struct transfer *t, const char *text)
{
	unsigned long long from, to, size;
	int n = sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &size);

	if (n < 2 || to < from)
		return;
	t->has_range = true;
	t->range_from = from;
	t->range_to = to + 1;
	t->answer.has_size = n == 3;
	t->answer.size = n == 3 ? size : 0;
}

static const char *transfer_value_of(const char *line, const char *name)
{
	size_t n = strlen(name);

	if (strncasecmp(line, name, n) != 0 || line[n] != ':')
		return NULL;
	return line + n + 1 + strspn(line + n + 1, " \t");
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	auto_free char *line = span_dup_str(span_of(p, size * n));
	const char *v;

	if (!line)
		return 0;
	line[strcspn(line, "\r\n")] = '\0';
	if (t->req->expect && !strcasecmp(line, t->req->expect))
		t->has_expected = true;
	t->last_byte = clock_ns();
	if (!t->first_byte)
		t->first_byte = t->last_byte;
	if (!strncmp(line, "HTTP/", 5))
		begin_answer(t, line);
	if (t->req->header && (v = transfer_value_of(line, t->req->header))) {
		buf_clear(&t->req->value);
		if (buf_add_str(&t->req->value, v) < 0)
			return 0;
	}
	if ((v = transfer_value_of(line, "Content-Range")))
		parse_range(t, v);
	else if ((v = transfer_value_of(line, "Content-Length")))
		t->has_length = sscanf(v, "%" SCNu64, &t->length) == 1;
	else if ((v = transfer_value_of(line, t->req->tag_header ? t->req->tag_header : "ETag")) &&
		 strlen(v) < HTTP_TAG_MAX)
		strcpy(t->answer.tag, v);
	else if ((v = transfer_value_of(line, "Last-Modified")))
		t->answer.mtime = (int64_t)curl_getdate(v, NULL);
	else if ((v = transfer_value_of(line, "Date")))
		t->answer.date = MAX((int64_t)curl_getdate(v, NULL), (int64_t)0);
	else if ((v = transfer_value_of(line, "Retry-After")) &&
		 sscanf(v, "%d", &t->retry_after) != 1)
		t->retry_after = -1;
	return size * n;
}

static int transfer_check_range(struct transfer *t)
{
	const struct http_request *q = t->req;
	uint64_t from = q->off + t->at, to = q->off + q->n;

	if (q->is_first && t->answer.has_size)
		to = MIN(to, t->answer.size);
	t->want = to - q->off;
	if (t->answer.status == 200 && q->is_first &&
	    (!t->has_length || t->length > q->n || q->off != 0)) {
		t->headers_suffice = true;
		return 0;
	}
	if (t->answer.status == 200) {
		/* A server without ranges sends the whole object: it may be the range. */
		if (!t->has_length || t->length != t->want || q->off != 0)
			return transfer_refuse(
				t, -EIO,
				"the server gives the whole object (status 200) in place of the "
				"range");
		t->at = 0;
	} else if (!t->has_range) {
		return transfer_refuse(t, -EIO, "the server does not say which range it gives");
	} else if (t->range_from != from || t->range_to != to) {
		return transfer_refuse(t, -EIO,
				       "the server gives the range %" PRIu64 "-%" PRIu64
				       " in its place",
				       t->range_from, t->range_to);
	} else if (t->has_length && t->length != to - from) {
		return transfer_refuse(t, -EIO,
				       "the answer has %" PRIu64 " bytes, the range %" PRIu64,
				       t->length, to - from);
	}
	return 0;
}

static bool is_success(const struct transfer *t)
{
	const struct http_request *q = t->req;
	int status = t->answer.status;

	if (q->method &&
	    (status == 201 || status == 204 || (status && status == q->accepted_status)))
		return true;
	return status == 200 || (status == 206 && is_ranged(q));
}

static int check_answer(struct transfer *t)
{
	const struct http_request *q = t->req;

	if (t->checked)
		return t->refused;
	t->checked = true;
	if (!is_success(t))
		return 0;
	if (q->expect && !t->has_expected)
		return transfer_refuse(t, -EIO, "the answer has no header '%s'", q->expect);
	if (t->has_length && (t->answer.status == 200 || !is_ranged(q))) {
		t->answer.has_size = true;
		t->answer.size = t->length;
	}
	if (q->tag && q->tag[0] && t->answer.tag[0] && strcmp(q->tag, t->answer.tag) != 0)
		return transfer_refuse(t, -ESTALE, "it was replaced: its tag is %s, and was %s",
				       t->answer.tag, q->tag);
	if (is_ranged(q) && !q->is_first && t->answer.has_size && t->answer.size != q->size)
		return transfer_refuse(t, -ESTALE,
				       "it was replaced: it has %" PRIu64
				       " bytes, and had %" PRIu64,
				       t->answer.size, q->size);
	return is_ranged(q) ? transfer_check_range(t) : 0;
}

/* ---- bytes ---- */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	struct http_request *q = t->req;
	uint64_t at;

	n *= size;
	t->last_byte = clock_ns();
	if (check_answer(t) < 0)
		return 0;
	if (!is_success(t)) {
		size_t some = MIN(n, REFUSAL_MAX - t->refusal_n);

		memcpy(t->refusal + t->refusal_n, p, some);
		t->refusal_n += some;
		return n;
	}
	if (t->headers_suffice)
		return 0;
	if (is_ranged(q)) {
		if (n > t->want - t->at) {
			transfer_refuse(t, -EIO, "the answer is longer than the range");
			return 0;
		}
		/* This try or the last one has stored all bytes before these. */
		at = q->off + t->at;
		for (size_t i = 0; i < q->n_pieces; i++) {
			const struct http_piece *piece = &q->piece[i];
			uint64_t from = MAX(at, piece->off);
			uint64_t to = MIN(at + n, piece->off + piece->n);

			if (from < to)
				memcpy((uint8_t *)piece->p + (from - piece->off), p + (from - at),
				       (size_t)(to - from));
		}
		t->at += n;
		q->received = MAX(q->received, t->at);
		return n;
	}
	if (n > q->limit - MIN(q->body.n, q->limit)) {
		transfer_refuse(t, -EFBIG, "it has more than %zu bytes", q->limit);
		return 0;
	}
	return buf_add(&q->body, p, n) < 0 ? 0 : n;
}

/* ---- begin ---- */

/* libcurl's own would be open in every program that this process starts. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
	return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

static int add_headers(struct transfer *t)
{
	struct http_request *q = t->req;
	bool is_pinned = transfer_is_pinned(q) && !q->tag_header;
	auto_free char *pin = is_pinned ? str_fmt("If-Match: %s", q->tag) : NULL;
	int r = pin ? http_header(&t->headers, pin) : 0;

	if (is_pinned && !pin)
		return fail(-ENOMEM, "cannot make a request");
	if (r < 0)
		return r;
	/* Without "Expect: 100-continue": libcurl would wait for servers that do not know it. */
	r = q->method ? http_header(&t->headers, "Expect:") : 0;
	if (r < 0)
		return r;
	r = http_header(&t->headers, "Accept-Encoding: identity");
	if (r < 0 || !q->authorize || transfer_is_elsewhere(q))
		return r;
	return q->authorize(q->arg, q, &t->headers);
}

int transfer_begin(struct transfer *t, struct http_request *q, int64_t left_ns)
{
	char range[64];
	CURL *c = t->easy;
	int r;

	t->req = q;
	t->error[0] = t->why[0] = '\0';
	t->refused = 0;
	t->refusal_n = 0;
	t->checked = t->headers_suffice = false;
	t->want = q->n;
	t->last_byte = clock_ns();
	t->first_byte = 0;
	begin_answer(t, "");
	free_headers(t);
	/* Without a strong tag the rest may belong to another object, so begin again. */
	t->at = q->received = transfer_is_pinned(q) ? q->received : 0;
	buf_clear(&q->body);
	buf_clear(&q->value);
	q->has_expired = false;
	r = add_headers(t);
	if (r < 0)
		return r;
	if (is_ranged(q))
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, q->off + t->at,
			 q->off + q->n - 1);
	curl_easy_setopt(c, CURLOPT_RANGE, is_ranged(q) ? range : NULL);
	curl_easy_setopt(c, CURLOPT_URL, q->run.moved ? q->run.moved : q->url);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers.list);
	curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, (long)q->is_fresh);
	/* A signature covers the path, so libcurl must not normalize it. */
	curl_easy_setopt(c, CURLOPT_PATH_AS_IS, q->authorize && !q->follow ? 1L : 0L);
	curl_easy_setopt(c, CURLOPT_NETRC,
			 (long)(t->opts->netrc_file && !transfer_is_elsewhere(q) ?
					CURL_NETRC_OPTIONAL :
					CURL_NETRC_IGNORED));
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
	curl_easy_setopt(c, CURLOPT_NOBODY, q->is_head ? 1L : 0L);
	if (q->method) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->send.n);
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->send.n ? (const char *)q->send.p : "");
	} else if (!q->is_head) {
		curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	}
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)MAX(left_ns / 1000000, 1));
	return 0;
}

int transfer_new(const struct http_opts *opts, struct transfer **ret)
{
	struct transfer *t = calloc(1, sizeof(*t));
	CURL *c = t ? curl_easy_init() : NULL;

	if (!c) {
		free(t);
		return fail(-ENOMEM, "cannot make a request");
	}
	t->opts = opts;
	t->easy = c;
	curl_easy_setopt(c, CURLOPT_PRIVATE, t);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_USERAGENT, "pytreefs/" PYTREEFS_VERSION);
	/* Buckets give more bandwidth over many connections than over many streams of one. */
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L * 1024);
	curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)opts->progress_ms);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)MAX(opts->progress_ms / 1000, 1u));
	if (opts->no_proxy)
		curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	if (opts->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, opts->ca_file);
	if (opts->netrc_file)
		curl_easy_setopt(c, CURLOPT_NETRC_FILE, opts->netrc_file);
	*ret = t;
	return 0;
}

void transfer_free(struct transfer *t)
{
	if (!t)
		return;
	curl_easy_cleanup(t->easy);
	free_headers(t);
	free(t);
}

/* ---- end ---- */

const char *http_refusal_header(const struct http_refusal *refusal, const char *name)
{
	struct curl_header *h;

	return curl_easy_header(refusal->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ?
		       h->value :
		       NULL;
}

int64_t http_refusal_time(const struct http_refusal *refusal)
{
	const char *date = http_refusal_header(refusal, "Date");

	return date ? (int64_t)curl_getdate(date, NULL) : -1;
}

static int of_status(int status)
{
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 412:
		return -ESTALE;
	case 416:
		return -EUCLEAN;
	default:
		return -EIO;
	}
}

static enum try_end failed_status(struct transfer *t, int64_t *ret_after_ms)
{
	const struct http_refusal refusal = { t->answer.status, span_of(t->refusal, t->refusal_n),
					      t->easy };
	struct http_request *q = t->req;
	bool again;

	q->result = q->method && t->answer.status == 412 ? -EEXIST : of_status(t->answer.status);
	if (q->result == -EEXIST)
		snprintf(q->why, sizeof(q->why), "it is there already");
	else if (t->answer.status == 412)
		snprintf(q->why, sizeof(q->why), "it was replaced: its tag is not %s any more",
			 q->tag ? q->tag : "the one it was");
	else if (t->answer.status == 416)
		snprintf(q->why, sizeof(q->why), "it ends before the range (status 416)");
	else if (t->answer.status / 100 == 3)
		snprintf(q->why, sizeof(q->why), "status %d: it is elsewhere", t->answer.status);
	else
		snprintf(q->why, sizeof(q->why), "status %d", t->answer.status);
	again = t->answer.status == 408 || t->answer.status == 429 || t->answer.status == 500 ||
		t->answer.status == 502 || t->answer.status == 503 || t->answer.status == 504;
	/* The answer may be that of a gateway, while its server carries the request out. */
	q->may_arrive |= q->method && (again || t->answer.status >= 500);
	if (q->explain)
		again |= q->explain(q->arg, &refusal, q);
	if (!again)
		return TRY_DONE;
	if (t->retry_after >= 0)
		*ret_after_ms = (int64_t)MIN(t->retry_after, RETRY_AFTER_MAX) * 1000;
	return TRY_AGAIN;
}

/* Whether another try may have another result. */
static bool is_transient_code(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_PARTIAL_FILE:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_WEIRD_SERVER_REPLY:
		return true;
	default:
		return false;
	}
}

static enum try_end succeeded(struct transfer *t)
{
	struct http_request *q = t->req;

	q->received = t->at;
	q->result = 0;
	q->why[0] = '\0';
	return TRY_DONE;
}

enum try_end transfer_end(struct transfer *t, CURLcode code, int64_t *ret_after_ms)
{
	struct http_request *q = t->req;
	const char *url = NULL;

	*ret_after_ms = -1;
	if (code == CURLE_OK || code == CURLE_WRITE_ERROR)
		check_answer(t);
	curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &url);
	t->answer.is_directory = q->follow && url && *url && url[strlen(url) - 1] == '/';
	q->answer = t->answer;
	free_headers(t);
	if (t->refused) {
		q->result = t->refused;
		snprintf(q->why, sizeof(q->why), "%s", t->why);
		return TRY_DONE;
	}
	if (t->headers_suffice)
		return succeeded(t);
	if (code != CURLE_OK) {
		long sent = 0;

		curl_easy_getinfo(t->easy, CURLINFO_REQUEST_SIZE, &sent);
		q->may_arrive |= q->method && sent > 0;
		q->result = code == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EIO;
		snprintf(q->why, sizeof(q->why), "%s",
			 t->error[0] ? t->error : curl_easy_strerror(code));
		return is_transient_code(code) ? TRY_AGAIN : TRY_DONE;
	}
	if (!is_success(t) && q->follow && t->answer.status / 100 == 3)
		return transfer_follow(t);
	if (!is_success(t))
		return failed_status(t, ret_after_ms);
	if (is_ranged(q) && t->at != t->want) {
		q->result = -EIO;
		snprintf(q->why, sizeof(q->why),
			 "the answer ends after %" PRIu64 " of %" PRIu64 " bytes", t->at, t->want);
		return TRY_AGAIN;
	}
	return succeeded(t);
}
