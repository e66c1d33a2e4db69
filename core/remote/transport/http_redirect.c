/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_redirect.c - redirects.
 *
 * libcurl would send the caller's headers to whatever server a redirect leads to, so each redirect
 * is followed by a transfer of its own, which has no secret when it leaves the origin of the
 * request.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/remote/transport/http_impl.h"

#define REDIRECTS 5

/* A part of a URL, or NULL. The caller frees it by curl_free(). */
static char *part_of(const char *url, CURLUPart part)
{
	CURLU *u = curl_url();
	char *text = NULL;

	if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK)
		curl_url_get(u, part, &text, CURLU_DEFAULT_PORT);
	curl_url_cleanup(u);
	return text;
}

bool transfer_is_elsewhere(const struct http_request *q)
{
	static const CURLUPart origin[] = { CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT };
	bool is_same = true;

	for (size_t i = 0; q->run.moved && i < ARRAY_LEN(origin); i++) {
		char *a = part_of(q->url, origin[i]), *b = part_of(q->run.moved, origin[i]);

		is_same &= a && b && !strcasecmp(a, b);
		curl_free(a);
		curl_free(b);
	}
	return !is_same;
}

enum try_end transfer_follow(struct transfer *t)
{
	struct http_request *q = t->req;
	const char *from = q->run.moved ? q->run.moved : q->url, *to = NULL;
	char *moved;

	q->result = -EIO;
	curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to || q->run.hops >= REDIRECTS) {
		snprintf(q->why, sizeof(q->why), "status %d: %s", t->answer.status,
			 to ? "too many redirects" : "it is elsewhere");
		return TRY_DONE;
	}
	if (strncasecmp(to, "https:", 6) &&
	    (strncasecmp(to, "http:", 5) || !strncmp(from, "https:", 6))) {
		snprintf(q->why, sizeof(q->why), "a redirect leads from %.*s to %.*s",
			 (int)strcspn(from, ":"), from, (int)strcspn(to, ":"), to);
		return TRY_DONE;
	}
	moved = strdup(to);
	if (!moved) {
		http_refuse(q, fail(-ENOMEM, "cannot follow a redirect"));
		return TRY_DONE;
	}
	free(q->run.moved);
	q->run.moved = moved;
	q->run.hops++;
	return TRY_MOVED;
}
