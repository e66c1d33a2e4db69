/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_look.c - listings of a bucket, and look-ups, which listings answer.
 *
 * A look-up lists the directory of the name, which answers look-ups of all its siblings, too. If
 * that directory has more names than a page, the object and the directory of that name are
 * requested instead, both at once. When a reader looks into one directory after another, as for the
 * markers of steps, the next ones are listed ahead.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/bucket/bucket.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/source/documents.h"
#include "core/remote/source/first_range.h"

#define PAGES_MAX 10000

/* ---- listings ---- */

/* A listing while its pages are requested. */
struct store_listing {
	struct store *s;
	struct object_list *l;
	char *prefix;   /* of all keys in the directory */
	unsigned epoch; /* of the cache of directories */
	unsigned most;  /* the number of names on a page; 0: the server's default */
	bool has_any;   /* a key was seen, maybe only the object that some tools make for the
			   directory itself */
	struct bucket_page page; /* the last one */
	struct http_request req;
};

static void listing_release(struct store_listing *a)
{
	store_request_release(&a->req);
	buf_release(&a->page.next);
	object_list_free(a->l);
	free(a->prefix);
	*a = (struct store_listing){ 0 };
}
#define auto_store_listing __attribute__((cleanup(listing_release))) struct store_listing

/* Request the page after a->page. */
static int listing_request(struct store_listing *a)
{
	const char *token = a->page.next.n ? buf_str(&a->page.next) : "";
	auto_buf url = { 0 };
	int r;

	if (!token || a->s->dialect->page_url(a->s, a->prefix, token, a->most, &url) < 0 ||
	    !buf_str(&url))
		return fail(-ENOMEM, "cannot list '%s'", a->l->path);
	store_request_release(&a->req);
	r = store_request_url(a->s, a->l->path, (char *)take(url.p), &a->req);
	if (r < 0)
		return r;
	a->req.limit = BUCKET_PAGE_BYTES;
	return http_submit(a->s->http, &a->req);
}

static int listing_begin(struct store *s, const char *path, unsigned most, struct store_listing *a)
{
	const char *prefix = bucket_of(s)->prefix;
	int r;

	*a = (struct store_listing){ .s = s, .epoch = dir_cache_epoch(&s->dirs), .most = most };
	a->prefix = str_fmt("%s%s%s%s", prefix, *prefix ? "/" : "", path, *path ? "/" : "");
	r = a->prefix ? object_list_new(path, &a->l) : fail(-ENOMEM, "cannot list '%s'", path);
	if (r >= 0)
		r = listing_request(a);
	if (r < 0)
		listing_release(a);
	return r;
}

static int bucket_add_key(void *arg, struct span key, const struct io_object *o)
{
	struct store_listing *a = arg;
	struct span name;

	if (!span_starts(key, span_str(a->prefix)))
		return fail(-EUCLEAN, "it has a key that does not begin with the prefix '%s'",
			    a->prefix);
	a->has_any = true;
	name = span_from(key, strlen(a->prefix));
	if (o->is_dir && span_ends(name, span_str("/")))
		name.n--;
	if (name.n && memchr(name.p, '/', name.n))
		return fail(-EUCLEAN, "it has keys of directories below '%s'", a->prefix);
	if (a->l->n >= LIMIT_LISTING_NAMES)
		return fail(-EFBIG, "it has more than %d names", LIMIT_LISTING_NAMES);
	return object_list_add(a->l, name, o);
}

/* Wait for a page and add its entries to the listing. */
static int listing_wait(struct store_listing *a)
{
	auto_buf asked = a->page.next;
	int r = store_request_wait(a->s, &a->req);

	a->page.next = (struct buf){ 0 };
	if (r < 0)
		return r;
	r = a->s->dialect->parse_page(buf_span(&a->req.body), bucket_add_key, a, &a->page);
	/* The same page would come for ever. */
	if (r >= 0 && a->page.is_truncated && span_eq(buf_span(&a->page.next), buf_span(&asked)))
		r = fail(-EUCLEAN, "a page names itself as the one that follows");
	return r < 0 ? err_at(r, "the listing of '%s'", a->req.name) : 0;
}

/* Give the listing to the caller. -ENOENT: no key was seen. */
static int listing_finish(struct store_listing *a, struct object_list **ret)
{
	const char *url = a->s->base.url, *path = a->l->path;

	if (!a->has_any && !a->page.is_truncated && !*a->prefix)
		return fail(-ENOENT, "'%s' is an empty bucket", url);
	if (!a->has_any && !a->page.is_truncated)
		return fail(-ENOENT, "'%s%s%s' does not exist: no key begins with '%s'", url,
			    *path ? "/" : "", path, a->prefix);
	object_list_finish(a->l);
	a->l->is_truncated = a->l->is_partial = a->page.is_truncated;
	*ret = take(a->l);
	return 0;
}

static int listing_add_page(struct store_listing *a, struct io_object *ret)
{
	auto_of(object_list) struct object_list *l = NULL;
	int r = listing_wait(a);

	if (r < 0)
		return r;
	r = listing_finish(a, &l);
	if (r < 0)
		return r;
	*ret = object_list_dir(l);
	/* A truncated part of a page would answer too few look-ups. */
	if (!a->most || !l->is_truncated)
		dir_cache_add_listing(&a->s->dirs, l, a->epoch);
	return 0;
}

/* Wait for the first page, and add it to the cache of directories. */
static int listing_end(struct store_listing *a, struct io_object *ret)
{
	int r = listing_add_page(a, ret);

	listing_release(a);
	return r;
}

int bucket_fetch(struct store *s, const char *path, struct object_list **ret)
{
	auto_store_listing a = { 0 };
	int r = bucket_prepare(s);

	if (r < 0)
		return r;
	r = listing_begin(s, path, 0, &a);
	if (r < 0)
		return r;
	r = listing_wait(&a);
	for (int pages = 1; r >= 0 && a.page.is_truncated; pages++) {
		if (pages == PAGES_MAX)
			return fail(-EFBIG, "the listing of '%s/%s' has more than %d pages",
				    s->base.url, path, PAGES_MAX);
		r = listing_request(&a);
		if (r < 0)
			return r;
		r = listing_wait(&a);
	}
	return r < 0 ? r : listing_finish(&a, ret);
}

int bucket_list_begin(struct store *s, const char *path, struct store_listing **ret)
{
	struct store_listing *a = calloc(1, sizeof(*a));
	int r = a ? listing_begin(s, path, 0, a) : fail(-ENOMEM, "cannot list '%s'", path);

	if (r < 0)
		free(a);
	else
		*ret = a;
	return r;
}

int bucket_list_end(struct store_listing *a)
{
	struct io_object dir;
	int r = listing_end(a, &dir);

	free(a);
	return r;
}

/* ---- look-ups ---- */

/* List the first page of a directory. */
static int look_into(struct store *s, const char *path, struct io_object *ret)
{
	struct store_listing a;
	int r = bucket_prepare(s);

	if (r < 0)
		return r;
	r = listing_begin(s, path, 0, &a);
	return r < 0 ? r : listing_end(&a, ret);
}

/* Look for an object and for a directory of this name, both at once. */
static int look_for_both(struct store *s, const char *path, struct io_object *ret)
{
	struct http_request q = { 0 };
	struct err_note why = { 0 };
	int r = bucket_about_begin(s, path, &q), as_directory, as_object;

	if (r < 0)
		return r;
	as_directory = look_into(s, path, ret);
	if (as_directory < 0 && as_directory != -ENOENT)
		err_save(as_directory, &why);
	as_object = store_request_wait(s, &q);
	if (as_directory >= 0) {
		err_clear();
		r = 0;
	} else if (why.code) {
		r = err_restore(&why);
	} else {
		r = as_object < 0 ? as_object : s->dialect->take_about(&q, ret);
	}
	store_request_release(&q);
	return r;
}

static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return span_dup_str(span_of(path, slash ? (size_t)(slash - path) : 0));
}

/* ---- look-ups ahead ---- */

#define AHEAD 32

/* Whether the last look-up was in another directory of `within`. */
static bool is_next(struct bucket *b, const char *within)
{
	char *copy = strdup(within);
	bool next;

	pthread_mutex_lock(&b->lock);
	next = b->last_within && !strcmp(b->last_within, within);
	free(b->last_within);
	b->last_within = copy;
	pthread_mutex_unlock(&b->lock);
	return next;
}

/* Request the first pages of the directories that follow `path`. Returns how many. */
static size_t list_next(struct store *s, const char *path, const struct object_list *within,
			struct store_listing *a, size_t max)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = 0;

	for (size_t i = 0; i < within->n && n < max; i++) {
		const struct object_list_entry *e = &within->entry[i];
		auto_free char *next = NULL;
		struct object_list *known;

		if (!e->is_dir || strcmp(e->name, name) <= 0)
			continue;
		next = str_fmt("%.*s%s", (int)(name - path), path, e->name);
		known = next ? dir_cache_listing(&s->dirs, next) : NULL;
		object_list_free(known);
		if (known)
			continue;
		if (!next || listing_begin(s, next, 0, &a[n]) < 0)
			break;
		n++;
	}
	return n;
}

/* List the first page of a directory, and of those that will be looked into next. */
static int list_ahead(struct store *s, const char *path)
{
	auto_free struct store_listing *a = calloc(AHEAD, sizeof(*a));
	auto_free char *up = parent_of(path);
	auto_of(object_list) struct object_list *within =
		*path && up ? dir_cache_listing(&s->dirs, up) : NULL;
	struct err_note why = { 0 };
	struct io_object dir;
	size_t n = 1;
	int r = a ? bucket_prepare(s) : fail(-ENOMEM, "cannot list '%s'", path);

	if (r < 0)
		return r;
	r = listing_begin(s, path, 0, &a[0]);
	if (r < 0)
		return r;
	if (within && !within->is_truncated && is_next(bucket_of(s), up))
		n += list_next(s, path, within, &a[1], AHEAD - 1);
	r = listing_end(&a[0], &dir);
	err_save(r, &why);
	for (size_t i = 1; i < n; i++)
		listing_end(&a[i], &dir);
	err_clear();
	return r < 0 ? err_restore(&why) : 0;
}

int bucket_look(struct store *s, const char *path, struct io_object *ret)
{
	auto_free char *parent = parent_of(path);
	struct object_list *l;
	int r, found;

	if (!parent)
		return fail(-ENOMEM, "cannot look for '%s'", path);
	if (store_is_top(s, path))
		return look_into(s, path, ret);
	l = dir_cache_listing(&s->dirs, parent);
	object_list_free(l);
	r = l ? 0 : list_ahead(s, parent);
	if (r < 0)
		return r;
	found = dir_cache_find(&s->dirs, path, ret);
	if (found > 0)
		return 0;
	return found < 0 ? look_for_both(s, path, ret) :
			   fail(-ENOENT, "'%s/%s' does not exist", s->base.url, path);
}

/* ---- how far a path goes ---- */

#define REACH_MAX 32    /* parts of a path; in a longer one the rest is assumed to exist */
#define REACH_NAMES 100 /* more than most steps and items have; their listings are cached */

/*
 * For a short path, the documents of each directory are requested along with the listings: that is
 * a few requests, and saves one of few round trips. For a long path it would be too many requests.
 */
#define GUESS_PARTS 3 /* the leaf is one */

static const char *const guesses[] = { "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt" };

struct reach {
	struct {
		struct store_listing listing;
		size_t n; /* bytes of the path */
	} part[REACH_MAX];
	struct {
		char *path;
		struct first_range first;
	} guess[GUESS_PARTS * ARRAY_LEN(guesses)];
	size_t n_parts, n_guesses;
};

static void guess_documents(struct store *s, const char *dir, struct reach *reach)
{
	for (size_t i = 0; i < ARRAY_LEN(guesses); i++) {
		char *path = str_fmt("%s/%s", dir, guesses[i]);

		if (path && first_range_guess(s, path, &reach->guess[reach->n_guesses].first) >= 0)
			reach->guess[reach->n_guesses++].path = path;
		else
			free(path);
	}
}

static size_t bucket_parts_of(const char *path)
{
	size_t n = 1;

	while ((path = strchr(path, '/'))) {
		path += strspn(path, "/");
		n++;
	}
	return n;
}

static int begin_reach(struct store *s, const char *path, struct reach *reach)
{
	/* A cache on disk may have the documents. */
	bool is_short = bucket_parts_of(path) <= GUESS_PARTS && !s->opts.cache_dir;

	for (size_t at = 0; path[at] && reach->n_parts < REACH_MAX; at += path[at] == '/') {
		auto_free char *dir = NULL;
		int r;

		at += strcspn(path + at, "/");
		dir = span_dup_str(span_of(path, at));
		reach->part[reach->n_parts].n = at;
		r = dir ? listing_begin(s, dir, REACH_NAMES, &reach->part[reach->n_parts].listing) :
			  fail(-ENOMEM, "cannot look for '%s'", path);
		if (r < 0)
			return r;
		reach->n_parts++;
		if (is_short && path[at])
			guess_documents(s, dir, reach);
	}
	return 0;
}

/*
 * Wait for all answers; returns the bytes of the deepest directory, or 0. Errors are ignored: a
 * part that could not be listed may exist, too, and a reader that needs a document meets them
 * again.
 */
static size_t end_reach(struct store *s, struct reach *reach)
{
	struct io_object o;
	size_t found = 0;

	for (size_t i = 0; i < reach->n_parts; i++)
		if (listing_end(&reach->part[i].listing, &o) >= 0)
			found = reach->part[i].n;
	for (size_t i = 0; i < reach->n_guesses; i++) {
		struct first_range *first = &reach->guess[i].first;

		if (first_range_end(s, first, &o) >= 0)
			first_range_keep(s, reach->guess[i].path, &o, first);
		first_range_release(first);
		free(reach->guess[i].path);
	}
	/* The last parts may not have been asked for. */
	return reach->n_parts == REACH_MAX && found == reach->part[REACH_MAX - 1].n ? 0 : found;
}

int bucket_reach(struct store *s, const char *path, size_t *ret)
{
	auto_free struct reach *reach = calloc(1, sizeof(*reach));
	struct err_note why;
	size_t found;
	int r = reach ? bucket_prepare(s) : fail(-ENOMEM, "cannot look for '%s'", path);

	if (r < 0)
		return r;
	r = begin_reach(s, path, reach);
	err_save(r, &why);
	found = end_reach(s, reach);
	err_clear();
	*ret = found ? found : strlen(path);
	return r < 0 ? err_restore(&why) : 0;
}
