/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_s3.c - a bucket of S3, or of what speaks like it: listings by ListObjectsV2, GET for
 * ranges.
 *
 * A look-up lists the directory that the name is in, which answers all its siblings, too. Where
 * that has more names than a page, the object and the directory of that name are asked for, both at
 * once.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/store/aws_credentials.h"
#include "core/store/aws_sign.h"
#include "core/store/s3_place.h"
#include "core/store/s3_xml.h"
#include "core/store/url_store_impl.h"

#define PAGES_MAX 10000

struct s3 {
	struct s3_place place;
	struct aws_credentials *credentials;
};

static struct s3 *s3_of(const struct store *s)
{
	return s->own;
}

/* ---- requests ---- */

static int prepare(struct store *s)
{
	return s->opts.anonymous ? 0 : aws_credentials_ensure(s3_of(s)->credentials);
}

static int add_line(struct http_headers *h, const char *name, const char *value)
{
	auto_free char *line = str_fmt("%s: %s", name, value);

	return line ? http_header(h, line) : fail(-ENOMEM, "cannot make a request");
}

static int sign(const struct s3 *s3, const struct aws_keys *keys, const struct http_request *req,
		struct http_headers *ret)
{
	const char *path = strchr(strstr(req->url, "://") + 3, '/');
	const char *query = strchr(req->url, '?');
	auto_free char *only_path =
		span_dup_str(span_of(path ? path : "/", path ? strcspn(path, "?") : 1));
	char time_text[AWS_TIME_MAX];
	const struct aws_header header[] = { { "host", s3->place.host },
					     { "x-amz-content-sha256", AWS_EMPTY },
					     { "x-amz-date", time_text },
					     { "x-amz-security-token", keys->token } };
	const struct aws_request q = { .method = req->is_head ? "HEAD" : "GET",
				       .path = only_path,
				       .query = query ? query + 1 : "",
				       .header = header,
				       .n_headers = ARRAY_LEN(header) - !keys->token,
				       .body_hash = AWS_EMPTY,
				       .time = time_text,
				       .region = s3->place.region,
				       .service = "s3",
				       .key_id = keys->id,
				       .secret = keys->secret };
	auto_buf value = { 0 };
	int r = only_path ? 0 : fail(-ENOMEM, "cannot make a request");

	aws_time(time(NULL), time_text);
	if (r >= 0)
		r = aws_authorization(&q, &value);
	for (size_t i = 1; i < q.n_headers && r >= 0; i++)
		r = add_line(ret, header[i].name, header[i].value);
	if (r >= 0)
		r = buf_str(&value) ? add_line(ret, "Authorization", buf_str(&value)) : -ENOMEM;
	return r;
}

static int authorize(void *arg, const struct http_request *req, struct http_headers *ret)
{
	const struct store *s = arg;
	struct aws_keys keys = { 0 };
	int r;

	if (s->opts.anonymous)
		return 0;
	r = aws_credentials_get(s3_of(s)->credentials, &keys);
	if (r >= 0)
		r = sign(s3_of(s), &keys, req, ret);
	aws_keys_release(&keys);
	return r;
}

/* ---- refusals ---- */

static const struct refusal_text {
	const char *code;
	int result;
	const char *text;
} refusal_texts[] = {
	{ "AccessDenied", -EACCES, "it may not be read with these credentials" },
	{ "AllAccessDisabled", -EACCES, "nobody may read it" },
	{ "NoSuchBucket", -EIO, "the bucket does not exist" },
	{ "InvalidAccessKeyId", -EACCES, "the server does not know the id of the access key" },
	{ "SignatureDoesNotMatch", -EACCES,
	  "the secret access key is not the one of the id, or something on the way changes requests" },
	{ "InvalidToken", -EACCES, "the session token is not one" },
	{ "ExpiredToken", -EACCES, "the credentials have expired" },
	{ "TokenRefreshRequired", -EACCES, "the credentials have expired" },
	{ "InvalidObjectState", -EIO,
	  "it is in an archive, from which it has to be restored first" },
	{ "InvalidBucketName", -EIO, "that is not the name of a bucket" },
};

static void explain_clock(struct http_request *req, const struct s3_error *e)
{
	char here[AWS_TIME_MAX];

	aws_time(time(NULL), here);
	snprintf(req->why, sizeof(req->why),
		 "status %d (%s): the clock of this machine says %s, the server's %s",
		 req->answer.status, e->code, here, *e->time ? e->time : "something else");
	req->result = -EACCES;
}

static void explain_region(struct http_request *req, const struct s3_error *e, const char *region,
			   const char *own)
{
	snprintf(req->why, sizeof(req->why),
		 "status %d (%s): the bucket is in the region '%s', and '%s' was asked: give "
		 "region=%s, or AWS_REGION",
		 req->answer.status, e->code, region, own, region);
	req->result = -EIO;
}

static bool explain(void *arg, const struct http_refusal *refusal, struct http_request *req)
{
	const struct store *s = arg;
	const char *in_header = http_refusal_header(refusal, "x-amz-bucket-region");
	const char *own = s3_of(s)->place.region;
	struct s3_error e;

	s3_parse_error(refusal->document, &e);
	if (!*e.region && in_header && s3_region_is_valid(in_header) &&
	    strlen(in_header) < sizeof(e.region))
		strcpy(e.region, in_header);
	req->answer.status = refusal->status;
	if (*e.code && req->result != -ESTALE)
		snprintf(req->why, sizeof(req->why), "status %d (%s)", refusal->status, e.code);
	if (!strcmp(e.code, "RequestTimeTooSkewed")) {
		explain_clock(req, &e);
		return false;
	}
	if (*e.region && strcmp(e.region, own) != 0 &&
	    (refusal->status / 100 == 3 || refusal->status == 400)) {
		explain_region(req, &e, e.region, own);
		return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(refusal_texts); i++) {
		const struct refusal_text *t = &refusal_texts[i];

		if (strcmp(e.code, t->code) != 0)
			continue;
		snprintf(req->why, sizeof(req->why), "status %d (%s): %s", refusal->status, e.code,
			 s->opts.anonymous && t->result == -EACCES ?
				 "it may not be read without credentials" :
				 t->text);
		req->result = t->result;
	}
	if (!strcmp(e.code, "ExpiredToken") || !strcmp(e.code, "TokenRefreshRequired"))
		return !s->opts.anonymous && aws_credentials_expired(s3_of(s)->credentials);
	return !strcmp(e.code, "RequestTimeout");
}

/* ---- listings ---- */

/* What all keys in the directory begin with. */
static char *prefix_of(const struct store *s, const char *path)
{
	const char *prefix = s3_of(s)->place.prefix;

	return str_fmt("%s%s%s%s", prefix, *prefix ? "/" : "", path, *path ? "/" : "");
}

static int page_url(const struct store *s, const char *prefix, struct buf *token, bool one,
		    struct buf *ret)
{
	int r = buf_addf(ret, "%s%s?", s3_of(s)->place.url, s3_of(s)->place.is_virtual ? "/" : "");

	/* In order of their names, as they are signed. */
	if (r >= 0 && token->n) {
		r = buf_add_str(ret, "continuation-token=");
		if (r >= 0)
			r = buf_str(token) ? store_escape_value(ret, buf_str(token)) : -ENOMEM;
		if (r >= 0)
			r = buf_add_byte(ret, '&');
	}
	if (r >= 0)
		r = buf_addf(ret, "delimiter=%%2F&encoding-type=url&list-type=2%s&prefix=",
			     one ? "&max-keys=1" : "");
	return r < 0 ? r : store_escape_value(ret, prefix);
}

/* For a page; one: of one name, which says whether there is any. */
static int page_request(struct store *s, const char *path, struct buf *token, bool one,
			struct http_request *ret)
{
	auto_free char *prefix = prefix_of(s, path);
	auto_buf url = { 0 };
	struct http_request q;
	int r = prefix ? page_url(s, prefix, token, one, &url) : -ENOMEM;

	if (r >= 0)
		r = buf_str(&url) ? store_request(s, path, &q) : -ENOMEM;
	if (r < 0)
		return fail(-ENOMEM, "cannot list '%s'", path);
	free((char *)(uintptr_t)q.url);
	q.url = (char *)take(url.p);
	q.limit = S3_PAGE_BYTES;
	*ret = q;
	return 0;
}

struct paging {
	struct store *s;
	const char *name;
	struct object_list *l;
	char *prefix;
	bool has_any; /* also the object that some tools make for the directory itself */
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

/* An answer to the request for a page, and what it is of. */
static int take_page(struct paging *p, struct http_request *q, struct s3_page *page)
{
	int r = http_wait(p->s->http, q);

	if (r >= 0) {
		r = s3_parse_page(buf_span(&q->body), add_key, p, page);
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

/* -ENOENT when nothing is there. The listing is the caller's, with a reference. */
static int paging_end(struct paging *p, const struct s3_page *page, struct object_list **ret)
{
	if (!p->has_any && !page->is_truncated)
		return fail(-ENOENT, "'%s%s%s' does not exist: no key begins with '%s'",
			    p->s->base.url, *p->name ? "/" : "", p->name, p->prefix);
	object_list_finish(p->l);
	p->l->is_truncated = p->l->is_partial = page->is_truncated;
	*ret = take(p->l);
	return 0;
}

/* The first page of what is in a directory, or all of it. */
static int list_pages(struct store *s, const char *path, bool all, struct object_list **ret)
{
	struct s3_page page = { 0 };
	struct paging p;
	int r = store_prepare(s);

	if (r >= 0)
		r = paging_init(&p, s, path);
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && (i == 0 || (all && page.is_truncated)); i++) {
		struct http_request q = { 0 };

		r = i < PAGES_MAX ? page_request(s, path, &page.next, false, &q) :
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

static int fetch(struct store *s, const char *path, struct object_list **ret)
{
	return list_pages(s, path, true, ret);
}

/* ---- look-ups ---- */

/* The first page, which the last listings keep. */
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

/* The object of that name, while the directory of that name is asked for. */
static int ask_both(struct store *s, const char *path, struct io_object *ret)
{
	struct http_request q = { 0 };
	struct err_note why = { 0 };
	int r = store_prepare(s), as_directory, as_object;

	if (r >= 0)
		r = store_request(s, path, &q);
	if (r < 0)
		return r;
	q.is_head = true;
	r = http_submit(s->http, &q);
	if (r < 0) {
		store_request_release(&q);
		return r;
	}
	as_directory = look_into(s, path, ret);
	if (as_directory < 0 && as_directory != -ENOENT)
		err_save(as_directory, &why);
	as_object = http_wait(s->http, &q);
	if (as_directory >= 0) {
		err_clear();
		r = 0;
	} else if (why.code) {
		r = err_restore(&why);
	} else {
		r = as_object < 0 ? as_object : store_object_of(&q, ret);
	}
	store_request_release(&q);
	return r;
}

static int look(struct store *s, const char *path, struct io_object *ret)
{
	const char *slash = strrchr(path, '/');
	auto_free char *parent = slash ? span_dup_str(span_of(path, (size_t)(slash - path))) :
					 strdup("");
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
	r = l ? 0 : look_into(s, parent, &dir);
	if (r < 0)
		return r;
	found = store_find(s, path, ret);
	if (found > 0)
		return 0;
	return found < 0 ? ask_both(s, path, ret) :
			   fail(-ENOENT, "'%s/%s' does not exist", s->base.url, path);
}

/* ---- how far a path goes ---- */

#define REACH_MAX 32 /* parts of a path; of a longer one the rest counts as one that may be there */

struct reach {
	struct http_request req;
	size_t n; /* of the path */
};

static int count_key(void *arg, struct span key, const struct io_object *o)
{
	return 0;
}

/* Whether anything is in a directory: what cannot be asked for may be there, and does not matter. */
static bool has_any(struct store *s, struct reach *p)
{
	struct s3_page page = { 0 };
	int r = http_wait(s->http, &p->req);

	if (r >= 0)
		r = s3_parse_page(buf_span(&p->req.body), count_key, NULL, &page);
	err_clear();
	buf_release(&page.next);
	return r >= 0 && page.n > 0;
}

static int reach(struct store *s, const char *path, size_t *ret)
{
	struct reach part[REACH_MAX];
	struct buf no_token = { 0 };
	struct err_note why = { 0 };
	size_t n = 0, begun = 0;
	int r = store_prepare(s);

	*ret = strlen(path);
	for (size_t at = 0; path[at] && n < REACH_MAX && r >= 0; n++) {
		auto_free char *dir = NULL;

		at += strcspn(path + at, "/");
		part[n].n = at;
		dir = span_dup_str(span_of(path, at));
		r = dir ? page_request(s, dir, &no_token, true, &part[n].req) : -ENOMEM;
		if (r < 0)
			break;
		r = http_submit(s->http, &part[n].req);
		begun += r >= 0;
		at += path[at] == '/';
	}
	if (r < 0)
		err_save(r, &why);
	for (size_t i = 0, found = 0; i < n; i++) {
		if (i < begun && has_any(s, &part[i]))
			found = part[i].n;
		store_request_release(&part[i].req);
		/* The last ones may not have been asked for. */
		if (i == n - 1 && found && !(n == REACH_MAX && found == part[i].n))
			*ret = found;
	}
	return r < 0 ? err_restore(&why) : 0;
}

/* ---- opening ---- */

static int open_s3(struct store *s, const char *url)
{
	struct s3 *s3 = calloc(1, sizeof(*s3));
	auto_free char *root = NULL;
	auto_buf escaped = { 0 };
	int r = s3 ? aws_credentials_new(&s3->credentials) : fail(-ENOMEM, "cannot open '%s'", url);

	s->own = s3;
	if (r >= 0)
		r = s3_place(url, &s->opts, aws_endpoint(s3->credentials),
			     aws_region(s3->credentials), &s3->place);
	if (r < 0)
		return r;
	r = store_escape(&escaped, s3->place.prefix);
	root = r < 0 || !buf_str(&escaped) ?
		       NULL :
		       str_fmt("%s%s%s", s3->place.url, escaped.n ? "/" : "", buf_str(&escaped));
	return root ? store_set_urls(s, url, root) : fail(-ENOMEM, "cannot open '%s'", url);
}

static void close_s3(struct store *s)
{
	struct s3 *s3 = s3_of(s);

	if (!s3)
		return;
	aws_credentials_free(s3->credentials);
	s3_place_release(&s3->place);
	free(s3);
}

static const char *file_of(struct store *s, size_t i)
{
	return s->opts.anonymous ? NULL : aws_credentials_file(s3_of(s)->credentials, i);
}

const struct store_kind store_s3 = {
	.no_rename = true,
	.open = open_s3,
	.close = close_s3,
	.prepare = prepare,
	.fetch = fetch,
	.look = look,
	.reach = reach,
	.authorize = authorize,
	.explain = explain,
	.file = file_of,
};
