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
#include "core/base/path.h"
#include "core/remote/bucket/bucket.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/remote/source/store_ahead.h"

#define PAGES_MAX 10000

/* ---- listings ---- */

/* A listing while its pages are requested. */
struct store_listing {
	struct store *s;
	struct object_list *l;
	char *prefix;  /* of all keys in the directory */
	unsigned most; /* the number of names on a page; 0: the server's default */
	bool has_any;  /* a key was seen, maybe only the object that some tools make for the
			  directory itself */
	struct bucket_page page; /* the last one */
	struct http_request req;
};

static void listing_free(struct store_listing *a)
{
	if (!a)
		return;
	store_request_release(&a->req);
	buf_release(&a->page.next);
	object_list_free(a->l);
	free(a->prefix);
	free(a);
}
DEFINE_AUTO(store_listing, struct store_listing, listing_free);

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
	return store_request_submit(a->s, &a->req);
}

int bucket_list_begin(struct store *s, const char *path, unsigned most, struct store_listing **ret)
{
	auto_of(store_listing) struct store_listing *a = calloc(1, sizeof(*a));
	const char *prefix = bucket_of(s)->prefix;
	int r;

	if (a)
		a->prefix = str_fmt("%s%s%s%s", prefix, *prefix ? "/" : "", path, *path ? "/" : "");
	if (!a || !a->prefix)
		return fail(-ENOMEM, "cannot list '%s'", path);
	a->s = s;
	a->most = most;
	r = object_list_new(path, dir_cache_epoch(&s->dirs), &a->l);
	if (r < 0)
		return r;
	r = listing_request(a);
	if (r < 0)
		return r;
	*ret = take(a);
	return 0;
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
	a->l->is_truncated = a->page.is_truncated;
	*ret = take(a->l);
	return 0;
}

int bucket_list_end(struct store_listing *listing, struct io_object *ret)
{
	auto_of(store_listing) struct store_listing *a = listing;
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
		dir_cache_add_listing(&a->s->dirs, l);
	return 0;
}

int bucket_fetch(struct store *s, const char *path, struct object_list **ret)
{
	auto_of(store_listing) struct store_listing *a = NULL;
	int r = bucket_list_begin(s, path, 0, &a);

	if (r < 0)
		return r;
	r = listing_wait(a);
	for (int pages = 1; r >= 0 && a->page.is_truncated; pages++) {
		if (pages == PAGES_MAX)
			return fail(-EFBIG, "the listing of '%s/%s' has more than %d pages",
				    s->base.url, path, PAGES_MAX);
		r = listing_request(a);
		if (r < 0)
			return r;
		r = listing_wait(a);
	}
	return r < 0 ? r : listing_finish(a, ret);
}

/* ---- look-ups ---- */

/* List the first page of a directory. */
static int look_into(struct store *s, const char *path, struct io_object *ret)
{
	struct store_listing *a;
	int r = bucket_list_begin(s, path, 0, &a);

	return r < 0 ? r : bucket_list_end(a, ret);
}

/* Look for an object and for a directory of this name, both at once. */
static int look_for_both(struct store *s, const char *path, struct io_object *ret)
{
	auto_store_request q = { 0 };
	struct err_note why = { 0 };
	int r = bucket_about_begin(s, path, &q), as_directory, as_object;

	if (r < 0)
		return r;
	as_directory = look_into(s, path, ret);
	if (as_directory < 0 && as_directory != -ENOENT)
		err_save(as_directory, &why);
	as_object = store_request_wait(s, &q);
	if (why.code)
		return err_restore(&why);
	if (as_directory < 0)
		return as_object < 0 ? as_object : s->dialect->take_about(&q, ret);
	err_clear();
	return 0;
}

/* ---- look-ups ahead ---- */

/* Request the first pages of the directories that follow `path` in the one that it is in. */
static void list_next(struct store_ahead *a, const char *path, const struct object_list *within)
{
	const char *name = path_last(path);

	for (size_t i = 0; i < within->n && a->n_listings < AHEAD_LISTINGS - 1; i++) {
		const struct object_list_entry *e = &within->entry[i];
		auto_free char *next = NULL;

		if (!e->is_dir || strcmp(e->name, name) <= 0)
			continue;
		next = str_fmt("%.*s%s", (int)(name - path), path, e->name);
		if (!next ||
		    (!dir_cache_has_listing(&a->s->dirs, next) && store_ahead_list(a, next, 0) < 0))
			return;
	}
}

/* List the first page of a directory, and of those that will be looked into next. */
static int list_ahead(struct store *s, const char *path)
{
	auto_free struct store_ahead *a = calloc(1, sizeof(*a));
	auto_free char *up = span_dup_str(path_above(path));
	auto_of(object_list) struct object_list *within =
		*path && up ? dir_cache_listing(&s->dirs, up) : NULL;
	struct store_listing *first;
	struct err_note why = { 0 };
	struct io_object dir;
	int r;

	if (!a)
		return fail(-ENOMEM, "cannot list '%s'", path);
	a->s = s;
	r = bucket_list_begin(s, path, 0, &first);
	if (r < 0)
		return r;
	if (within && !within->is_truncated && dir_cache_is_next(&s->dirs, path))
		list_next(a, path, within);
	r = bucket_list_end(first, &dir);
	err_save(r, &why);
	store_ahead_end(a);
	return r < 0 ? err_restore(&why) : 0;
}

int bucket_look(struct store *s, const char *path, struct io_object *ret)
{
	auto_free char *parent = span_dup_str(path_above(path));
	int r, found;

	if (!parent)
		return fail(-ENOMEM, "cannot look for '%s'", path);
	if (store_is_top(s, path))
		return look_into(s, path, ret);
	r = dir_cache_has_listing(&s->dirs, parent) ? 0 : list_ahead(s, parent);
	if (r < 0)
		return r;
	found = dir_cache_find(&s->dirs, path, ret);
	if (found > 0)
		return 0;
	return found < 0 ? look_for_both(s, path, ret) :
			   fail(-ENOENT, "'%s/%s' does not exist", s->base.url, path);
}

/* ---- how far a path goes ---- */

/* Of a path with more parts than AHEAD_LISTINGS, the rest is assumed to exist. */
#define REACH_NAMES 100 /* more than most steps and items have; their listings are cached */

/*
 * For a short path, the documents of each directory are requested along with the listings: that is
 * a few requests, and saves one of few round trips. For a long path it would be too many requests.
 */
#define GUESS_PARTS 3 /* the leaf is one */

static const char *const guesses[] = { "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt" };
_Static_assert(GUESS_PARTS *ARRAY_LEN(guesses) <= AHEAD_RANGES, "all are requested");

/* end[i]: how many bytes of the path are the directory of listing i. */
static int begin_reach(struct store_ahead *a, const char *path, size_t end[AHEAD_LISTINGS])
{
	size_t n_parts = 1;
	bool is_short;

	for (const char *c = path; *c; c++)
		n_parts += *c == '/';
	/* A cache on disk may have the documents. */
	is_short = n_parts <= GUESS_PARTS && !a->s->opts.cache_dir;
	for (size_t at = 0; path[at] && a->n_listings < AHEAD_LISTINGS; at += path[at] == '/') {
		auto_free char *dir = NULL;
		int r;

		at += strcspn(path + at, "/");
		end[a->n_listings] = at;
		dir = span_dup_str(span_of(path, at));
		r = dir ? store_ahead_list(a, dir, REACH_NAMES) :
			  fail(-ENOMEM, "cannot look for '%s'", path);
		if (r < 0)
			return r;
		for (size_t i = 0; i < ARRAY_LEN(guesses) && is_short && path[at]; i++) {
			auto_free char *guess = str_fmt("%s/%s", dir, guesses[i]);

			if (guess && first_range_guess(a->s, guess, &a->range[a->n_ranges]) >= 0)
				a->n_ranges++;
		}
	}
	return 0;
}

/* A part that could not be listed may exist, too. */
int bucket_reach(struct store *s, const char *path, size_t *ret)
{
	auto_free struct store_ahead *a = calloc(1, sizeof(*a));
	size_t end[AHEAD_LISTINGS], n;
	struct err_note why;
	int r;

	if (!a)
		return fail(-ENOMEM, "cannot look for '%s'", path);
	a->s = s;
	r = begin_reach(a, path, end);
	err_save(r, &why);
	n = store_ahead_end(a);
	/* The last parts may not have been asked for. */
	*ret = n && n < AHEAD_LISTINGS ? end[n - 1] : strlen(path);
	return r < 0 ? err_restore(&why) : 0;
}
