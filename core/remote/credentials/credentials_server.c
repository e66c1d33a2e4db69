/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials_server.c - one request to a server that issues credentials.
 */
#include "core/remote/credentials/credentials_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"

#define ANSWER_BYTES (256 << 10)
#define REQUEST_MS 15000
#define CODE_MAX 64
#define SKEW_MAX 300 /* seconds; tokens and signatures are valid a little before and after */

int credentials_refused(int r, const char *what)
{
	struct err_note why;

	if (r >= 0 || r == -ENOMEM)
		return r;
	err_save(r, &why);
	why.code = -EACCES;
	err_restore(&why);
	return err_at(-EACCES, "%s", what);
}

static int add_header(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct credentials_question *q = arg;

	return q->header ? http_header(ret, q->header) : 0;
}

static bool credentials_server_explain(void *arg, const struct http_refusal *refusal,
				       struct http_request *req)
{
	const struct credentials_question *q = arg;
	int64_t there = http_refusal_time(refusal), here = time(NULL);
	char word[CODE_MAX] = "";
	size_t n;

	if (q->code)
		q->code(refusal->document, word, sizeof(word));
	if (*word)
		snprintf(req->why, sizeof(req->why), "status %d (%s)", refusal->status, word);
	/* A clock that is wrong is refused with the same code as a key that is not known. */
	n = strlen(req->why);
	if (there >= 0 && (here > there + SKEW_MAX || there > here + SKEW_MAX))
		snprintf(req->why + n, sizeof(req->why) - n,
			 ": the clock of this machine is %" PRId64 " seconds %s the server's",
			 here > there ? here - there : there - here,
			 here > there ? "ahead of" : "behind");
	return false;
}

int credentials_ask(struct http *h, struct credentials_question *q, struct buf *ret)
{
	struct http_request req = { .url = q->url,
				    .name = q->name,
				    .method = q->method,
				    .send = q->send,
				    .limit = ANSWER_BYTES,
				    .authorize = add_header,
				    .explain = credentials_server_explain,
				    .expect = q->expect,
				    .arg = q };
	int r = http_submit(h, &req);

	if (r >= 0)
		r = http_wait(h, &req);
	if (r >= 0)
		r = buf_add_span(ret, buf_span(&req.body));
	secret_release(&req.body);
	return credentials_refused(r, "no credentials");
}

int credentials_client(unsigned progress_ms, bool near, struct http **ret)
{
	struct http_opts opts = HTTP_OPTS_DEFAULT;

	opts.connections = 1;
	opts.progress_ms = progress_ms;
	opts.request_ms = REQUEST_MS;
	opts.tries = 2;
	opts.no_proxy = near;
	opts.ca_file = getenv("SSL_CERT_FILE");
	return http_new(&opts, ret);
}

/* The value may have spaces inside: a scheme and a token. */
char *credentials_header(const char *name, struct span value)
{
	while (value.n && strchr("\r\n \t", value.p[value.n - 1]))
		value.n--;
	for (size_t i = 0; i < value.n; i++)
		if (value.p[i] < ' ' || value.p[i] >= 0x7f)
			return NULL;
	return value.n && value.n <= SECRET_MAX ? str_fmt("%s: %.*s", name, SPAN_ARG(value)) : NULL;
}

int credentials_form(const struct form_field *field, size_t n, struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = buf_addf(ret, "%s%s=", i ? "&" : "", field[i].name);
		for (size_t k = 0; k < field[i].value.n && r >= 0; k++)
			r = buf_addf(ret, "%%%02X", field[i].value.p[k]);
	}
	return r;
}

bool credentials_may_go_to(const char *url, const char *const *host, size_t n_hosts)
{
	static const char *const here[] = { "localhost", "127.0.0.1", "[::1]" };
	size_t n;

	if (!strncmp(url, "https://", 8))
		return true;
	if (strncmp(url, "http://", 7) != 0)
		return false;
	url += 7;
	n = url[0] == '[' ? strcspn(url, "]") + 1 : strcspn(url, ":/");
	for (size_t i = 0; i < ARRAY_LEN(here) + n_hosts; i++) {
		const char *one = i < ARRAY_LEN(here) ? here[i] : host[i - ARRAY_LEN(here)];

		if (n == strlen(one) && !strncmp(url, one, n))
			return true;
	}
	return false;
}
