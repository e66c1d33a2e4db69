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
#include "core/remote/dialects/bucket.h"
#include "core/remote/dialects/bucket_write.h"
#include "core/remote/source/first_range.h"

#define PAGES_MAX 10000

/* ---- listings ---- */

/* The prefix of all keys in a directory. */
static char *prefix_of(const struct store *s, const char *path)
{
	const char *prefix = bucket_of(s)->prefix;

	return str_fmt("%s%s%s%s", prefix, *prefix ? "/" : "", path, *path ? "/" : "");
}

/* Prepare a request for a page. most: the number of names on it, or 0 for the server's default. */
static int page_request(struct store *s, const char *path, struct buf *token, unsigned most,
			struct http_request *ret)
{
	auto_free char *prefix = prefix_of(s, path);
	const char *from = token->n ? buf_str(token) : "";
	auto_buf url = { 0 };
	int r = prefix && from ? s->kind->dialect->page_url(s, prefix, from, most, &url) : -ENOMEM;

	if (r >= 0)
		r = buf_str(&url) ? store_request_url(s, path, (char *)take(url.p), ret) : -ENOMEM;
	if (r < 0)
		return fail(-ENOMEM, "cannot list '%s'", path);
	ret->limit = BUCKET_PAGE_BYTES;
	return 0;
}

struct paging {
	struct store *s;
	const char *name;
	struct object_list *l;
	char *prefix;
	bool has_any; /* a key was seen, maybe only the object that some tools make for the
			 directory itself */
};

static int add_key(void *arg, struct span key, const struct io_object *o)
{
	struct paging *p = arg;
	struct span name;

	if (!span_starts(key, span_str(p->prefix)))
		return fail(-EUCLEAN, "it has a key that does not begin with the prefix '%s'",
			    p->prefix);
	p->has_any = true;
	name = span_from(key, strlen(p->prefix));
	if (o->is_dir && span_ends(name, span_str("/")))
		name.n--;
	if (name.n && memchr(name.p, '/', name.n))
		return fail(-EUCLEAN, "it has keys of directories below '%s'", p->prefix);
	if (p->l->n >= LIMIT_LISTING_NAMES)
		return fail(-EFBIG, "it has more than %d names", LIMIT_LISTING_NAMES);
	return object_list_add(p->l, name, o);
}

/* Wait for a page and add its entries to the listing. */
static int take_page(struct paging *p, struct http_request *q, struct bucket_page *page)
{
	int r = store_request_wait(p->s, q);

	if (r >= 0) {
		r = p->s->kind->dialect->parse_page(buf_span(&q->body), add_key, p, page);
		if (r < 0)
			r = err_at(r, "the listing of '%s'", q->name);
	}
	store_request_release(q);
	return r;
}

static void paging_release(struct paging *p)
{
	object_list_free(p->l);
	free(p->prefix);
}

static int paging_init(struct paging *p, struct store *s, const char *path)
{
	int r;

	*p = (struct paging){ .s = s, .name = path, .prefix = prefix_of(s, path) };
	r = p->prefix ? object_list_new(path, &p->l) : fail(-ENOMEM, "cannot list '%s'", path);
	if (r < 0)
		free(p->prefix);
	return r;
}

/* Finish the listing and give it to the caller, with a reference. -ENOENT: no key was seen. */
static int paging_end(struct paging *p, const struct bucket_page *page, struct object_list **ret)
{
	if (!p->has_any && !page->is_truncated && !*p->prefix)
		return fail(-ENOENT, "'%s' is an empty bucket", p->s->base.url);
	if (!p->has_any && !page->is_truncated)
		return fail(-ENOENT, "'%s%s%s' does not exist: no key begins with '%s'",
			    p->s->base.url, *p->name ? "/" : "", p->name, p->prefix);
	object_list_finish(p->l);
	p->l->is_truncated = p->l->is_partial = page->is_truncated;
	*ret = take(p->l);
	return 0;
}

/* List a directory: the first page, or all pages. */
static int list_pages(struct store *s, const char *path, bool all, struct object_list **ret)
{
	struct bucket_page page = { 0 };
	struct paging p;
	int r = store_prepare(s);

	if (r >= 0)
		r = paging_init(&p, s, path);
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && (i == 0 || (all && page.is_truncated)); i++) {
		struct http_request q = { 0 };

		r = i < PAGES_MAX ? page_request(s, path, &page.next, 0, &q) :
				    fail(-EFBIG, "the listing of '%s/%s' has more than %d pages",
					 s->base.url, path, PAGES_MAX);
		if (r >= 0)
			r = http_submit(s->http, &q);
		if (r >= 0)
			r = take_page(&p, &q, &page);
		else
			store_request_release(&q);
	}
	if (r >= 0)
		r = paging_end(&p, &page, ret);
	buf_release(&page.next);
	paging_release(&p);
	return r;
}

int bucket_fetch(struct store *s, const char *path, struct object_list **ret)
{
	return list_pages(s, path, true, ret);
}

/* ---- look-ups ---- */

/* List the first page of a directory, and keep it with the last listings. */
static int look_into(struct store *s, const char *path, struct io_object *ret)
{
	struct object_list *l;
	int r = list_pages(s, path, false, &l);

	if (r < 0)
		return r;
	object_lists_put(&s->listings, l);
	*ret = (struct io_object){ .is_dir = true, .mtime = object_list_newest(l) };
	object_lists_unref(&s->listings, l);
	return 0;
}

/* Look for an object and for a directory of this name, both at once. */
static int ask_both(struct store *s, const char *path, struct io_object *ret)
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
		r = as_object < 0 ? as_object : s->kind->dialect->take_about(&q, ret);
	}
	store_request_release(&q);
	return r;
}

/* NULL: memory is short. */
static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? span_dup_str(span_of(path, (size_t)(slash - path))) : strdup("");
}

/* ---- look-ups ahead ---- */

#define AHEAD 32

struct store_listing {
	struct paging p;
	struct http_request req;
	char *path;
	unsigned most; /* the number of requested names; 0: a page */
};

static int listing_begin(struct store *s, const char *path, unsigned most, struct store_listing *a)
{
	struct buf no_token = { 0 };
	int r;

	a->most = most;
	a->path = strdup(path);
	r = a->path ? paging_init(&a->p, s, a->path) : fail(-ENOMEM, "cannot list '%s'", path);
	if (r >= 0) {
		r = page_request(s, path, &no_token, most, &a->req);
		if (r >= 0)
			r = http_submit(s->http, &a->req);
		if (r < 0)
			paging_release(&a->p);
	}
	if (r < 0) {
		store_request_release(&a->req);
		free(a->path);
	}
	return r;
}

static int listing_end(struct store *s, struct store_listing *a)
{
	struct bucket_page page = { 0 };
	struct object_list *l = NULL;
	int r = take_page(&a->p, &a->req, &page);

	if (r >= 0)
		r = paging_end(&a->p, &page, &l);
	/* A truncated part of a page would answer too few look-ups. */
	if (r >= 0 && !(a->most && page.is_truncated))
		object_lists_put(&s->listings, l);
	if (r >= 0)
		object_lists_unref(&s->listings, l);
	buf_release(&page.next);
	paging_release(&a->p);
	free(a->path);
	return r;
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

int bucket_list_end(struct store *s, struct store_listing *listing)
{
	int r = listing_end(s, listing);

	free(listing);
	return r;
}

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

/* List the first page of a directory of `within` and of those that follow it, all at once. */
static int list_some(struct store *s, const char *path, const struct object_list *within)
{
	auto_free struct store_listing *a = calloc(AHEAD, sizeof(*a));
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = 0, up = (size_t)(name - path);
	struct err_note why = { 0 };
	int r = a ? listing_begin(s, path, 0, &a[0]) : fail(-ENOMEM, "cannot list '%s'", path);

	if (r < 0)
		return r;
	n = 1;
	for (size_t i = 0; i < within->n && n < AHEAD; i++) {
		const struct object_list_entry *e = &within->entry[i];
		auto_free char *next = NULL;
		struct object_list *known;

		if (!e->is_dir || strcmp(e->name, name) <= 0)
			continue;
		next = str_fmt("%.*s%s", (int)up, path, e->name);
		known = next ? object_lists_get(&s->listings, next) : NULL;
		if (known)
			object_lists_unref(&s->listings, known);
		else if (!next || listing_begin(s, next, 0, &a[n]) < 0)
			break;
		else
			n++;
	}
	for (size_t i = 0; i < n; i++) {
		r = listing_end(s, &a[i]);
		if (i == 0 && r < 0)
			err_save(r, &why);
	}
	err_clear();
	return why.code ? err_restore(&why) : 0;
}

/* List the first page of a directory, and of those that will be looked into next. */
static int look_ahead(struct store *s, const char *path, struct io_object *ret)
{
	auto_free char *up = parent_of(path);
	struct object_list *within = *path && up ? object_lists_get(&s->listings, up) : NULL;
	int r = 0;

	if (!within)
		return look_into(s, path, ret);
	if (within->is_truncated || !is_next(bucket_of(s), up)) {
		r = look_into(s, path, ret);
	} else {
		r = store_prepare(s);
		if (r >= 0)
			r = list_some(s, path, within);
	}
	object_lists_unref(&s->listings, within);
	return r;
}

int bucket_look(struct store *s, const char *path, struct io_object *ret)
{
	auto_free char *parent = parent_of(path);
	struct object_list *l;
	struct io_object dir;
	int r, found;

	if (!parent)
		return fail(-ENOMEM, "cannot look for '%s'", path);
	if (!*path)
		return look_into(s, path, ret);
	l = object_lists_get(&s->listings, parent);
	if (l)
		object_lists_unref(&s->listings, l);
	r = l ? 0 : look_ahead(s, parent, &dir);
	if (r < 0)
		return r;
	found = store_find(s, path, ret);
	if (found > 0)
		return 0;
	return found < 0 ? ask_both(s, path, ret) :
			   fail(-ENOENT, "'%s/%s' does not exist", s->base.url, path);
}

/* ---- how far a path goes ---- */

#define REACH_MAX 32    /* parts of a path; in a longer one the rest is assumed to exist */
#define REACH_NAMES 100 /* more than most steps and items have; their listings are kept */

struct reach {
	struct store_listing listing;
	size_t n; /* bytes of the path */
};

/*
 * For a short path, the documents of each directory are requested along with the listings: that is
 * a few requests, and saves one of few round trips. For a long path it would be too many requests.
 */
#define GUESS_PARTS 3 /* the leaf is one */

static const char *const guesses[] = { "_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt" };

struct guess {
	char *path;
	struct first_range first;
};

struct guessing {
	struct guess guess[GUESS_PARTS * ARRAY_LEN(guesses)];
	size_t n;
};

static void guess_begin(struct store *s, const char *dir, struct guessing *g)
{
	for (size_t i = 0; i < ARRAY_LEN(guesses); i++) {
		struct guess *at = &g->guess[g->n];

		at->path = str_fmt("%s/%s", dir, guesses[i]);
		if (!at->path || first_range_guess(s, at->path, &at->first) < 0)
			free(take(at->path));
		else
			g->n++;
	}
}

/* Keep the documents that exist. Errors are ignored: a reader that needs a document meets them
 * again. */
static void guess_end(struct store *s, struct guessing *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct guess *at = &g->guess[i];
		struct io_object o;

		if (first_range_end(s, &at->first, &o, NULL) >= 0)
			first_range_keep(s, at->path, &o, &at->first);
		first_range_release(&at->first);
		free(at->path);
	}
}

static size_t parts_of(const char *path)
{
	size_t n = 1;

	while ((path = strchr(path, '/'))) {
		path += strspn(path, "/");
		n++;
	}
	return n;
}

int bucket_reach(struct store *s, const char *path, size_t *ret)
{
	auto_free struct reach *part = calloc(REACH_MAX, sizeof(*part));
	auto_free struct guessing *g = calloc(1, sizeof(*g));
	/* A cache on disk may have the documents. */
	bool is_short = parts_of(path) <= GUESS_PARTS && !s->opts.cache_dir;
	struct err_note why = { 0 };
	size_t n = 0, found = 0;
	int r = part && g ? store_prepare(s) : fail(-ENOMEM, "cannot look for '%s'", path);

	*ret = strlen(path);
	for (size_t at = 0; r >= 0 && path[at] && n < REACH_MAX; n += r >= 0) {
		auto_free char *dir = NULL;

		at += strcspn(path + at, "/");
		part[n].n = at;
		dir = span_dup_str(span_of(path, at));
		r = dir ? listing_begin(s, dir, REACH_NAMES, &part[n].listing) : -ENOMEM;
		if (r >= 0 && is_short && path[at])
			guess_begin(s, dir, g);
		at += path[at] == '/';
	}
	if (r < 0)
		err_save(r, &why);
	/* Errors are ignored: a part that could not be listed may exist, too. */
	for (size_t i = 0; i < n; i++)
		if (listing_end(s, &part[i].listing) >= 0)
			found = part[i].n;
	if (g)
		guess_end(s, g);
	err_clear();
	/* The last ones may not have been asked for. */
	if (found && !(n == REACH_MAX && found == part[n - 1].n))
		*ret = found;
	return why.code ? err_restore(&why) : 0;
}
