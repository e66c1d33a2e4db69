/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.c - one opened bucket: the code that all vendors share.
 */
#include "core/remote/bucket/bucket.h"

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"

static int bucket_prepare(struct store *s)
{
	struct credentials_cache *c = bucket_of(s)->credentials;

	return c ? credentials_ensure(c) : 0;
}

int bucket_header(struct http_headers *h, const char *name, const char *value)
{
	auto_of(secret) char *line = str_fmt("%s: %s", name, value);

	return line ? http_header(h, line) : fail(-ENOMEM, "cannot make a request");
}

static int bucket_authorize(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct store *s = arg;
	struct credentials_cache *c = bucket_of(s)->credentials;
	auto_credentials keys = { 0 };
	const struct bucket_request *b = req->params;
	int r;

	if (b && b->without_keys)
		c = NULL;
	r = c ? credentials_get(c, &keys) : 0;
	if (r < 0)
		return r;
	r = b ? bucket_add_lines(b, ret) : 0;
	if (r < 0)
		return r;
	return c ? s->dialect->authorize(s, &keys, req, ret) : 0;
}

static bool bucket_explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	struct store *s = arg;

	req->answer.status = refusal->status;
	return s->dialect->explain(s, refusal, req);
}

static const char *bucket_file(struct store *s, size_t i)
{
	return bucket_of(s)->credentials ? s->dialect->file(s, i) : NULL;
}

static int bucket_open(struct store *s, const char *url)
{
	struct bucket *b = calloc(1, sizeof(*b));
	auto_free char *root = NULL;
	auto_buf escaped = { 0 };
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot open '%s'", url);
	s->own = b;
	r = s->dialect->open(s, url);
	if (r < 0)
		return r;
	r = path_escape(&escaped, b->prefix);
	root = r < 0 || !buf_str(&escaped) ?
		       NULL :
		       str_fmt("%s%s%s", b->url, escaped.n ? "/" : "", buf_str(&escaped));
	return root ? store_set_urls(s, url, root) : fail(-ENOMEM, "cannot open '%s'", url);
}

static void bucket_close(struct store *s)
{
	struct bucket *b = bucket_of(s);

	if (!b)
		return;
	if (s->dialect->close)
		s->dialect->close(s);
	free(b->url);
	free(b->prefix);
	free(b);
}

const struct store_kind bucket_store = {
	.no_rename = true,
	.open = bucket_open,
	.close = bucket_close,
	.prepare = bucket_prepare,
	.fetch = bucket_fetch,
	.look = bucket_look,
	.reach = bucket_reach,
	.list_begin = bucket_list_begin,
	.list_end = bucket_list_end,
	.authorize = bucket_authorize,
	.explain = bucket_explain,
	.file = bucket_file,
};
