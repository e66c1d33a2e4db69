/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3.c - the dialect of S3 and servers like it: signatures, and the meaning of refusals.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/credentials/aws_credentials.h"
#include "core/remote/credentials/aws_sign.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/dialects/s3_place.h"
#include "core/remote/documents/s3_xml.h"

struct s3 {
	struct s3_place place;
	struct aws_credentials *credentials;
};

static struct s3 *s3_of(const struct store *s)
{
	return bucket_of(s)->own;
}

/* ---- requests ---- */

static int s3_authorize(const struct store *s, const struct credentials *keys,
			const struct http_request *req, struct http_headers *ret)
{
	const struct s3 *s3 = s3_of(s);
	const char *path = strchr(strstr(req->url, "://") + 3, '/');
	const char *query = strchr(req->url, '?');
	auto_free char *only_path =
		span_dup_str(span_of(path ? path : "/", path ? strcspn(path, "?") : 1));
	const struct bucket_request *b = req->params;
	const char *hash = b ? b->hash : AWS_EMPTY;
	char time_text[AWS_TIME_MAX];
	const struct aws_header header[] = { { "host", s3->place.host },
					     { "x-amz-content-sha256", hash },
					     { "x-amz-date", time_text },
					     { "x-amz-security-token", keys->token } };
	const struct aws_request q = { .method = req->method  ? req->method :
						 req->is_head ? "HEAD" :
								"GET",
				       .path = only_path,
				       .query = query ? query + 1 : "",
				       .header = header,
				       .n_headers = ARRAY_LEN(header) - !keys->token,
				       .body_hash = hash,
				       .time = time_text,
				       .region = s3->place.region,
				       .service = "s3",
				       .key_id = keys->id,
				       .secret = keys->secret };
	auto_buf value = { 0 };
	int r;

	if (!only_path)
		return fail(-ENOMEM, "cannot make a request");
	aws_time(time(NULL), time_text);
	r = aws_authorization(&q, &value);
	for (size_t i = 1; i < q.n_headers && r >= 0; i++)
		r = bucket_header(ret, header[i].name, header[i].value);
	if (r < 0)
		return r;
	return buf_str(&value) ? bucket_header(ret, "Authorization", buf_str(&value)) : -ENOMEM;
}

/* ---- listings and objects ---- */

static int s3_page_url(const struct store *s, const char *prefix, const char *token, unsigned most,
		       struct buf *ret)
{
	/* Parameters are sorted by name, as the signature needs them. */
	buf_addf(ret, "%s%s?", bucket_of(s)->url, s3_of(s)->place.is_virtual ? "/" : "");
	if (*token) {
		buf_add_str(ret, "continuation-token=");
		path_escape_value(ret, token);
		buf_add_byte(ret, '&');
	}
	buf_add_str(ret, "delimiter=%2F&encoding-type=url&list-type=2");
	if (most)
		buf_addf(ret, "&max-keys=%u", most);
	buf_add_str(ret, "&prefix=");
	path_escape_value(ret, prefix);
	return buf_failed(ret);
}

static int s3_about(const struct store *s, const char *path, struct http_request *q)
{
	q->is_head = true;
	return 0;
}

/* ---- refusals ---- */

static const struct refusal_text {
	const char *code;
	int result;
	const char *text;
} refusal_texts[] = {
	{ "AccessDenied", -EACCES, "it may not be read with these credentials" },
	{ "AllAccessDisabled", -EACCES, "nobody may read it" },
	{ "NoSuchBucket", -EIO, "the bucket does not exist" },
	{ "InvalidAccessKeyId", -EACCES, "the server does not know the id of the access key" },
	{ "SignatureDoesNotMatch", -EACCES,
	  "the secret access key is not the one of the id, or something on the way changes "
	  "requests" },
	{ "InvalidToken", -EACCES, "the session token is not one" },
	{ "ExpiredToken", -EACCES, "the credentials have expired" },
	{ "TokenRefreshRequired", -EACCES, "the credentials have expired" },
	{ "InvalidObjectState", -EIO,
	  "it is in an archive, from which it has to be restored first" },
	{ "InvalidBucketName", -EIO, "that is not the name of a bucket" },
};

static bool s3_explain(struct store *s, const struct http_refusal *refusal,
		       struct http_request *req)
{
	const char *in_header = http_refusal_header(refusal, "x-amz-bucket-region");
	const char *own = s3_of(s)->place.region;
	struct credentials_cache *keys = bucket_of(s)->credentials;
	struct s3_error e;
	bool others;

	s3_parse_error(refusal->document, &e);
	if (!*e.region && in_header && s3_region_is_valid(in_header) &&
	    strlen(in_header) < sizeof(e.region))
		strcpy(e.region, in_header);
	if (*e.code && req->result != -ESTALE && req->result != -EEXIST)
		snprintf(req->why, sizeof(req->why), "status %d (%s)", refusal->status, e.code);
	if (!strcmp(e.code, "RequestTimeTooSkewed")) {
		char here[AWS_TIME_MAX];

		aws_time(time(NULL), here);
		snprintf(req->why, sizeof(req->why),
			 "status %d (%s): the clock of this machine says %s, the server's %s",
			 req->answer.status, e.code, here, *e.time ? e.time : "something else");
		req->result = -EACCES;
		return false;
	}
	if (*e.region && strcmp(e.region, own) != 0 &&
	    (refusal->status / 100 == 3 || refusal->status == 400)) {
		snprintf(req->why, sizeof(req->why),
			 "status %d (%s): the bucket is in the region '%s', and '%s' was asked: "
			 "give region=%s, or AWS_REGION",
			 req->answer.status, e.code, e.region, own, e.region);
		req->result = -EIO;
		return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(refusal_texts); i++) {
		const struct refusal_text *t = &refusal_texts[i];

		if (strcmp(e.code, t->code) != 0)
			continue;
		snprintf(req->why, sizeof(req->why), "status %d (%s): %s", refusal->status, e.code,
			 req->verb && !strcmp(e.code, "AccessDenied") ?
				 "it may not be written with these credentials" :
			 s->opts.anonymous && t->result == -EACCES ?
				 "it may not be read without credentials" :
				 t->text);
		req->result = t->result;
	}
	/* Another writer may be putting the object now; or the body was damaged. */
	if (!strcmp(e.code, "ConditionalRequestConflict") ||
	    !strcmp(e.code, "XAmzContentSHA256Mismatch"))
		return true;
	/* The answer to HEAD has no code: credentials that expired are one cause. */
	if (keys && req->is_head && refusal->status == 400 && !*e.code) {
		req->has_expired = credentials_suspect(keys, &others);
		if (req->has_expired) {
			snprintf(req->why, sizeof(req->why),
				 "status 400 without a reason: the credentials may have expired");
			req->result = -EACCES;
		}
		return others;
	}
	req->has_expired = keys && (!strcmp(e.code, "ExpiredToken") ||
				    !strcmp(e.code, "TokenRefreshRequired"));
	if (req->has_expired)
		return credentials_expired(keys);
	return !strcmp(e.code, "RequestTimeout");
}

/* ---- opening ---- */

static int open_s3(struct store *s, const char *url)
{
	struct bucket *b = bucket_of(s);
	struct s3 *s3 = calloc(1, sizeof(*s3));
	int r = s3 ? aws_credentials_new(&s3->credentials) : fail(-ENOMEM, "cannot open '%s'", url);

	b->own = s3;
	if (r < 0)
		return r;
	r = s3_place(url, &s->opts, aws_endpoint(s3->credentials), aws_region(s3->credentials),
		     &s3->place);
	if (r < 0)
		return r;
	b->url = strdup(s3->place.url);
	b->prefix = strdup(s3->place.prefix);
	b->credentials = s->opts.anonymous ? NULL : aws_credentials_cache(s3->credentials);
	return b->url && b->prefix ? 0 : fail(-ENOMEM, "cannot open '%s'", url);
}

static void close_s3(struct store *s)
{
	struct s3 *s3 = s3_of(s);

	if (!s3)
		return;
	aws_credentials_free(s3->credentials);
	s3_place_release(&s3->place);
	free(s3);
}

static const char *s3_file_of(struct store *s, size_t i)
{
	return aws_credentials_file(s3_of(s)->credentials, i);
}

const struct bucket_dialect s3_dialect = {
	.open = open_s3,
	.close = close_s3,
	.page_url = s3_page_url,
	.parse_page = s3_parse_page,
	.about = s3_about,
	.take_about = store_object_of,
	.authorize = s3_authorize,
	.explain = s3_explain,
	.file = s3_file_of,
	.write = &s3_write,
};
