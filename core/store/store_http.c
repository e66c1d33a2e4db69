/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_http.c - a server of files: HEAD for what is there, GET for ranges.
 *
 * It cannot list. A directory has those of the names that its reader knows which exist, and the
 * directories that the one document that names some names; all are asked for at once.
 */
#include <errno.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/store/url_store_impl.h"

#define DOCUMENT_MAX (1 << 20)
#define PROBES_MAX 64

/* -ENOENT without a note: it is a page about a directory. */
static int object_of(const struct http_request *q, struct io_object *ret)
{
	return q->answer.is_directory ? -ENOENT : store_object_of(q, ret);
}

static int head(struct store *s, const char *path, struct io_object *ret)
{
	struct http_request q = { 0 };
	int r = store_request(s, path, NULL, &q);

	if (r < 0)
		return r;
	q.is_head = true;
	r = http_submit(s->http, &q);
	if (r >= 0)
		r = http_wait(s->http, &q);
	/* Of a directory a server may also say that nobody may see it. */
	if (r >= 0 || q.answer.is_directory)
		r = object_of(&q, ret);
	if (r == -ENOENT)
		fail(r, "'%s' does not exist", q.name);
	store_request_release(&q);
	return r;
}

/* ---- a directory ---- */

struct probe {
	char *path;             /* from the root on */
	struct span name;       /* in the directory: a part of path */
	bool names_a_directory; /* name has it */
	struct http_request req;
};

struct probing {
	struct store *s;
	const char *path;
	struct probe probe[PROBES_MAX];
	size_t n, begun;
	struct object_list *listing;
};

static int add_probe(struct probing *p, const char *name)
{
	struct probe *b = &p->probe[p->n];
	size_t n = strlen(p->path) + (*p->path != '\0'), first = strcspn(name, "/");

	if (p->n == PROBES_MAX)
		return 0;
	b->path = str_fmt("%s%s%s", p->path, *p->path ? "/" : "", name);
	if (!b->path)
		return fail(-ENOMEM, "cannot look into '%s'", p->path);
	b->name = span_of(b->path + n, first);
	b->names_a_directory = name[first] == '/';
	p->n++;
	return store_request(p->s, b->path, NULL, &b->req);
}

/* "a/b" is looked for in the directory that has a, and in a. */
static int add_probes(struct probing *p)
{
	const char *slash = strrchr(p->path, '/'), *own = slash ? slash + 1 : p->path;
	int r = 0;

	for (const char *const *k = p->s->opts.names.name; *k && r >= 0; k++) {
		size_t first = strcspn(*k, "/");

		r = add_probe(p, *k);
		if (r >= 0 && (*k)[first] && strlen(own) == first && !strncmp(*k, own, first))
			r = add_probe(p, *k + first + 1);
	}
	return r;
}

static void probing_release(struct probing *p)
{
	for (size_t i = 0; i < p->n; i++) {
		store_request_release(&p->probe[i].req);
		free(p->probe[i].path);
	}
	object_list_free(p->listing);
}

static int add_directory(void *arg, const char *name)
{
	struct probing *p = arg;
	const struct io_object o = { .is_dir = true };

	return strchr(name, '/') ? 0 : object_list_add(p->listing, span_str(name), &o);
}

/* The directories that the document of this directory names. */
static int add_named(struct probing *p, const char *path)
{
	const struct store_names *names = &p->s->opts.names;
	struct http_request q = { 0 };
	int r = store_request(p->s, path, NULL, &q);

	if (r < 0)
		return r;
	q.limit = DOCUMENT_MAX;
	r = http_submit(p->s->http, &q);
	if (r >= 0)
		r = http_wait(p->s->http, &q);
	if (r >= 0)
		r = names->directories(buf_span(&q.body), add_directory, p);
	store_request_release(&q);
	return r;
}

static int add_found(struct probing *p, const struct probe *b)
{
	const char *document = p->s->opts.names.document;
	struct io_object o;
	int r = object_of(&b->req, &o);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (b->names_a_directory)
		o = (struct io_object){ .is_dir = true };
	r = object_list_add(p->listing, b->name, &o);
	if (r >= 0 && document && !o.is_dir && span_eq(b->name, span_str(document)))
		r = add_named(p, b->path);
	return r;
}

/* Servers that hide what exists answer 403 for what does not: an error only if all are. */
static int collect(struct probing *p)
{
	struct err_note refused = { 0 }, failed = { 0 };
	int r = 0;

	for (size_t i = 0; i < p->begun; i++) {
		int q = http_wait(p->s->http, &p->probe[i].req);

		if (q == -EACCES && !p->probe[i].req.answer.is_directory)
			err_save(q, &refused);
		if (q < 0 && q != -ENOENT && q != -EACCES && !failed.code)
			err_save(q, &failed);
	}
	if (failed.code)
		return err_restore(&failed);
	for (size_t i = 0; i < p->begun && r >= 0; i++)
		if (p->probe[i].req.result >= 0)
			r = add_found(p, &p->probe[i]);
	if (r < 0 || p->listing->n)
		return r;
	if (refused.code)
		return err_restore(&refused);
	return fail(-ENOENT,
		    "'%s%s%s' has no file by which a checkpoint is known; over http nothing can be "
		    "listed: a source is an item, or a step that has _CHECKPOINT_METADATA",
		    p->s->base.url, *p->path ? "/" : "", p->path);
}

static int fetch(struct store *s, const char *path, struct object_list **ret)
{
	auto_free struct probing *p = calloc(1, sizeof(*p));
	int r = p ? 0 : fail(-ENOMEM, "cannot look into '%s'", path), done;

	if (!p)
		return r;
	p->s = s;
	p->path = path;
	r = object_list_new(path, &p->listing);
	if (r < 0)
		return r;
	r = add_probes(p);
	while (r >= 0 && p->begun < p->n) {
		p->probe[p->begun].req.is_head = true;
		r = http_submit(s->http, &p->probe[p->begun].req);
		p->begun += r >= 0;
	}
	done = collect(p);
	r = r < 0 ? r : done;
	if (r >= 0) {
		p->listing->is_partial = true;
		object_list_finish(p->listing);
		*ret = take(p->listing);
	}
	probing_release(p);
	return r;
}

/* A name that every directory is asked for is not a directory itself. */
static bool is_known(const struct store *s, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (const char *const *k = s->opts.names.name; *k; k++)
		if (!strcmp(*k, name))
			return true;
	return false;
}

static int look(struct store *s, const char *path, struct io_object *ret)
{
	struct object_list *l;
	int r = *path ? head(s, path, ret) : -ENOENT;

	if (r != -ENOENT || is_known(s, path))
		return r;
	r = store_directory(s, path, &l);
	if (r < 0)
		return r;
	*ret = (struct io_object){ .is_dir = true, .mtime = object_list_newest(l) };
	object_lists_unref(&s->listings, l);
	return 0;
}

/* The URL itself. */
static int open_http(struct store *s, const char *url)
{
	const char *host = strstr(url, "://") + 3;
	size_t n = strcspn(host, "/");

	if (!n || strpbrk(url, "?#"))
		return fail(-EINVAL, "'%s' is not the URL of a directory: http://HOST/PATH", url);
	/* Everybody sees it in the list of processes. */
	if (memchr(host, '@', n))
		return fail(
			-EINVAL,
			"a URL with a user's name or a password in front of its host is not taken");
	return store_set_urls(s, url, url);
}

const struct store_kind store_http = {
	.open = open_http,
	.follows = true,
	.fetch = fetch,
	.look = look,
};
