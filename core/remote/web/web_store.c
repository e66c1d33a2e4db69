/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_store.c - a web server of files: look-ups by HEAD, reads by GET with ranges.
 *
 * Directories cannot be listed. A directory is assumed to have the known names that exist, and the
 * directories that its one document with names lists. All are requested at once, documents by a
 * range that usually is the whole document.
 */
#include <errno.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/path.h"
#include "core/remote/source/store_ahead.h"
#include "core/remote/web/web_headers.h"

#define DOCUMENT_MAX (1 << 20)
#define PROBES_MAX 64

static int web_prepare(struct store *s)
{
	if (s->own)
		web_headers_refresh(s->own);
	return 0;
}

/* -ENOENT without a note: the answer is a page about a directory. */
static int object_of(const struct http_request *q, struct io_object *ret)
{
	return q->answer.is_directory ? -ENOENT : store_object_of(q, ret);
}

static int web_head(struct store *s, const char *path, struct io_object *ret)
{
	auto_first_range f = { 0 };
	int r = first_range_begin(s, path, NULL, NULL, &f);

	if (r < 0)
		return r;
	r = http_wait(s->http, &f.req);
	/* A server may also forbid access to a directory. */
	if (r >= 0 || f.req.answer.is_directory)
		r = object_of(&f.req, ret);
	return r == -ENOENT ? fail(r, "'%s' does not exist", f.req.name) : r;
}

/* ---- a directory ---- */

/* A name that is requested: the beginning of a document, or only whether another file exists. */
struct probe {
	char *path;             /* relative to the root */
	struct span name;       /* in the directory; a part of path */
	bool names_a_directory; /* the part of the path before '/' exists */
	struct first_range first;
};

struct probing {
	struct store *s;
	char *path;
	bool is_given; /* the path comes from the user's URL, with its escapes */
	struct probe probe[PROBES_MAX];
	size_t n;
	struct object_list *listing;
};

static int probing_init(struct probing *p, struct store *s, struct span path)
{
	p->s = s;
	p->path = span_dup_str(path);
	return p->path ? object_list_new(p->path, dir_cache_epoch(&s->dirs), &p->listing) :
			 fail(-ENOMEM, "cannot look into '%.*s'", SPAN_ARG(path));
}

/* No request may be under way. */
static void probing_release(struct probing *p)
{
	for (size_t i = 0; i < p->n; i++) {
		first_range_release(&p->probe[i].first);
		free(p->probe[i].path);
	}
	object_list_free(p->listing);
	free(p->path);
}

static int web_url_of(const struct probing *p, const char *path, char **ret)
{
	if (!p->is_given)
		return store_object_url(p->s, path, ret);
	*ret = str_fmt("%s/%s", p->s->root, path);
	return *ret ? 0 : fail(-ENOMEM, "cannot look into '%s'", path);
}

static int add_probe(struct probing *p, const char *name)
{
	const struct io_want beginning = { 0, IO_FIRST_BYTES };
	/* A cache on disk may have the bytes. */
	bool with_bytes = document_is_name(name) && !p->s->opts.cache_dir;
	struct probe *b = &p->probe[p->n];
	size_t n = strlen(p->path) + (*p->path != '\0'), first = strcspn(name, "/");
	char *url;
	int r;

	if (p->n == PROBES_MAX)
		return 0;
	b->path = str_fmt("%s%s%s", p->path, *p->path ? "/" : "", name);
	if (!b->path)
		return fail(-ENOMEM, "cannot look into '%s'", p->path);
	b->name = span_of(b->path + n, first);
	b->names_a_directory = name[first] == '/';
	r = web_url_of(p, b->path, &url);
	if (r >= 0)
		r = first_range_begin(p->s, b->path, url, with_bytes ? &beginning : NULL,
				      &b->first);
	if (r < 0)
		free(take(b->path));
	else
		p->n++;
	return r;
}

static bool is_known_name(const struct store *s, const char *name)
{
	for (const char *const *k = s->opts.names.name; *k; k++)
		if (!strcmp(*k, name))
			return true;
	return false;
}

/*
 * Request the known names number `from` to `to`. "a/b" is looked for in the directory that has a,
 * and in a itself.
 */
static int add_probes(struct probing *p, size_t from, size_t to)
{
	const char *own = path_last(p->path);
	const char *const *name = p->s->opts.names.name;
	int r = 0;

	for (size_t i = from; i < to && r >= 0; i++) {
		size_t first = strcspn(name[i], "/");

		r = add_probe(p, name[i]);
		if (r < 0)
			return r;
		if (name[i][first] && strlen(own) == first && !strncmp(name[i], own, first) &&
		    !is_known_name(p->s, name[i] + first + 1))
			r = add_probe(p, name[i] + first + 1);
	}
	return r;
}

static size_t n_names(const struct store *s)
{
	size_t n = 0;

	while (s->opts.names.name[n])
		n++;
	return n;
}

static int web_add_directory(void *arg, const char *name)
{
	struct probing *p = arg;
	const struct io_object o = { .is_dir = true };

	return strchr(name, '/') ? 0 : object_list_add(p->listing, span_str(name), &o);
}

/* Request the directories that the document of this directory lists, after reading the whole
 * document if its beginning was not enough. */
static int add_named(struct probing *p, const char *path)
{
	const struct store_names *names = &p->s->opts.names;
	auto_store_request q = { 0 };
	char *url;
	int r = web_url_of(p, path, &url);

	if (r < 0)
		return r;
	r = store_request_url(p->s, path, url, &q);
	if (r < 0)
		return r;
	q.limit = DOCUMENT_MAX;
	r = store_request_submit(p->s, &q);
	if (r < 0)
		return r;
	r = http_wait(p->s->http, &q);
	return r < 0 ? r : names->directories(buf_span(&q.body), web_add_directory, p);
}

static int web_add_found(struct probing *p, struct probe *b)
{
	const struct store_names *names = &p->s->opts.names;
	struct io_object o;
	int r = object_of(&b->first.req, &o);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (b->names_a_directory)
		o = (struct io_object){ .is_dir = true };
	r = object_list_add(p->listing, b->name, &o);
	if (r < 0)
		return r;
	if (names->document && !o.is_dir && span_eq(b->name, span_str(names->document)))
		r = b->first.req.received == o.size ?
			    names->directories(span_of(b->first.piece.p, (size_t)o.size),
					       web_add_directory, p) :
			    add_named(p, b->path);
	if (r < 0)
		return r;
	b->first.object = o;
	first_range_keep(p->s, &b->first);
	return r;
}

/* Wait for all requests. Whether one of the names exists; *failed and *refused are the first
 * errors, of the names that checkpoints usually have.
 */
static bool has_any(struct probing *p, struct err_note *failed, struct err_note *refused)
{
	bool any = false;

	for (size_t i = 0; i < p->n; i++) {
		const struct http_request *q = &p->probe[i].first.req;
		int r = http_wait(p->s->http, &p->probe[i].first.req);

		any |= r >= 0 && !q->answer.is_directory;
		/* An empty document exists, but has no first range. */
		any |= r == -EUCLEAN;
		if (r == -EACCES && !q->answer.is_directory && !refused->code)
			err_save(r, refused);
		if (r < 0 && r != -ENOENT && r != -EACCES && r != -EUCLEAN && !failed->code)
			err_save(r, failed);
	}
	err_clear();
	return any;
}

/* Wait for all requests under way. Returns r, and keeps its note. */
static int web_wait_all(struct probing *p, size_t n, int r)
{
	struct err_note why = { 0 }, other = { 0 };

	if (r < 0)
		err_save(r, &why);
	for (size_t i = 0; i < n; i++)
		has_any(&p[i], &other, &other);
	return r < 0 ? err_restore(&why) : r;
}

/* Look up a document without a first range: it may be empty. */
static int web_ask_again(const struct probing *p, struct probe *b)
{
	auto_first_range again = { 0 };
	char *url;
	int r = web_url_of(p, b->path, &url);

	if (r < 0)
		return r;
	r = first_range_begin(p->s, b->path, url, NULL, &again);
	if (r < 0)
		return r;
	r = http_wait(p->s->http, &again.req);
	b->first.req.result = again.req.result;
	b->first.req.answer = again.req.answer;
	return r == -ENOENT ? 0 : r;
}

/* Some servers answer 403 for a name that does not exist, so refusals are an error only if all
 * names are refused. */
static int web_collect(struct probing *p, struct object_list **ret)
{
	struct err_note refused = { 0 }, failed = { 0 };
	int r = 0;

	has_any(p, &failed, &refused);
	if (failed.code)
		return err_restore(&failed);
	for (size_t i = 0; i < p->n && r >= 0; i++) {
		struct probe *b = &p->probe[i];

		if (b->first.req.result == -EUCLEAN)
			r = web_ask_again(p, b);
		if (r < 0)
			return r;
		if (b->first.req.result >= 0)
			r = web_add_found(p, b);
	}
	if (r < 0)
		return r;
	if (!p->listing->n && refused.code)
		return err_restore(&refused);
	if (!p->listing->n)
		return fail(
			-ENOENT,
			"'%s%s%s' has no file by which a checkpoint is known; over http nothing "
			"can be listed: a source is an item, a step that has _CHECKPOINT_METADATA, "
			"or safetensors files",
			p->s->base.url, *p->path ? "/" : "", p->path);
	p->listing->asked = p->s->opts.names.name;
	object_list_finish(p->listing);
	*ret = take(p->listing);
	return 0;
}

static int web_fetch(struct store *s, const char *path, struct object_list **ret)
{
	auto_free struct probing *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return fail(-ENOMEM, "cannot look into '%s'", path);
	r = probing_init(p, s, span_str(path));
	if (r >= 0)
		r = add_probes(p, 0, n_names(s));
	r = r < 0 ? web_wait_all(p, 1, r) : web_collect(p, ret);
	probing_release(p);
	return r;
}

/* ---- how far a path goes ---- */

#define REACH_MAX 16 /* parts of a path */

/* The deepest part in which one of the names exists, or n. */
static size_t web_deepest(struct probing *part, size_t n, struct err_note *failed)
{
	struct err_note refused = { 0 };

	for (size_t i = n; i-- > 0;)
		if (has_any(&part[i], failed, &refused))
			return i;
	return n;
}

/*
 * Look into the root and the n - 1 directories below it on the path. If each request can have a
 * connection of its own, all names are requested at once; else those that distinguish directories
 * of a checkpoint from others, then, if none exists, those of other models, and then the rest of
 * the deepest one.
 */
static int reach_parts(struct store *s, const char *path, struct probing *part, size_t n,
		       size_t *ret)
{
	const struct store_names *names = &s->opts.names;
	size_t all = n_names(s), asked = names->n_first, i = 0, end = 0;
	auto_of(object_list) struct object_list *l = NULL;
	struct err_note failed = { 0 };
	int r;

	if (n * all <= http_connections(s->http))
		asked = all;
	for (; i < n; i++) {
		if (i)
			end += strcspn(path + end, "/");
		part[i].is_given = true;
		r = probing_init(&part[i], s, span_of(path, end));
		if (r < 0)
			return r;
		r = add_probes(&part[i], 0, asked);
		if (r < 0)
			return r;
		end += i && path[end] == '/';
	}
	i = web_deepest(part, n, &failed);
	for (size_t k = 0; i == n && k < n && asked < names->n_model; k++) {
		r = add_probes(&part[k], asked, names->n_model);
		if (r < 0)
			return r;
	}
	if (i == n && asked < names->n_model) {
		asked = names->n_model;
		i = web_deepest(part, n, &failed);
	}
	*ret = i < n ? strlen(part[i].path) : strlen(path);
	if (i == n)
		return failed.code ? err_restore(&failed) : 0;
	r = add_probes(&part[i], asked, all);
	if (r < 0)
		return r;
	r = web_collect(&part[i], &l);
	if (r < 0)
		return r;
	dir_cache_add_listing(&s->dirs, l);
	return 0;
}

/* The last part of the path is a leaf, and is not requested. */
static int reach(struct store *s, const char *path, size_t *ret)
{
	struct probing *part;
	size_t n = 1;
	int r;

	for (const char *c = path; *c; c++)
		n += *c == '/';
	*ret = strlen(path);
	if (n > REACH_MAX)
		return 0;
	part = calloc(n, sizeof(*part));
	if (!part)
		return fail(-ENOMEM, "cannot look for '%s'", path);
	r = web_wait_all(part, n, reach_parts(s, path, part, n, ret));
	for (size_t i = 0; i < n; i++)
		probing_release(&part[i]);
	free(part);
	return r;
}

static int web_look(struct store *s, const char *path, struct io_object *ret)
{
	int r = store_is_top(s, path) ? -ENOENT : web_head(s, path, ret);

	/* The known names, which are looked for in every directory, are not directories themselves.
	 */
	return r != -ENOENT || is_known_name(s, path_last(path)) ? r :
								   store_look_into(s, path, ret);
}

/* ---- headers and logins ---- */

static int web_authorize(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct store *s = arg;

	return s->own ? web_headers_add(s->own, ret) : 0;
}

static bool web_explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	size_t n = strlen(req->why);

	if (refusal->status == 401)
		snprintf(req->why + n, sizeof(req->why) - n,
			 ": the server wants a login (.netrc) or a header (http_headers=)");
	return false;
}

static const char *file(struct store *s, size_t i)
{
	const char *const all[] = { s->netrc_file, s->own ? web_headers_path(s->own) : NULL,
				    s->own ? web_headers_dir(s->own) : NULL };

	for (size_t k = 0; k < ARRAY_LEN(all); k++)
		if (all[k] && i-- == 0)
			return all[k];
	return NULL;
}

static void close_http(struct store *s)
{
	web_headers_free(s->own);
}

/* The URL itself. */
static int open_http(struct store *s, const char *url)
{
	const char *host = strstr(url, "://") + 3;
	size_t n = strcspn(host, "/");
	int r;

	if (!n || strpbrk(url, "?#"))
		return fail(-EINVAL, "'%s' is not the URL of a directory: http://HOST/PATH", url);
	/* All users could read the password in the list of processes. */
	if (memchr(host, '@', n))
		return fail(
			-EINVAL,
			"a URL with a user's name or a password in front of its host is not taken");
	r = store_set_urls(s, url, url);
	if (r < 0)
		return r;
	/* The user's own file of logins, in the form that libcurl reads. */
	r = s->opts.anonymous ? 0 : path_of_user(env_value("NETRC"), ".netrc", &s->netrc_file);
	if (r < 0)
		return r;
	if (s->opts.http_headers) {
		struct web_headers *w;

		r = web_headers_open(s->opts.http_headers, &w);
		s->own = r < 0 ? NULL : w;
	}
	return r;
}

const struct store_kind web_store = {
	.open = open_http,
	.close = close_http,
	.prepare = web_prepare,
	.authorize = web_authorize,
	.explain = web_explain,
	.file = file,
	.follows = true,
	.no_list = true,
	.fetch = web_fetch,
	.look = web_look,
	.reach = reach,
};
