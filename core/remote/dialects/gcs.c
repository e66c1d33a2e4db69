/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcs.c - the dialect of Google Cloud Storage: its JSON API, and the meaning of refusals.
 *
 * An object is pinned by its generation: each request for a range has it as a condition.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/bucket/bucket_place.h"
#include "core/remote/credentials/credentials_server.h"
#include "core/remote/documents/gcs_json.h"
#include "core/remote/credentials/google_credentials.h"

#define STANDARD "https://storage.googleapis.com"
#define ABOUT_BYTES (64 << 10)

/* ---- requests ---- */

static int gcs_page_url(const struct store *s, const char *prefix, const char *token, unsigned most,
			struct buf *ret)
{
	buf_addf(ret,
		 "%s/o?delimiter=%%2F&fields=nextPageToken%%2Cprefixes%%2Citems(name%%2C"
		 "size%%2Cgeneration%%2Cupdated)",
		 bucket_of(s)->url);
	if (most)
		buf_addf(ret, "&maxResults=%u", most);
	buf_add_str(ret, "&prefix=");
	path_escape_value(ret, prefix);
	if (*token) {
		buf_add_str(ret, "&pageToken=");
		path_escape_value(ret, token);
	}
	return buf_failed(ret);
}

static int gcs_url_of(const struct store *s, const char *path, const char *query, const char *tag,
		      char **ret)
{
	const struct bucket *b = bucket_of(s);
	auto_free char *key = str_fmt("%s%s%s", b->prefix, *b->prefix && *path ? "/" : "", path);
	auto_buf url = { 0 };

	if (!key || buf_addf(&url, "%s/o/", b->url) < 0 || path_escape_value(&url, key) < 0 ||
	    buf_addf(&url, "?%s%s%s", query, *tag ? "&ifGenerationMatch=" : "", tag) < 0 ||
	    !buf_str(&url))
		return fail(-ENOMEM, "cannot ask for '%s'", path);
	*ret = (char *)take(url.p);
	return 0;
}

static int object_url(const struct store *s, const char *path, const char *tag, char **ret)
{
	return gcs_url_of(s, path, "alt=media", tag, ret);
}

static int gcs_about(const struct store *s, const char *path, struct http_request *q)
{
	char *url;
	int r = gcs_url_of(s, path, "fields=name%2Csize%2Cgeneration%2Cupdated", "", &url);

	if (r < 0)
		return r;
	free((char *)(uintptr_t)q->url);
	q->url = url;
	q->limit = ABOUT_BYTES;
	return 0;
}

static int take_about(const struct http_request *q, struct io_object *ret)
{
	int r = gcs_parse_object(buf_span(&q->body), ret);

	return r < 0 ? err_at(r, "what '%s' is", q->name) : r;
}

static int gcs_authorize(const struct store *s, const struct credentials *keys,
			 const struct http_request *req, struct http_headers *ret)
{
	auto_of(secret) char *value = str_fmt("Bearer %s", keys->token);

	return value ? bucket_header(ret, "Authorization", value) :
		       fail(-ENOMEM, "cannot make a request");
}

/* ---- refusals ---- */

static bool is_listing(const struct store *s, const struct http_request *req)
{
	size_t n = strlen(bucket_of(s)->url);

	return !strncmp(req->url + n, "/o?", 3);
}

static const char *gcs_text_of(const struct store *s, const struct http_request *req, int status,
			       const char *reason)
{
	if (status == 400 && !strcmp(reason, "required"))
		return "its readers pay for requests, which cannot be done here";
	if (status == 404 && is_listing(s, req))
		return "the bucket does not exist";
	if (status != 401 && status != 403)
		return NULL;
	if (!bucket_of(s)->credentials)
		return "it may not be read without credentials";
	return status == 401 ? "the server does not take the credentials" :
	       req->verb     ? "it may not be written with these credentials" :
			       "it may not be read with these credentials";
}

static bool gcs_explain(struct store *s, const struct http_refusal *refusal,
			struct http_request *req)
{
	char reason[GCS_REASON_MAX];
	const char *text;

	gcs_parse_error(refusal->document, reason, sizeof(reason));
	if (!strcmp(reason, "rateLimitExceeded") || !strcmp(reason, "userRateLimitExceeded")) {
		snprintf(req->why, sizeof(req->why), "status %d (%s)", refusal->status, reason);
		req->result = -EIO;
		return true;
	}
	text = gcs_text_of(s, req, refusal->status, reason);
	if (req->result != -ESTALE && req->result != -EEXIST && (*reason || text))
		snprintf(req->why, sizeof(req->why), "status %d%s%s%s%s%s", refusal->status,
			 *reason ? " (" : "", reason, *reason ? ")" : "", text ? ": " : "",
			 text ? text : "");
	if (refusal->status == 404 && is_listing(s, req))
		req->result = -EIO;
	req->has_expired = refusal->status == 401 && bucket_of(s)->credentials;
	return req->has_expired && credentials_expired(bucket_of(s)->credentials);
}

/* ---- opening ---- */

static int set_url(struct bucket *b, const char *endpoint, const char *bucket)
{
	/* Google's own programs accept "HOST:PORT", so we do, too. */
	auto_free char *whole = str_fmt("%s%s", strstr(endpoint, "://") ? "" : "http://", endpoint);
	auto_free char *host = NULL;
	struct endpoint e;
	int r = whole ? endpoint_parse(whole, &e) : fail(-ENOMEM, "cannot open a bucket");

	if (r < 0)
		return r;
	host = span_dup_str(e.host);
	if (!host)
		return fail(-ENOMEM, "cannot open a bucket");
	endpoint_tidy_host(host, e.scheme.n == strlen("https://"));
	b->url = str_fmt("%.*s%s%.*s/storage/v1/b/%s", SPAN_ARG(e.scheme), host, SPAN_ARG(e.path),
			 bucket);
	return b->url ? 0 : fail(-ENOMEM, "cannot open a bucket");
}

static int open_gcs(struct store *s, const char *url)
{
	struct bucket *b = bucket_of(s);
	/* Variables that other programs use for emulators. */
	const char *emulator = env_value("STORAGE_EMULATOR_HOST");
	const char *other = env_value("TENSORSTORE_GCS_HTTP_URL");
	const char *endpoint = s->opts.endpoint ? s->opts.endpoint :
			       emulator         ? emulator :
			       other            ? other :
						  STANDARD;
	auto_free char *bucket = NULL;
	struct google_credentials *c;
	int r = bucket_split(url, &bucket, &b->prefix);

	if (r < 0)
		return r;
	r = set_url(b, endpoint, bucket);
	if (r < 0 || s->opts.anonymous || endpoint == emulator)
		return r;
	if (!credentials_may_go_to(b->url, NULL, 0))
		return fail(-EINVAL,
			    "a token would be sent to '%s' in the clear: the endpoint has to be "
			    "https://HOST, or is asked with -o anonymous",
			    b->url);
	r = google_credentials_new(s->opts.writes, &c);
	if (r < 0)
		return r;
	b->own = c;
	b->credentials = google_credentials_cache(c);
	return 0;
}

static void close_gcs(struct store *s)
{
	google_credentials_free(bucket_of(s)->own);
}

static const char *gcs_file_of(struct store *s, size_t i)
{
	return google_credentials_file(bucket_of(s)->own, i);
}

const struct bucket_dialect gcs_dialect = {
	.open = open_gcs,
	.close = close_gcs,
	.page_url = gcs_page_url,
	.parse_page = gcs_parse_page,
	.about = gcs_about,
	.take_about = take_about,
	.object_url = object_url,
	.tag_header = "x-goog-generation",
	.authorize = gcs_authorize,
	.explain = gcs_explain,
	.file = gcs_file_of,
	.write = &gcs_write,
};
