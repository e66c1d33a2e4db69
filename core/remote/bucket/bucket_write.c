/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_write.c - objects of a bucket that are put, read as a whole, and removed.
 */
#include "core/remote/bucket/bucket_write.h"

#include "core/base/err.h"
#include "core/base/limits.h"

#define REMOVED_AT_ONCE 64

_Static_assert(STORE_TAG_MAX >= HTTP_TAG_MAX, "a tag fits");

static const struct bucket_write *bucket_write_table(const struct store *s)
{
	return s->dialect->write;
}

/* ---- requests ---- */

int bucket_request(struct store *s, const char *path, const char *method, char *url,
		   struct bucket_request *ret)
{
	int r;

	*ret = (struct bucket_request){ 0 };
	r = store_request_url(s, path, url, &ret->q);
	if (r < 0)
		return r;
	ret->q.method = method;
	ret->q.verb = strcmp(method, "DELETE") ? "write" : "remove";
	ret->q.limit = ANSWER_BYTES;
	ret->q.params = ret;
	/* The version of the new object is not compared with anything. */
	ret->q.tag_header = NULL;
	return 0;
}

void bucket_request_line(struct bucket_request *b, const char *name, const char *value)
{
	buf_addf(&b->lines, "%s: %s", name, value);
	buf_add_byte(&b->lines, 0);
}

void bucket_request_release(struct bucket_request *b)
{
	secret_release(&b->q.value);
	/* The URL of an upload may be a secret. */
	if (b->q.url)
		explicit_bzero((char *)(uintptr_t)b->q.url, strlen(b->q.url));
	store_request_release(&b->q);
	buf_release(&b->content);
	buf_release(&b->lines);
}

int bucket_add_lines(const struct bucket_request *b, struct http_headers *ret)
{
	int r = buf_failed(&b->lines);

	for (size_t at = 0; at < b->lines.n && r >= 0; at += strlen((char *)b->lines.p + at) + 1)
		r = http_header(ret, (const char *)b->lines.p + at);
	return r;
}

int bucket_send(struct store *s, struct bucket_request *b)
{
	int r = store_request_submit(s, &b->q);

	return r < 0 ? r : store_request_wait(s, &b->q);
}

int bucket_about_begin(struct store *s, const char *path, struct http_request *ret)
{
	int r = store_request(s, path, NULL, ret);

	if (r < 0)
		return r;
	r = s->dialect->about(s, path, ret);
	if (r >= 0)
		r = store_request_submit(s, ret);
	if (r < 0)
		store_request_release(ret);
	return r;
}

int bucket_about(struct store *s, const char *path, struct io_object *ret)
{
	auto_store_request q = { 0 };
	int r = bucket_about_begin(s, path, &q);

	if (r < 0)
		return r;
	r = store_request_wait(s, &q);
	return r < 0 ? r : s->dialect->take_about(&q, ret);
}

int bucket_has(struct store *s, const char *path)
{
	struct io_object o;
	int r = bucket_about(s, path, &o);

	return r < 0 ? err_except(r, -ENOENT) : 1;
}

/* ---- objects ---- */

int store_check_writable(const struct io_store *store)
{
	const struct store *s = store_of(store);

	return s->dialect && bucket_write_table(s) ?
		       0 :
		       fail(-EROFS, "'%s' cannot be written: only s3:// and gs:// can", store->url);
}

static int bucket_put_object(struct store *s, const char *path, struct span content,
			     const char *if_tag, bool *ret_may_arrive, struct bucket_request *b)
{
	int r = store_check_writable(&s->base);

	if (r < 0)
		return r;
	r = bucket_write_table(s)->put(s, path, content, if_tag, b);
	if (r < 0)
		return r;
	b->q.is_fresh = ret_may_arrive;
	r = bucket_send(s, b);
	if (r < 0 || !bucket_write_table(s)->check_put)
		return r;
	r = bucket_write_table(s)->check_put(b);
	b->q.may_arrive = r < 0;
	return r;
}

int store_put(struct io_store *store, const char *path, struct span content, const char *if_tag,
	      bool *ret_may_arrive)
{
	struct store *s = store_of(store);
	auto_bucket_request b = { 0 };
	auto_buf there = { 0 };
	struct err_note why;
	int r = bucket_put_object(s, path, content, if_tag, ret_may_arrive, &b);

	if (ret_may_arrive)
		*ret_may_arrive = b.q.may_arrive;
	if (r != -EEXIST || !if_tag)
		return r;
	/*
	 * When the first answer was lost, the repeated request finds the object that the first one
	 * made. libcurl may have sent it twice by itself, over a connection that was closed
	 * meanwhile.
	 */
	err_save(r, &why);
	r = store_get(store, path, content.n, &there, NULL);
	if (r >= 0 && span_eq(buf_span(&there), content))
		return 0;
	r = r < 0 ? err_except(r, -EFBIG, -ENOENT) : 0;
	if (r < 0 && ret_may_arrive)
		*ret_may_arrive = true;
	return r < 0 ? r : err_restore(&why);
}

int store_get(struct io_store *store, const char *path, size_t limit, struct buf *ret,
	      char *ret_tag)
{
	struct store *s = store_of(store);
	auto_store_request q = { 0 };
	int r = store_request(s, path, NULL, &q);

	if (r < 0)
		return r;
	q.limit = limit;
	r = store_request_submit(s, &q);
	if (r < 0)
		return r;
	r = store_request_wait(s, &q);
	if (r < 0)
		return r;
	r = buf_add_span(ret, buf_span(&q.body));
	if (r < 0)
		return r;
	if (ret_tag)
		memcpy(ret_tag, q.answer.tag, strlen(q.answer.tag) + 1);
	return 0;
}

static int bucket_write_remove_some(struct store *s, const char *const *path, size_t n)
{
	struct bucket_request *b = calloc(n, sizeof(*b));
	size_t made = 0, begun = 0;
	struct err_note why = { 0 };
	int r = b ? 0 : fail(-ENOMEM, "cannot remove '%s'", path[0]);

	for (; made < n && r >= 0; made += r >= 0)
		r = bucket_write_table(s)->remove(s, path[made], &b[made]);
	for (; begun < made && r >= 0; begun += r >= 0)
		r = store_request_submit(s, &b[begun].q);
	err_save(r, &why);
	for (size_t i = 0; i < begun; i++) {
		int e = store_request_wait(s, &b[i].q);

		if (e < 0 && e != -ENOENT && r >= 0)
			err_save(r = e, &why);
	}
	/* The last request may be incomplete, if preparing it failed. */
	for (size_t i = 0; b && i < n; i++)
		bucket_request_release(&b[i]);
	free(b);
	err_clear();
	return r < 0 ? err_restore(&why) : 0;
}

int store_remove(struct io_store *store, const char *const *path, size_t n)
{
	int r = store_check_writable(store), first = 0;
	struct err_note why;

	if (r < 0)
		return r;
	for (size_t at = 0; at < n; at += REMOVED_AT_ONCE) {
		r = bucket_write_remove_some(store_of(store), path + at,
					     MIN(n - at, (size_t)REMOVED_AT_ONCE));
		if (r < 0 && first >= 0)
			err_save(first = r, &why);
	}
	return first < 0 ? err_restore(&why) : 0;
}

int store_remove_uploads(struct io_store *store, const char *path)
{
	struct store *s = store_of(store);
	int r = store_check_writable(store);

	if (r < 0 || !bucket_write_table(s)->remove_uploads)
		return r;
	return bucket_write_table(s)->remove_uploads(s, path);
}
