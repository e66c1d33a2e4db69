/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_none.c - replaces http.c and http_transfer.c where all calls fail: in a build without
 * libcurl, and in the ordinary program, which leaves URLs to another one (tools/cli/url_program.h).
 */
#include "core/base/err.h"
#include "core/remote/transport/http.h"

static int http_none_missing(void)
{
#ifdef URL_PROGRAM
	return fail(-EOPNOTSUPP, "URLs cannot be read without the program '" URL_PROGRAM
				 "', which must be beside this one");
#else
	return fail(-EOPNOTSUPP, "URLs cannot be read: this pytreefs was built without libcurl "
				 "(libcurl4-openssl-dev)");
#endif
}

int http_new(const struct http_opts *opts, struct http **ret)
{
	return http_none_missing();
}

void http_free(struct http *h)
{
}

unsigned http_connections(const struct http *h)
{
	return 0;
}

int http_submit(struct http *h, struct http_request *req)
{
	return http_none_missing();
}

int http_wait(struct http *h, struct http_request *req)
{
	return http_none_missing();
}

int http_header(struct http_headers *h, const char *line)
{
	return http_none_missing();
}

const char *http_refusal_header(const struct http_refusal *refusal, const char *name)
{
	return NULL;
}

int64_t http_refusal_time(const struct http_refusal *refusal)
{
	return -1;
}

void http_quiesce(struct http *h)
{
}

void http_stats(struct http *h, struct http_stats *ret)
{
	*ret = (struct http_stats){ 0 };
}
