/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store.c - opens the store of a URL; look-ups and listings, which are cached for a while.
 */
#include "core/remote/source/url_store.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket.h"
#include "core/remote/cache/piece_dir.h"
#include "core/remote/cache/store_cache.h"
#include "core/remote/source/first_range.h"

#define RENEWALS 2 /* how often credentials are renewed for one request */
#define LISTING_MS 30000

/* ---- URLs ---- */

int store_object_url(const struct store *s, const char *path, char **ret)
{
	auto_buf url = { 0 };

	if (buf_addf(&url, "%s%s", s->root, *path ? "/" : "") < 0 || path_escape(&url, path) < 0 ||
	    !buf_str(&url))
		return fail(-ENOMEM, "cannot ask for '%s'", path);
	*ret = (char *)take(url.p);
	return 0;
}

int store_request_url(struct store *s, const char *path, char *url, struct http_request *ret)
{
	char *name = str_fmt("%s%s%s", s->base.url, *path ? "/" : "", path);

	*ret = (struct http_request){ 0 };
	if (!name) {
		free(url);
		return fail(-ENOMEM, "cannot ask for '%s'", path);
	}
	*ret = (struct http_request){ .url = url,
				      .name = name,
				      .tag_header = s->dialect ? s->dialect->tag_header : NULL,
				      .follow = s->kind->follows,
				      .authorize = s->kind->authorize,
				      .explain = s->kind->explain,
				      .arg = s };
	return 0;
}

int store_request(struct store *s, const char *path, const char *tag, struct http_request *ret)
{
	char *url;
	int r;

	*ret = (struct http_request){ 0 };
	r = s->dialect && s->dialect->object_url ?
		    s->dialect->object_url(s, path, tag ? tag : "", &url) :
		    store_object_url(s, path, &url);
	if (r < 0)
		return r;
	r = store_request_url(s, path, url, ret);
	ret->tag = tag;
	return r;
}

void store_request_release(struct http_request *q)
{
	buf_release(&q->body);
	free((char *)(uintptr_t)q->url);
	free((char *)(uintptr_t)q->name);
	*q = (struct http_request){ 0 };
}

int store_object_of(const struct http_request *q, struct io_object *ret)
{
	if (!q->answer.has_size)
		return fail(-EIO, "cannot read '%s': the server does not say how long it is",
			    q->name);
	*ret = (struct io_object){ .size = q->answer.size,
				   .mtime.tv_sec = (time_t)MAX(q->answer.mtime, 0) };
	memcpy(ret->tag, q->answer.tag, strlen(q->answer.tag) + 1);
	return 0;
}

/* ---- look-ups and listings ---- */

int store_directory(struct store *s, const char *path, struct object_list **ret)
{
	struct object_list *l = dir_cache_listing(&s->dirs, path);
	int r;

	if (!l || l->is_truncated) {
		object_list_free(l);
		r = s->kind->fetch(s, path, &l);
		if (r < 0)
			return r;
		dir_cache_add_listing(&s->dirs, l);
	}
	*ret = l;
	return 0;
}

int store_look_into(struct store *s, const char *path, struct io_object *ret)
{
	auto_of(object_list) struct object_list *l = NULL;
	int r = store_directory(s, path, &l);

	if (r < 0)
		return r;
	*ret = object_list_dir(l);
	return 0;
}

bool store_is_top(const struct store *s, const char *path)
{
	return !*path || (s->base.top && !strcmp(path, s->base.top));
}

/* Whether the error r says only that the root has no objects yet, and that is allowed. */
static bool is_empty_root(const struct store *s, const char *path, int r)
{
	if (r != -ENOENT || !store_is_top(s, path) || !s->opts.may_be_empty)
		return false;
	err_clear();
	return true;
}

/* Look up an object by the range that is read next. Returns 1 if this does not work for it. */
static int look_by_range(struct store *s, const char *path, const struct io_want *want,
			 struct io_object *ret)
{
	auto_first_range first = { 0 };
	int r = first_range_begin(s, path, NULL, want, &first);

	if (r < 0)
		return r;
	r = first_range_end(s, &first);
	if (r == -ENOENT)
		r = fail(r, "'%s' does not exist", first.req.name);
	/* The object ends before the range, is a directory, or may not be requested in this way. */
	if (r == -EUCLEAN || r == -EACCES || first.req.answer.is_directory) {
		err_clear();
		return 1;
	}
	if (r < 0)
		return r;
	*ret = first.object;
	first_range_keep(s, &first);
	return 0;
}

static int url_lookup(struct io_store *base, const char *path, const struct io_want *want,
		      struct io_object *ret)
{
	struct store *s = store_of(base);
	auto_of(object_list) struct object_list *own = dir_cache_listing(&s->dirs, path);
	struct dir_lookup lookup;
	int found, r = 1;

	if (own) {
		*ret = object_list_dir(own);
		return 0;
	}
	found = store_is_top(s, path) ? -1 : dir_cache_find(&s->dirs, path, ret);
	if (found > 0)
		return 0;
	if (found == 0)
		return fail(-ENOENT, "'%s/%s' does not exist", base->url, path);
	if (dir_cache_lookup(&s->dirs, path, &lookup, ret))
		return 0;
	/* If there is a cache on disk, it may have the range, which need not be fetched along. */
	if (want && !s->cache && dir_cache_by_range(&s->dirs, path, s->kind->list_begin))
		r = look_by_range(s, path, want, ret);
	dir_cache_lookup_end(&s->dirs, path, &lookup, r == 0 ? ret : NULL);
	if (r > 0)
		r = s->kind->look(s, path, ret);
	if (!is_empty_root(s, path, r))
		return r;
	*ret = (struct io_object){ .is_dir = true };
	return 0;
}

static int url_list(struct io_store *base, const char *path, io_store_fn *each, void *arg)
{
	struct store *s = store_of(base);
	auto_of(object_list) struct object_list *l = NULL;
	int r = store_directory(s, path, &l);

	if (r < 0)
		return is_empty_root(s, path, r) ? 0 : r;
	for (size_t i = 0; i < l->n && r == 0; i++) {
		const struct io_object o = object_list_get(&l->entry[i]);

		r = each(arg, l->entry[i].name, &o);
	}
	return r;
}

static int url_begin(struct io_store *base, struct io_engine *io)
{
	struct store *s = store_of(base);

	return s->cache ? store_cache_begin(s->cache, io) : 0;
}

static int url_submit(struct io_store *base, struct io_req *req, size_t n)
{
	struct store *s = store_of(base);

	return s->cache ? store_cache_submit(s->cache, req, n) : store_submit(base, req, n);
}

static int url_wait(struct io_store *base, struct io_req *req, size_t n)
{
	struct store *s = store_of(base);

	return s->cache ? store_cache_wait(s->cache, req, n) : store_wait(base, req, n);
}

static void refresh(struct io_store *base)
{
	dir_cache_forget(&store_of(base)->dirs, NULL);
}

static void quiesce(struct io_store *base)
{
	http_quiesce(store_of(base)->http);
}

static const char *url_file_of(struct io_store *base, size_t i)
{
	struct store *s = store_of(base);

	return s->kind->file(s, i);
}

static void store_free(struct io_store *base)
{
	struct store *s = store_of(base);

	if (--s->refs)
		return;
	store_cache_free(s->cache);
	http_free(s->http);
	s->kind->close(s);
	dir_cache_release(&s->dirs);
	free(s->root);
	free(s->netrc_file);
	free(s->base.url);
	free(s->base.top);
	free(s);
}

static void stats(struct io_store *base, struct io_store_stats *ret)
{
	struct store *s = store_of(base);
	struct http_stats h;

	http_stats(s->http, &h);
	*ret = (struct io_store_stats){ .requests = h.requests,
					.retries = h.retries,
					.received_bytes = h.bytes,
					.date = h.date };
	if (s->cache)
		store_cache_stats(s->cache, ret);
}

static const struct io_store_ops ops = {
	.name = "url",
	.begin = url_begin,
	.lookup = url_lookup,
	.list = url_list,
	.submit = url_submit,
	.wait = url_wait,
	.refresh = refresh,
	.quiesce = quiesce,
	.file = url_file_of,
	.stats = stats,
	.free = store_free,
};

/* ---- opening ---- */

int store_request_submit(struct store *s, struct http_request *q)
{
	int r = s->kind->prepare(s);

	if (r >= 0)
		return http_submit(s->http, q);
	http_refuse(q, r);
	return r;
}

int store_request_wait(struct store *s, struct http_request *q)
{
	int r = http_wait(s->http, q);

	for (int i = 0; i < RENEWALS && r < 0 && q->has_expired; i++) {
		err_clear();
		r = store_request_submit(s, q);
		if (r < 0)
			return r;
		r = http_wait(s->http, q);
	}
	return r;
}

int store_set_urls(struct store *s, const char *url, const char *root)
{
	size_t n = strlen(url), m = strlen(root);

	while (url[n - 1] == '/' || (n > 2 && url[n - 1] == '.' && url[n - 2] == '/'))
		n--;
	while (root[m - 1] == '/' || (m > 2 && root[m - 1] == '.' && root[m - 2] == '/'))
		m--;
	s->base.url = span_dup_str(span_of(url, n));
	s->root = span_dup_str(span_of(root, m));
	return s->base.url && s->root ? 0 : fail(-ENOMEM, "cannot open '%s'", url);
}

/* Schemes of URLs. */
static const struct scheme {
	const char *name;
	const struct store_kind *kind;
	const struct bucket_dialect *dialect;
} schemes[] = {
	{ "http://", &web_store, NULL },
	{ "https://", &web_store, NULL },
	{ "s3://", &bucket_store, &s3_dialect },
	{ "gs://", &bucket_store, &gcs_dialect },
};

/* NULL: not one of ours. */
static const struct scheme *scheme_of(const char *url)
{
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (!strncmp(url, schemes[i].name, strlen(schemes[i].name)))
			return &schemes[i];
	return NULL;
}

bool store_is_bucket(const char *url)
{
	const struct scheme *scheme = scheme_of(url);

	return scheme && scheme->dialect;
}

/* Without the cache on disk. */
static int url_open_store(const char *url, const struct url_store_opts *opts, struct store **ret)
{
	struct http_opts ho = HTTP_OPTS_DEFAULT;
	const struct scheme *scheme = scheme_of(url);
	struct store *s;
	int r;

	if (!scheme)
		return fail(-EINVAL, "'%s': a source is a path, or a URL of http, https, s3 or gs",
			    url);
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(-ENOMEM, "cannot open '%s'", url);
	s->refs = 1;
	s->kind = scheme->kind;
	s->dialect = scheme->dialect;
	s->opts = *opts;
	s->base.ops = &ops;
	s->base.no_rename = s->kind->no_rename;
	s->base.no_list = s->kind->no_list;
	dir_cache_init(&s->dirs, opts->listing_ms ? opts->listing_ms : LISTING_MS);
	if (opts->connections)
		ho.connections = opts->connections;
	/* OpenSSL's variable, which libcurl itself ignores. */
	ho.ca_file = getenv("SSL_CERT_FILE");
	r = s->kind->open(s, url);
	ho.netrc_file = s->netrc_file;
	if (r >= 0)
		r = http_new(&ho, &s->http);
	if (r < 0) {
		store_free(&s->base);
		return r;
	}
	*ret = s;
	return 0;
}

/* Whether a path of a URL has no part ("", "." or "..") that open() would drop or refuse. */
static bool url_is_plain(const char *path)
{
	for (const char *at = path; *at; at += strcspn(at, "/")) {
		size_t n;

		at += *at == '/';
		n = strcspn(at, "/");
		if (n == 0 || (n <= 2 && !strncmp(at, "..", n)))
			return false;
	}
	return true;
}

/* Get the store of a search for a directory of its server, if a path leads there; or NULL. */
static struct store *store_of_search(const struct url_search *search, const char *url)
{
	struct store *s = search && search->store ? store_of(search->store) : NULL;
	size_t n = s ? strlen(s->base.url) : 0;
	const char *path = url + n + (s && url[n] == '/');
	auto_buf escaped = { 0 };
	char *top;

	if (!s || strncmp(url, s->base.url, n) || (url[n] && url[n] != '/') || !url_is_plain(path))
		return NULL;
	/* The URLs of buckets have no escapes. */
	if (!s->dialect &&
	    (path_escape(&escaped, path) < 0 || !span_eq(buf_span(&escaped), span_str(path))))
		return NULL;
	top = strdup(path);
	if (!top)
		return NULL;
	free(s->base.top);
	s->base.top = top;
	s->refs++;
	return s;
}

int store_open(const char *url, const struct url_store_opts *opts, struct io_store **ret)
{
	struct store *s = store_of_search(opts->search, url);
	int r = s ? 0 : url_open_store(url, opts, &s);

	if (r < 0)
		return r;
	s->opts = *opts;
	if (opts->cache_dir) {
		const struct store_cache_opts of_cache = { .dir = opts->cache_dir,
							   .limit = opts->cache_dir_limit,
							   .root = s->root,
							   .store = &s->base,
							   .submit = store_submit,
							   .wait = store_wait };

		/* A search has one store for all attempts to open a directory on its path. */
		store_cache_free(take(s->cache));
		r = store_cache_new(&of_cache, &s->cache);
	}
	if (r < 0)
		store_free(&s->base);
	else
		*ret = &s->base;
	return r;
}

int store_make_cache_dir(const char *path)
{
	return piece_dir_make(path);
}

int url_search(const char *url, const struct url_store_opts *opts, struct url_search *search,
	       size_t *ret)
{
	size_t host = (size_t)(strstr(url, "://") + 3 - url), n = 0;
	auto_free char *root = NULL;
	struct store *s;
	int r;

	host += strcspn(url + host, "/");
	*ret = strlen(url);
	if (!url[host])
		return 0;
	root = span_dup_str(span_of(url, host));
	r = root ? url_open_store(root, opts, &s) : fail(-ENOMEM, "cannot open '%s'", url);
	if (r < 0)
		return r;
	r = s->kind->reach(s, url + host + 1, &n);
	if (r < 0) {
		store_free(&s->base);
		return r;
	}
	*ret = n ? host + 1 + n : host;
	url_search_end(search);
	*search = (struct url_search){ &s->base, *ret };
	return 0;
}

void url_search_end(struct url_search *search)
{
	if (search->store)
		store_free(search->store);
	*search = (struct url_search){ 0 };
}
