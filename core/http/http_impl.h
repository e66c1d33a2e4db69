/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_impl.h - one try of a request, between http.c (which, and when) and http_transfer.c (how).
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_IMPL_H
#define PYTREEFS_CORE_HTTP_HTTP_IMPL_H

#include <curl/curl.h>

#include "core/http/http.h"

#define REFUSAL_MAX 4096 /* of the document that comes with a failure */

struct http_headers {
	struct curl_slist *list;
};

/* The client's thread alone uses one. */
struct transfer {
	const struct http_opts *opts;
	CURL *easy;
	struct http_headers headers;
	struct http_request *req;             /* NULL: idle */
	struct transfer *next;                /* of the idle ones, or of those under way */
	bool is_hedge;                        /* beside another one of its request */
	int64_t began, first_byte, last_byte; /* times; of no byte: 0, and when it began */
	char error[CURL_ERROR_SIZE];
	/* The answer, as far as it has come. */
	struct http_answer answer;
	bool has_range, has_length, has_expected, checked;
	uint64_t range_from, range_to, length;
	uint64_t from, at;  /* of the range: where it began; where its next byte goes */
	uint64_t want;      /* of the range: how much this answer completes */
	bool is_superseded; /* the request takes the bytes of another transfer */
	bool is_enough;     /* the answer says what was asked, and its bytes are not wanted */
	int retry_after;    /* seconds; -1: it did not say */
	int refused;        /* what is wrong with the answer; 0: nothing */
	char why[HTTP_WHY_MAX / 2];
	char refusal[REFUSAL_MAX];
	size_t refusal_n;
};

/* What came of a try. */
enum try_end { TRY_DONE, TRY_AGAIN };

int transfer_new(const struct http_opts *opts, struct transfer **ret);
void transfer_free(struct transfer *t);
/* Whether two transfers may store its bytes at the same places: they are of one object. */
bool transfer_is_pinned(const struct http_request *q);
/* Make it ready to be added to a multi handle. A failure is the request's. */
int transfer_begin(struct transfer *t, struct http_request *req, int64_t left_ns);
/*
 * Set the result of the request of a try that has ended. TRY_AGAIN: it may be tried again, not
 * before *ret_after_ms when the server said so (else -1).
 */
enum try_end transfer_end(struct transfer *t, CURLcode code, int64_t *ret_after_ms);

#endif
