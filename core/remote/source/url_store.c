/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store.c - opens the store of a URL; look-ups and listings, which are cached for a while.
 */
#include "core/remote/source/url_store.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/source/first_range.h"
#include "core/remote/cache/piece_dir.h"
#include "core/remote/cache/store_cache.h"
#include "core/remote/source/url_store_impl.h"

#define RENEWALS 2 /* how often credentials are renewed for one request */
#define LISTING_MS 30000

static struct store *store_of(struct io_store *base)
{
	return container_of(base, struct store, base);
}

/* ---- URLs ---- */

int store_object_url(const struct store *s, const char *path, char **ret)
{
	auto_buf url = { 0 };
	int r = buf_add_str(&url, s->root);

	if (r >= 0 && *path)
		r = buf_add_byte(&url, '/');
	if (r >= 0)
		r = path_escape(&url, path);
	if (r < 0 || !buf_str(&url))
		return fail(-ENOMEM, "cannot ask for '%s'", path);
	*ret = (char *)take(url.p);
	return 0;
}

int store_request_url(struct store *s, const char *path, char *url, struct http_request *ret)
{
	char *name = str_fmt("%s%s%s", s->base.url, *path ? "/" : "", path);

	if (!name) {
		free(url);
		return fail(-ENOMEM, "cannot ask for '%s'", path);
	}
	*ret = (struct http_request){ .url = url,
				      .name = name,
				      .tag_header = s->kind->tag_header,
				      .follow = s->kind->follows,
				      .authorize = s->kind->authorize,
				      .explain = s->kind->explain,
				      .arg = s };
	return 0;
}

int store_request(struct store *s, const char *path, const char *tag, struct http_request *ret)
{
	char *url;
	int r = s->kind->object_url ? s->kind->object_url(s, path, tag ? tag : "", &url) :
				      store_object_url(s, path, &url);

	if (r >= 0)
		r = store_request_url(s, path, url, ret);
	if (r >= 0)
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
	struct object_list *l = object_lists_get(&s->listings, path);
	int r = 0;

	if (l && l->is_truncated) {
		object_lists_unref(&s->listings, l);
		l = NULL;
	}
	if (!l) {
		r = s->kind->fetch(s, path, &l);
		if (r >= 0)
			object_lists_put(&s->listings, l);
	}
	if (r >= 0)
		*ret = l;
	return r;
}

int store_find(struct store *s, const char *path, struct io_object *ret)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	auto_free char *parent = slash ? span_dup_str(span_of(path, (size_t)(slash - path))) :
					 strdup("");
	struct object_list *l = parent ? object_lists_get(&s->listings, parent) : NULL;
	int found;

	if (!l)
		return -1;
	found = object_list_find(l, name, ret) ? 1 : object_list_lacks(l, name) ? 0 : -1;
	object_lists_unref(&s->listings, l);
	return found;
}

/* Whether the error r says only that the root has no objects yet, and that is allowed. */
static bool is_empty_root(const struct store *s, const char *path, int r)
{
	if (r != -ENOENT || *path || !s->opts.may_be_empty)
		return false;
	err_clear();
	return true;
}

/* Look up an object by the range that is read next. Returns 1 if this does not work for it. */
static int look_by_range(struct store *s, const char *path, const struct io_want *want,
			 struct io_object *ret)
{
	struct first_range first;
	int r = store_prepare(s);

	if (r >= 0)
		r = first_range_begin(s, path, NULL, want, &first);
	if (r < 0)
		return r;
	r = first_range_end(s, &first, ret, NULL);
	if (r == -ENOENT)
		r = fail(r, "'%s' does not exist", first.req.name);
	/* The object ends before the range, is a directory, or may not be requested in this way. */
	if (r == -EUCLEAN || r == -EACCES || first.req.answer.is_directory) {
		err_clear();
		r = 1;
	}
	if (r == 0)
		first_range_keep(s, path, ret, &first);
	first_range_release(&first);
	return r;
}

static int look(struct store *s, const char *path, const struct io_want *want,
		struct io_object *ret)
{
	struct looked_turn turn;
	int r = 1;

	if (looked_begin(&s->looked, path, &turn, ret))
		return 0;
	if (want && along_by_range(&s->along, path, s->kind->list_begin))
		r = look_by_range(s, path, want, ret);
	looked_end(&s->looked, path, &turn, r == 0 ? ret : NULL);
	return r > 0 ? s->kind->look(s, path, ret) : r;
}

static int lookup(struct io_store *base, const char *path, const struct io_want *want,
		  struct io_object *ret)
{
	struct store *s = store_of(base);
	struct object_list *own = object_lists_get(&s->listings, path);
	int found;

	if (own) {
		*ret = (struct io_object){ .is_dir = true, .mtime = object_list_newest(own) };
		object_lists_unref(&s->listings, own);
		return 0;
	}
	found = *path ? store_find(s, path, ret) : -1;
	if (found < 0) {
		int r = look(s, path, want, ret);

		if (!is_empty_root(s, path, r))
			return r;
		*ret = (struct io_object){ .is_dir = true };
		return 0;
	}
	return found ? 0 : fail(-ENOENT, "'%s/%s' does not exist", base->url, path);
}

static int list(struct io_store *base, const char *path, io_store_fn *each, void *arg)
{
	struct store *s = store_of(base);
	struct object_list *l;
	int r = store_directory(s, path, &l);

	if (r < 0)
		return is_empty_root(s, path, r) ? 0 : r;
	for (size_t i = 0; i < l->n && r == 0; i++) {
		struct io_object o;

		if (object_list_find(l, l->entry[i].name, &o))
			r = each(arg, l->entry[i].name, &o);
	}
	object_lists_unref(&s->listings, l);
	return r;
}

static void refresh(struct io_store *base)
{
	object_lists_drop(&store_of(base)->listings);
	looked_clear(&store_of(base)->looked);
}

static void quiesce(struct io_store *base)
{
	http_quiesce(store_of(base)->http);
}

static const char *file_of(struct io_store *base, size_t i)
{
	struct store *s = store_of(base);

	return s->kind->file ? s->kind->file(s, i) : NULL;
}

static void store_free(struct io_store *base)
{
	struct store *s = store_of(base);

	http_free(s->http);
	if (s->kind->close)
		s->kind->close(s);
	object_lists_release(&s->listings);
	along_release(&s->along);
	looked_release(&s->looked);
	free(s->root);
	free(s->netrc_file);
	free(s->base.url);
	free(s);
}

static void stats(struct io_store *base, struct io_store_stats *ret)
{
	struct http_stats s;

	http_stats(store_of(base)->http, &s);
	*ret = (struct io_store_stats){ .requests = s.requests,
					.retries = s.retries,
					.received_bytes = s.bytes,
					.hedges = s.hedges,
					.hedges_won = s.hedges_won,
					.date = s.date };
}

static const struct io_store_ops ops = {
	.name = "url",
	.lookup = lookup,
	.list = list,
	.submit = store_submit,
	.wait = store_wait,
	.refresh = refresh,
	.quiesce = quiesce,
	.file = file_of,
	.stats = stats,
	.free = store_free,
};

/* ---- opening ---- */

int store_prepare(struct store *s)
{
	return s->kind->prepare ? s->kind->prepare(s) : 0;
}

int store_request_wait(struct store *s, struct http_request *q)
{
	int r = http_wait(s->http, q);

	for (int i = 0; i < RENEWALS && r < 0 && q->has_expired; i++) {
		err_clear();
		r = store_prepare(s);
		if (r < 0) {
			http_refuse(q, r);
			return r;
		}
		r = http_submit(s->http, q);
		if (r >= 0)
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

static int find_kind(const char *url, const struct store_kind **ret)
{
	if (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8))
		*ret = &store_http;
	else if (!strncmp(url, "s3://", 5))
		*ret = &store_s3;
	else if (!strncmp(url, "gs://", 5))
		*ret = &store_gcs;
	else
		return fail(-EINVAL, "'%s': a source is a path, or a URL of http, https, s3 or gs",
			    url);
	return 0;
}

bool store_is_bucket(const char *url)
{
	const struct store_kind *kind = NULL;
	int r = find_kind(url, &kind);

	err_clear();
	return r >= 0 && kind->dialect;
}

static int fill(struct store *s, const char *url, const struct url_store_opts *opts)
{
	struct http_opts ho = HTTP_OPTS_DEFAULT;
	int r;

	s->opts = *opts;
	s->base.ops = &ops;
	s->base.no_rename = s->kind->no_rename;
	s->base.no_list = s->kind->no_list;
	r = s->kind->open(s, url);
	if (r < 0)
		return r;
	if (opts->connections)
		ho.connections = opts->connections;
	/* OpenSSL's variable, which libcurl itself ignores. */
	ho.ca_file = getenv("SSL_CERT_FILE");
	ho.netrc_file = s->netrc_file;
	return http_new(&ho, &s->http);
}

/* ---- the store that a path was last looked for in ---- */

/* After store_reach() its caller opens the URL that was found: the store is kept for that, with its
 * connections, listings and documents. */
static struct {
	pthread_mutex_t lock;
	struct store *s;
} reached = { PTHREAD_MUTEX_INITIALIZER, NULL };

static struct store *swap_reached(struct store *s)
{
	struct store *before;

	pthread_mutex_lock(&reached.lock);
	before = reached.s;
	reached.s = s;
	pthread_mutex_unlock(&reached.lock);
	return before;
}

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same_opts(const struct url_store_opts *a, const struct url_store_opts *b)
{
	return a->connections == b->connections && a->listing_ms == b->listing_ms &&
	       a->addressing == b->addressing && a->anonymous == b->anonymous &&
	       is_same_text(a->endpoint, b->endpoint) && is_same_text(a->region, b->region) &&
	       is_same_text(a->http_headers, b->http_headers);
}

static int descend(struct store *s, const char *url, const char *path)
{
	auto_buf root = { 0 };
	auto_free char *old_url = s->base.url, *old_root = s->root;
	int r;

	s->base.url = s->root = NULL;
	r = buf_addf(&root, "%s%s", old_root, *path ? "/" : "");
	if (r >= 0)
		r = s->kind->descend ? path_escape(&root, path) : buf_add_str(&root, path);
	if (r >= 0)
		r = buf_str(&root) ? store_set_urls(s, url, buf_str(&root)) : -ENOMEM;
	return r < 0 || !s->kind->descend ? r : s->kind->descend(s, path);
}

/* Whether a path has no part ("", "." or "..") that open() would drop or refuse. */
static bool is_plain(const char *path)
{
	while (*path == '/') {
		size_t n = strcspn(++path, "/");

		if (n == 0 || (n <= 2 && !strncmp(path, "..", n)))
			return false;
		path += n;
	}
	return true;
}

/* The store of the last store_reach(), with `url` as its root; NULL if it does not fit. */
static struct store *take_reached(const char *url, const struct url_store_opts *opts)
{
	struct store *s = swap_reached(NULL);
	size_t n = s ? strlen(s->base.url) : 0;

	if (!s)
		return NULL;
	if (!strncmp(url, s->base.url, n) && (!url[n] || url[n] == '/') && is_plain(url + n) &&
	    is_same_opts(&s->opts, opts)) {
		const char *path = url + n + (url[n] == '/');

		if (descend(s, url, path) >= 0) {
			s->opts = *opts;
			object_lists_descend(&s->listings, path);
			along_descend(&s->along, path);
			looked_clear(&s->looked);
			return s;
		}
		err_clear();
	}
	store_free(&s->base);
	return NULL;
}

/* Open a store without its cache on disk. */
static int open_store(const char *url, const struct url_store_opts *opts, struct store **ret)
{
	const struct store_kind *kind = NULL;
	struct store *s;
	int r = find_kind(url, &kind);

	if (r < 0)
		return r;
	s = take_reached(url, opts);
	if (s) {
		*ret = s;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(-ENOMEM, "cannot open '%s'", url);
	s->kind = kind;
	object_lists_init(&s->listings, opts->listing_ms ? opts->listing_ms : LISTING_MS);
	along_init(&s->along, opts->listing_ms ? opts->listing_ms : LISTING_MS);
	looked_init(&s->looked, opts->listing_ms ? opts->listing_ms : LISTING_MS);
	r = fill(s, url, opts);
	if (r < 0) {
		store_free(&s->base);
		return r;
	}
	*ret = s;
	return 0;
}

int store_open(const char *url, const struct url_store_opts *opts, struct io_store **ret)
{
	struct store *s;
	int r = open_store(url, opts, &s);

	if (r < 0)
		return r;
	*ret = &s->base;
	if (!opts->cache_dir)
		return 0;
	const struct store_cache_opts cache = { .dir = opts->cache_dir,
						.limit = opts->cache_dir_limit,
						.root = s->root };

	return store_cache_new(&cache, &s->base, ret);
}

int store_make_cache_dir(const char *path)
{
	return piece_dir_make(path);
}

int store_reach(const char *url, const struct url_store_opts *opts, size_t *ret)
{
	const struct store_kind *kind = NULL;
	size_t host, n = 0;
	auto_free char *top = NULL;
	struct store *s, *before;
	int r = find_kind(url, &kind);

	if (r < 0)
		return r;
	host = (size_t)(strstr(url, "://") + 3 - url);
	host += strcspn(url + host, "/");
	if (!kind->reach || !url[host]) {
		*ret = strlen(url);
		return 0;
	}
	top = span_dup_str(span_of(url, host));
	r = top ? open_store(top, opts, &s) : fail(-ENOMEM, "cannot open '%s'", url);
	if (r < 0)
		return r;
	r = kind->reach(s, url + host + 1, &n);
	before = r < 0 ? s : swap_reached(s);
	if (before)
		store_free(&before->base);
	if (r >= 0)
		*ret = n ? host + 1 + n : host;
	return r;
}
