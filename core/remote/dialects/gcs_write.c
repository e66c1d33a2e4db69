/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcs_write.c - writes objects of Google Cloud Storage, by one request or by a resumable upload.
 *
 * A resumable upload has a URL of its own, which authorizes requests to it: it is a secret, and no
 * token is sent with it. After an interruption the server is asked how much of the chunk it has,
 * and only the rest is sent again. The CRC-32C of the object is compared at the end.
 */
#include <stdio.h>
#include <time.h>

#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/documents/gcs_json.h"

#define PUT_MAX (256 << 10)
#define BOUNDARY "pytreefs-8f2c6b1d50a94e37"
#define INCOMPLETE 308
#define CANCELLED 499
#define TRIES 6 /* of a chunk, while no byte of it arrives */
#define PAUSE_MS 100

/* ---- objects ---- */

/* HOST/upload/storage/v1/b/BUCKET/o?uploadType=TYPE&name=KEY */
static int upload_url(const struct store *s, const char *path, const char *type, const char *if_tag,
		      char **ret)
{
	const struct bucket *b = bucket_of(s);
	const char *api = NULL;
	auto_free char *key = str_fmt("%s%s%s", b->prefix, *b->prefix ? "/" : "", path);
	auto_buf url = { 0 };

	for (const char *at = b->url; (at = strstr(at, "/storage/v1/b/")); at++)
		api = at;
	if (!key ||
	    buf_addf(&url, "%.*s/upload%s/o?uploadType=%s&name=", (int)(api - b->url), b->url, api,
		     type) < 0 ||
	    path_escape_value(&url, key) < 0 ||
	    (if_tag && buf_addf(&url, "&ifGenerationMatch=%s", *if_tag ? if_tag : "0") < 0) ||
	    !buf_str(&url))
		return fail(-ENOMEM, "cannot write '%s'", path);
	*ret = (char *)take(url.p);
	return 0;
}

/* The body has two parts: a JSON document with the expected checksum, and the bytes. */
static int gcs_put(struct store *s, const char *path, struct span content, const char *if_tag,
		   struct bucket_request *ret)
{
	uint32_t crc = crc32c(content);
	const uint8_t crc_bytes[] = { (uint8_t)(crc >> 24), (uint8_t)(crc >> 16),
				      (uint8_t)(crc >> 8), (uint8_t)crc };
	char *url;
	int r = upload_url(s, path, "multipart", if_tag, &url);

	if (r < 0)
		return r;
	r = bucket_request(s, path, "POST", url, ret);
	if (r < 0)
		return r;
	bucket_request_line(ret, "Content-Type", "multipart/related; boundary=" BOUNDARY);
	buf_add_str(&ret->content,
		    "--" BOUNDARY "\r\nContent-Type: application/json\r\n\r\n{\"crc32c\": \"");
	base64_put(&ret->content, span_of(crc_bytes, sizeof(crc_bytes)), BASE64_STD);
	buf_add_str(&ret->content,
		    "\"}\r\n--" BOUNDARY "\r\nContent-Type: application/octet-stream\r\n\r\n");
	buf_add_span(&ret->content, content);
	buf_add_str(&ret->content, "\r\n--" BOUNDARY "--\r\n");
	ret->q.send = buf_span(&ret->content);
	return buf_failed(&ret->content);
}

static int gcs_remove_object(struct store *s, const char *path, struct bucket_request *ret)
{
	char *url;
	int r = s->dialect->object_url(s, path, "", &url);

	if (r < 0)
		return r;
	/* Drop the parameters, which are for reading the object's bytes. */
	url[strcspn(url, "?")] = '\0';
	r = bucket_request(s, path, "DELETE", url, ret);
	bucket_request_line(ret, "Content-Type", "");
	return r;
}

/* ---- resumable uploads ---- */

static int gcs_begin(struct store_upload *u)
{
	bool is_secure = !strncmp(bucket_of(u->s)->url, "https://", 8);
	auto_bucket_request b = { 0 };
	const char *session;
	char *url;
	int r = upload_url(u->s, u->path, "resumable", u->is_new ? STORE_IF_ABSENT : NULL, &url);

	if (r < 0)
		return r;
	r = bucket_request(u->s, u->path, "POST", url, &b);
	if (r < 0)
		return r;
	bucket_request_line(&b, "Content-Type", "application/json");
	bucket_request_line(&b, "X-Upload-Content-Type", "application/octet-stream");
	b.q.send = span_str("{}");
	b.q.header = "Location";
	r = bucket_send(u->s, &b);
	if (r < 0)
		return r;
	/* The session must not send the data in the clear, where the bucket's URL does not. */
	session = buf_str(&b.q.value);
	if (!session || (strncmp(session, "https://", 8) != 0 &&
			 (is_secure || strncmp(session, "http://", 7) != 0)))
		return fail(-EIO, "cannot write '%s/%s': the server gives no address for its parts",
			    u->s->base.url, u->path);
	u->id = strdup(session);
	return u->id ? 0 : fail(-ENOMEM, "cannot write '%s'", u->path);
}

static int session_request(struct store_upload *u, const char *method, const char *range,
			   struct bucket_request *ret)
{
	char *url = strdup(u->id);
	int r = url ? bucket_request(u->s, u->path, method, url, ret) :
		      fail(-ENOMEM, "cannot write '%s'", u->path);

	if (r < 0)
		return r;
	bucket_request_line(ret, "Content-Type", "");
	if (*range)
		bucket_request_line(ret, "Content-Range", range);
	ret->without_keys = true;
	ret->q.accepted_status = INCOMPLETE;
	ret->q.header = "Range";
	return 0;
}

/* Send the rest of a part, from the offset on. */
static int submit_from(struct store_upload *u, struct upload_part *p, uint64_t from)
{
	uint64_t end = p->off + p->bytes.n;
	char size[32] = "*", range[96];
	int r;

	if (p->is_last)
		snprintf(size, sizeof(size), "%llu", (unsigned long long)end);
	snprintf(range, sizeof(range), "bytes %llu-%llu/%s", (unsigned long long)from,
		 (unsigned long long)end - 1, size);
	bucket_request_release(&p->request);
	r = session_request(u, "PUT", range, &p->request);
	if (r < 0)
		return r;
	p->request.q.send = span_from(p->bytes, (size_t)(from - p->off));
	p->request.q.is_single_try = true;
	return store_request_submit(u->s, &p->request.q);
}

/* Read from an answer how much of the upload the server has: everything, if the object exists. */
static int take_progress(struct store_upload *u, const struct http_request *q, uint64_t *ret)
{
	const char *text = q->value.n ? buf_str((struct buf *)(uintptr_t)&q->value) : "";
	unsigned long long last;
	bool has_crc;
	uint32_t crc;
	struct io_object o;
	int r;

	if (q->answer.status == INCOMPLETE) {
		*ret = text && sscanf(text, "bytes=0-%llu", &last) == 1 ? last + 1 : 0;
		return 0;
	}
	r = gcs_parse_written(buf_span(&q->body), &o, &has_crc, &crc);
	if (r < 0)
		return err_at(r, "what the server says of '%s'", q->name);
	u->exists = true;
	if (o.size != u->size || (has_crc && crc != u->crc)) {
		r = store_remove(&u->s->base, (const char *const *)&u->path, 1);
		if (r < 0)
			log_warn("a damaged object stays behind: %s", err_text(r));
		return fail(-EIO,
			    "cannot write '%s': the server has %llu bytes with CRC-32C %08x, and "
			    "%llu with %08x were sent",
			    q->name, (unsigned long long)o.size, crc, (unsigned long long)u->size,
			    u->crc);
	}
	*ret = o.size;
	return 0;
}

/* Ask how much the server has after an interrupted request. */
static int ask_progress(struct store_upload *u, const struct upload_part *p, uint64_t *ret)
{
	auto_bucket_request b = { 0 };
	char range[48] = "bytes */*";
	int r;

	if (p->is_last)
		snprintf(range, sizeof(range), "bytes */%llu",
			 (unsigned long long)(p->off + p->bytes.n));
	r = session_request(u, "PUT", range, &b);
	if (r < 0)
		return r;
	r = bucket_send(u->s, &b);
	if (r == -ENOENT)
		return fail(-EIO, "cannot write '%s': its upload is not there any more", b.q.name);
	return r < 0 ? r : take_progress(u, &b.q, ret);
}

static int gcs_send_part(struct store_upload *u, struct upload_part *p)
{
	uint64_t end = p->off + p->bytes.n, has = p->off, before;
	int64_t pause_ms;
	int r = submit_from(u, p, p->off);

	for (int tries = 0; tries < TRIES && r >= 0; tries++) {
		r = store_request_wait(u->s, &p->request.q);
		before = has;
		if (r >= 0)
			r = take_progress(u, &p->request.q, &has);
		else if (p->request.q.is_transient && tries + 1 < TRIES) {
			trace(TRACE_IO, "upload of %s: %s; asking how much has arrived",
			      p->request.q.name, p->request.q.why);
			err_clear();
			pause_ms = (int64_t)PAUSE_MS << tries;
			nanosleep(&(struct timespec){ pause_ms / 1000, pause_ms % 1000 * 1000000 },
				  NULL);
			r = ask_progress(u, p, &has);
		}
		if (r < 0 || (has == end && (u->exists || !p->is_last)))
			return r;
		if (has < p->off || has > end)
			return fail(-EIO,
				    "cannot write '%s': the server has %llu bytes, and %llu to "
				    "%llu were sent last",
				    p->request.q.name, (unsigned long long)has,
				    (unsigned long long)p->off, (unsigned long long)end);
		/* Progress, however slow, starts the count of tries anew. */
		if (has > before)
			tries = 0;
		r = submit_from(u, p, has);
	}
	if (r < 0)
		return r;
	store_request_wait(u->s, &p->request.q);
	return fail(-EIO,
		    "cannot write '%s': the server received nothing of the part at offset %llu",
		    p->request.q.name, (unsigned long long)has);
}

static int gcs_end(struct store_upload *u)
{
	return u->exists ? 0 :
			   fail(-EIO, "cannot write '%s/%s': the upload did not end",
				u->s->base.url, u->path);
}

/* Without this request the server would keep the session and its bytes for a week. */
static void gcs_abort_upload(struct store_upload *u)
{
	auto_bucket_request b = { 0 };
	int r = session_request(u, "DELETE", "", &b);

	b.q.accepted_status = CANCELLED;
	if (r >= 0)
		r = bucket_send(u->s, &b);
	if (r < 0 && r != -ENOENT)
		log_warn("an unfinished upload stays behind, for a week: %s", err_text(r));
}

const struct bucket_write gcs_write = {
	.put_max = PUT_MAX,
	.in_order = true,
	.put = gcs_put,
	.remove = gcs_remove_object,
	.begin = gcs_begin,
	.part = gcs_send_part,
	.end = gcs_end,
	.abort = gcs_abort_upload,
};
