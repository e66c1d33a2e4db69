/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store_impl.h - one opened store, between its kind and what all kinds share.
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_IMPL_H
#define PYTREEFS_CORE_STORE_URL_STORE_IMPL_H

#include "core/http/http.h"
#include "core/store/along.h"
#include "core/store/looked.h"
#include "core/store/object_list.h"
#include "core/store/url_store.h"

struct store {
	struct io_store base;
	const struct store_kind *kind;
	struct url_store_opts opts;
	struct http *http;
	char *root; /* URL of the root as it is asked for, without a slash at the end */
	void *own;  /* the kind's */
	struct object_lists listings;
	struct along along;
	struct looked looked;
};

struct bucket_dialect;
struct store_listing;

struct store_kind {
	const struct bucket_dialect *dialect; /* of a bucket (bucket.h) */
	bool follows;                         /* redirects */
	bool no_rename;                       /* io_store.h */
	/* Sets base.url, root and own; frees nothing on failure. */
	int (*open)(struct store *s, const char *url);
	void (*close)(struct store *s);
	/* Before requests are made, by who waits for them; NULL: nothing is to be done. */
	int (*prepare)(struct store *s);
	/* All that is in a directory. -ENOENT with a note when nothing is. */
	int (*fetch)(struct store *s, const char *path, struct object_list **ret);
	/* What no listing that is at hand says. */
	int (*look)(struct store *s, const char *path, struct io_object *ret);
	/*
	 * How much of a path from the root on is a directory, by whole parts: all are asked for at
	 * once.
	 */
	int (*reach)(struct store *s, const char *path, size_t *ret);
	/*
	 * Make a directory the root; the caller sees to base.url and root. NULL: they are all that
	 * names the root, and a URL is asked for as it was given, without escapes of ours.
	 */
	int (*descend)(struct store *s, const char *path);
	/*
	 * Ask for the first page of what is in a directory, to be kept with the last listings; the
	 * second waits for it. NULL: what is in one cannot be told.
	 */
	int (*list_begin)(struct store *s, const char *path, struct store_listing **ret);
	int (*list_end)(struct store *s, struct store_listing *listing);
	/*
	 * The URL that reads an object, and that object alone when it has a tag; NULL: the root's
	 * and the path, and If-Match.
	 */
	int (*object_url)(const struct store *s, const char *path, const char *tag, char **ret);
	const char *tag_header; /* as in struct http_request */
	/* What authorizes a request, or NULL (http.h); arg is the store. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
	bool (*explain)(void *arg, const struct http_refusal *refusal, struct http_request *req);
	/* As in io_store_ops; NULL: none. */
	const char *(*file)(struct store *s, size_t i);
};

extern const struct store_kind store_http, store_s3, store_gcs;

/* Sets both from a URL whose end may have slashes: what is shown, and what is asked for. */
int store_set_urls(struct store *s, const char *url, const char *root);
/* Bytes of a path in a URL: all but unreserved characters and '/' are escaped. */
int store_escape(struct buf *ret, const char *path);
/* Of a parameter's value: '/' is, too. */
int store_escape_value(struct buf *ret, const char *value);
/*
 * A request for an object, ready to be completed, which borrows the tag: of that one alone, unless
 * it is NULL or "".
 */
int store_request(struct store *s, const char *path, const char *tag, struct http_request *ret);
/* The same with a URL, which becomes the request's, also on failure. */
int store_request_url(struct store *s, const char *path, char *url, struct http_request *ret);
void store_request_release(struct http_request *q);
/* The root's URL and the path. */
int store_object_url(const struct store *s, const char *path, char **ret);
/* What the last listings say: 1 and the object, 0 when it does not exist, -1 when none says. */
int store_find(struct store *s, const char *path, struct io_object *ret);
/* What an answer says of an object. -EIO without its size. */
int store_object_of(const struct http_request *q, struct io_object *ret);
/* prepare() of the kind. */
int store_prepare(struct store *s);
/*
 * http_wait(). What was refused because the credentials had expired meanwhile is asked for again,
 * with others.
 */
int store_request_wait(struct store *s, struct http_request *q);
/* As in io_store_ops; the directory comes from one of the last listings, if these have it. */
int store_directory(struct store *s, const char *path, struct object_list **ret);
int store_submit(struct io_store *base, struct io_req *req, size_t n);
int store_wait(struct io_store *base, struct io_req *req, size_t n);

#endif
