/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.c - one opened bucket: the code that all vendors share.
 */
#include "core/remote/dialects/bucket.h"

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/dialects/bucket_write.h"

static const struct bucket_dialect *dialect_of(const struct store *s)
{
	return s->kind->dialect;
}

int bucket_prepare(struct store *s)
{
	struct credentials_cache *c = bucket_of(s)->credentials;

	return c ? credentials_ensure(c) : 0;
}

int bucket_header(struct http_headers *h, const char *name, const char *value)
{
	char *line = str_fmt("%s: %s", name, value);
	int r = line ? http_header(h, line) : fail(-ENOMEM, "cannot make a request");

	secret_free(line);
	return r;
}

int bucket_authorize(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct store *s = arg;
	struct credentials_cache *c = bucket_of(s)->credentials;
	struct credentials keys = { 0 };
	const struct bucket_request *b = req->params;
	int r;

	if (b && b->without_keys)
		c = NULL;
	r = c ? credentials_get(c, &keys) : 0;
	if (r >= 0 && b)
		r = bucket_add_lines(b, ret);
	if (r >= 0 && c)
		r = dialect_of(s)->authorize(s, &keys, req, ret);
	credentials_release(&keys);
	return r;
}

bool bucket_explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	struct store *s = arg;

	req->answer.status = refusal->status;
	return dialect_of(s)->explain(s, refusal, req);
}

const char *bucket_file(struct store *s, size_t i)
{
	return bucket_of(s)->credentials ? dialect_of(s)->file(s, i) : NULL;
}

int bucket_open(struct store *s, const char *url)
{
	struct bucket *b = calloc(1, sizeof(*b));
	auto_free char *root = NULL;
	auto_buf escaped = { 0 };
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot open '%s'", url);
	s->own = b;
	pthread_mutex_init(&b->lock, NULL);
	r = dialect_of(s)->open(s, url);
	if (r < 0)
		return r;
	r = path_escape(&escaped, b->prefix);
	root = r < 0 || !buf_str(&escaped) ?
		       NULL :
		       str_fmt("%s%s%s", b->url, escaped.n ? "/" : "", buf_str(&escaped));
	return root ? store_set_urls(s, url, root) : fail(-ENOMEM, "cannot open '%s'", url);
}

int bucket_descend(struct store *s, const char *path)
{
	struct bucket *b = bucket_of(s);
	char *prefix = str_fmt("%s%s%s", b->prefix, *b->prefix && *path ? "/" : "", path);

	if (!prefix)
		return fail(-ENOMEM, "cannot open '%s'", path);
	free(b->prefix);
	b->prefix = prefix;
	free(take(b->last_within));
	return 0;
}

void bucket_close(struct store *s)
{
	struct bucket *b = bucket_of(s);

	if (!b)
		return;
	dialect_of(s)->close(s);
	pthread_mutex_destroy(&b->lock);
	free(b->url);
	free(b->prefix);
	free(b->last_within);
	free(b);
}
