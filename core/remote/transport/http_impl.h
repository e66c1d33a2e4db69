/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_impl.h - one try of a request: the interface between http.c, which schedules tries, and
 * http_transfer.c, which makes them.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_IMPL_H
#define PYTREEFS_CORE_HTTP_HTTP_IMPL_H

#include <curl/curl.h>

#include "core/remote/transport/http.h"

#define REFUSAL_MAX 4096 /* so much is kept of the document that comes with a failure */

struct http_headers {
	struct curl_slist *list;
};

/* Used by the client's thread alone. */
struct transfer {
	const struct http_opts *opts;
	CURL *easy;
	struct http_headers headers;
	struct http_request *req;      /* NULL: idle */
	struct transfer *next;         /* in the list of idle or of busy ones */
	int64_t first_byte, last_byte; /* times; without a byte 0, and when the try began */
	char error[CURL_ERROR_SIZE];
	/* The answer, as far as it has been received. */
	struct http_answer answer;
	bool has_range, has_length, has_expected, checked;
	uint64_t range_from, range_to, length;
	uint64_t at, want;    /* in the range: where its next byte goes; where this answer ends */
	bool headers_suffice; /* the headers suffice, and the body is not read */
	int retry_after;      /* seconds; -1: the answer has no such header */
	int refused;          /* the error code of an unacceptable answer; 0: it is acceptable */
	char why[HTTP_WHY_MAX / 2];
	char refusal[REFUSAL_MAX];
	size_t refusal_n;
};

/* The outcome of a try: the result of the request is final, another try may change it, or it goes
 * on where a redirect leads. */
enum try_end { TRY_DONE, TRY_AGAIN, TRY_MOVED };

int transfer_new(const struct http_opts *opts, struct transfer **ret);
void transfer_free(struct transfer *t);
/* Prepare the easy handle for a multi handle. An error becomes the result of the request. */
int transfer_begin(struct transfer *t, struct http_request *req, int64_t left_ns);
/*
 * Set the result of the request after a try has ended. TRY_AGAIN: another try is allowed, after
 * *ret_after_ms if the server gave a time (else -1).
 */
enum try_end transfer_end(struct transfer *t, CURLcode code, int64_t *ret_after_ms);
/* Whether a redirect of the request led to another server (http_redirect.c). */
bool transfer_is_elsewhere(const struct http_request *req);
/* Let the request go on where the answer, a redirect, leads. TRY_DONE: it must not, and why says
 * the reason. */
enum try_end transfer_follow(struct transfer *t);

#endif
