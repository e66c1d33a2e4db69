/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_write.c - writes objects of S3, by one request or by a multipart upload.
 *
 * The hash of each body is signed, and the server refuses a body with another hash.
 */
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/credentials/aws_sign.h"
#include "core/remote/documents/s3_xml.h"

#define UPLOADS_PAGES 1000

static int request(struct store *s, const char *path, const char *method, const char *query,
		   struct bucket_request *ret)
{
	char *url, *whole;
	int r = store_object_url(s, path, &url);

	if (r < 0)
		return r;
	whole = str_fmt("%s%s%s", url, *query ? "?" : "", query);
	free(url);
	return whole ? bucket_request(s, path, method, whole, ret) :
		       fail(-ENOMEM, "cannot ask for '%s'", path);
}

/* Set the body of a request. The caller keeps the bytes. */
static int set_content(struct bucket_request *b, struct span content, const char *type)
{
	b->q.send = content;
	/* Without this header libcurl would declare the body a form. */
	bucket_request_line(b, "Content-Type", content.n ? type : "");
	return aws_body_hash(content, b->hash);
}

static int s3_put(struct store *s, const char *path, struct span content, const char *if_tag,
		  struct bucket_request *ret)
{
	int r = request(s, path, "PUT", "", ret);

	if (r < 0)
		return r;
	if (if_tag)
		bucket_request_line(ret, *if_tag ? "If-Match" : "If-None-Match",
				    *if_tag ? if_tag : "*");
	return set_content(ret, content, "application/octet-stream");
}

/* Some servers send the status 200 first, and find later that they fail. */
static int check_put(const struct bucket_request *b)
{
	struct s3_error e;

	s3_parse_error(buf_span(&b->q.body), &e);
	return *e.code ?
		       fail(-EIO, "cannot write '%s': the answer has status %d, and an error (%s)",
			    b->q.name, b->q.answer.status, e.code) :
		       0;
}

static int s3_remove_object(struct store *s, const char *path, struct bucket_request *ret)
{
	int r = request(s, path, "DELETE", "", ret);

	return r < 0 ? r : set_content(ret, span_of("", 0), "");
}

/* ---- multipart uploads ---- */

static int s3_begin(struct store_upload *u)
{
	auto_bucket_request b = { 0 };
	auto_buf id = { 0 };
	int r = request(u->s, u->path, "POST", "uploads=", &b);

	if (r < 0)
		return r;
	r = set_content(&b, span_of("", 0), "");
	if (r < 0)
		return r;
	r = bucket_send(u->s, &b);
	if (r < 0)
		return r;
	r = s3_parse_upload(buf_span(&b.q.body), &id);
	if (r < 0)
		return err_at(r, "what begins the upload of '%s'", b.q.name);
	u->id = buf_str(&id) ? strdup(buf_str(&id)) : NULL;
	return u->id ? 0 : fail(-ENOMEM, "cannot write '%s'", u->path);
}

/* Prepare a request about the upload. Parameters are sorted; `before` has those that come first. */
static int upload_request(struct store_upload *u, const char *method, const char *before,
			  struct bucket_request *ret)
{
	auto_buf query = { 0 };

	if (buf_addf(&query, "%suploadId=", before) < 0 || path_escape_value(&query, u->id) < 0 ||
	    !buf_str(&query))
		return fail(-ENOMEM, "cannot write '%s'", u->path);
	return request(u->s, u->path, method, buf_str(&query), ret);
}

/* Keep a part's tag, which is needed to complete the upload. */
static int keep_tag(struct store_upload *u, const struct upload_part *p)
{
	const char *tag = p->request.q.answer.tag;
	auto_free char *copy = strdup(tag);
	auto_unlock pthread_mutex_t *held = lock_hold(&u->lock);
	size_t was = u->cap_tags;

	if (!*tag || strpbrk(tag, "<>&"))
		return fail(-EIO, "cannot write '%s': part %u was answered without a tag",
			    p->request.q.name, p->number);
	if (!copy || !array_reserve(u->tag, u->cap_tags, p->number))
		return fail(-ENOMEM, "cannot write '%s'", u->path);
	for (size_t i = was; i < u->cap_tags; i++)
		u->tag[i] = NULL;
	free(u->tag[p->number - 1]);
	u->tag[p->number - 1] = take(copy);
	return 0;
}

static int s3_send_part(struct store_upload *u, struct upload_part *p)
{
	char number[32];
	int r;

	snprintf(number, sizeof(number), "partNumber=%u&", p->number);
	r = upload_request(u, "PUT", number, &p->request);
	if (r >= 0)
		r = set_content(&p->request, p->bytes, "application/octet-stream");
	if (r >= 0)
		r = bucket_send(u->s, &p->request);
	if (r < 0)
		return err_at(r, "part %u, at offset %llu, %zu bytes", p->number,
			      (unsigned long long)p->off, p->bytes.n);
	return keep_tag(u, p);
}

/* The upload is gone after an answer was lost. If the object exists, the upload was completed. */
static int s3_is_complete(struct store_upload *u, int r)
{
	struct err_note why;
	struct io_object o;

	err_save(r, &why);
	if (bucket_about(u->s, u->path, &o) >= 0 && o.size == u->size)
		return 0;
	return err_restore(&why);
}

static int s3_end(struct store_upload *u)
{
	auto_bucket_request b = { 0 };
	struct s3_error e;
	int r = upload_request(u, "POST", "", &b);

	if (r < 0)
		return r;
	buf_add_str(&b.content, "<CompleteMultipartUpload>");
	for (size_t i = 0; i < u->cap_tags && u->tag[i]; i++)
		buf_addf(&b.content, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>",
			 i + 1, u->tag[i]);
	buf_add_str(&b.content, "</CompleteMultipartUpload>");
	r = buf_failed(&b.content);
	if (r < 0)
		return r;
	r = set_content(&b, buf_span(&b.content), "application/xml");
	if (r < 0)
		return r;
	r = bucket_send(u->s, &b);
	if (r == -ENOENT && b.q.tries > 1)
		return s3_is_complete(u, r);
	if (r < 0)
		return r;
	/* The status 200 is sent before the parts are put together, which may still fail. */
	s3_parse_error(buf_span(&b.q.body), &e);
	return *e.code ? fail(-EIO, "cannot write '%s': its parts were not put together (%s)",
			      b.q.name, e.code) :
			 0;
}

static int s3_give_up(struct store_upload *u)
{
	auto_bucket_request b = { 0 };
	int r = upload_request(u, "DELETE", "", &b);

	if (r < 0)
		return r;
	r = set_content(&b, span_of("", 0), "");
	if (r < 0)
		return r;
	r = bucket_send(u->s, &b);
	return err_except(r, -ENOENT);
}

static void s3_abort_upload(struct store_upload *u)
{
	int r = s3_give_up(u);

	if (r < 0)
		log_warn("an unfinished upload stays behind: %s", err_text(r));
}

/* ---- unfinished uploads ---- */

struct old_uploads {
	struct store *s;
	struct old {
		char *path;
		char *id;
	} * old;
	size_t n, cap;
	int result;
};

static int add_old(void *arg, struct span key, struct span id)
{
	struct old_uploads *a = arg;
	const char *prefix = bucket_of(a->s)->prefix;
	size_t skip = *prefix ? strlen(prefix) + 1 : 0;
	struct old o = { 0 };

	if (key.n <= skip || memchr(key.p, 0, key.n))
		return 0;
	o.path = span_dup_str(span_from(key, skip));
	o.id = span_dup_str(id);
	if (!o.path || !o.id || !array_reserve(a->old, a->cap, a->n + 1)) {
		free(o.path);
		free(o.id);
		return fail(-ENOMEM, "cannot list uploads");
	}
	a->old[a->n++] = o;
	return 0;
}

/* List one page of unfinished uploads. */
static int list_uploads(struct store *s, const char *path, struct old_uploads *a,
			bool *ret_is_truncated)
{
	struct bucket *bu = bucket_of(s);
	auto_free char *prefix =
		str_fmt("%s%s%s%s", bu->prefix, *bu->prefix ? "/" : "", path, *path ? "/" : "");
	auto_bucket_request b = { 0 };
	auto_buf url = { 0 };
	const char *slash = strchr(strstr(bu->url, "://") + 3, '/') ? "" : "/";
	int r;

	if (!prefix || buf_addf(&url, "%s%s?prefix=", bu->url, slash) < 0 ||
	    path_escape_value(&url, prefix) < 0 || buf_add_str(&url, "&uploads=") < 0 ||
	    !buf_str(&url))
		return fail(-ENOMEM, "cannot list uploads");
	r = bucket_request(s, path, "GET", (char *)take(url.p), &b);
	if (r < 0)
		return r;
	b.q.method = NULL;
	b.q.verb = "list the uploads of";
	b.q.limit = BUCKET_PAGE_BYTES;
	r = set_content(&b, span_of("", 0), "");
	if (r < 0)
		return r;
	r = bucket_send(s, &b);
	if (r < 0)
		return r;
	r = s3_parse_uploads(buf_span(&b.q.body), add_old, a, ret_is_truncated);
	return r < 0 ? err_at(r, "the uploads of '%s'", b.q.name) : r;
}

static int remove_old(struct old_uploads *a)
{
	int r = 0;

	for (size_t i = 0; i < a->n; i++) {
		struct store_upload u = { .s = a->s, .path = a->old[i].path, .id = a->old[i].id };

		r = r < 0 ? r : s3_give_up(&u);
		free(u.path);
		free(u.id);
	}
	free(a->old);
	return r;
}

static int remove_uploads(struct store *s, const char *path)
{
	bool is_truncated = true;
	int r = 0;

	for (int i = 0; i < UPLOADS_PAGES && is_truncated && r >= 0; i++) {
		struct old_uploads a = { .s = s };
		int e;

		r = list_uploads(s, path, &a, &is_truncated);
		e = remove_old(&a);
		r = r < 0 ? r : e;
	}
	return r;
}

const struct bucket_write s3_write = {
	.put_max = PART_BYTES << 4,
	.put = s3_put,
	.check_put = check_put,
	.remove = s3_remove_object,
	.remove_uploads = remove_uploads,
	.begin = s3_begin,
	.part = s3_send_part,
	.end = s3_end,
	.abort = s3_abort_upload,
};
