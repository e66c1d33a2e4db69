/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store_impl.h - one opened store: the interface between its kind and the shared code.
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_IMPL_H
#define PYTREEFS_CORE_STORE_URL_STORE_IMPL_H

#include "core/remote/transport/http.h"
#include "core/remote/source/along.h"
#include "core/remote/source/looked.h"
#include "core/remote/source/object_list.h"
#include "core/remote/source/url_store.h"

struct store {
	struct io_store base;
	const struct store_kind *kind;
	struct url_store_opts opts;
	struct http *http;
	char *root;       /* URL of the root, escaped, without a slash at the end */
	void *own;        /* the kind's data */
	char *netrc_file; /* of a web server; NULL: requests have no login */
	struct object_lists listings;
	struct along along;
	struct looked looked;
};

struct bucket_dialect;
struct store_listing;

struct store_kind {
	const struct bucket_dialect *dialect; /* for buckets (bucket.h) */
	bool follows;                         /* redirects are followed */
	bool no_rename, no_list;              /* io_store.h */
	/* Sets base.url, root and own; frees nothing on failure. */
	int (*open)(struct store *s, const char *url);
	void (*close)(struct store *s);
	/* Called before requests are made, by the thread that waits for them; may be NULL. */
	int (*prepare)(struct store *s);
	/* List a directory completely. -ENOENT with a note when it has no entries. */
	int (*fetch)(struct store *s, const char *path, struct object_list **ret);
	/* Look up a path that the last listings do not answer. */
	int (*look)(struct store *s, const char *path, struct io_object *ret);
	/*
	 * How many bytes of a path are the path of a directory, by whole parts; all parts are
	 * requested at once.
	 */
	int (*reach)(struct store *s, const char *path, size_t *ret);
	/*
	 * Make a directory the root; the caller changes base.url and root. NULL: nothing else has
	 * to change, and URLs are requested as they were given, without escaping.
	 */
	int (*descend)(struct store *s, const char *path);
	/*
	 * list_begin() requests the first page of a directory, and list_end() waits for it and
	 * keeps it with the last listings. NULL: directories cannot be listed.
	 */
	int (*list_begin)(struct store *s, const char *path, struct store_listing **ret);
	int (*list_end)(struct store *s, struct store_listing *listing);
	/*
	 * The URL to read an object by, with the tag as a condition if it has one. NULL: root and
	 * path are the URL, and If-Match is the condition.
	 */
	int (*object_url)(const struct store *s, const char *path, const char *tag, char **ret);
	const char *tag_header; /* as in struct http_request */
	/* Adds the headers that authorize a request (http.h); may be NULL. arg is the store. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
	bool (*explain)(void *arg, const struct http_refusal *refusal, struct http_request *req);
	/* As in io_store_ops; may be NULL. */
	const char *(*file)(struct store *s, size_t i);
};

extern const struct store_kind store_http, store_s3, store_gcs;

/* Set base.url, which is shown, and root, which is requested, without slashes at their ends. */
int store_set_urls(struct store *s, const char *url, const char *root);
/*
 * Prepare a request for an object. Unless tag is NULL or "", it is the request's condition, and
 * borrowed.
 */
int store_request(struct store *s, const char *path, const char *tag, struct http_request *ret);
/* The same with a URL, which the request takes, also on failure. */
int store_request_url(struct store *s, const char *path, char *url, struct http_request *ret);
void store_request_release(struct http_request *q);
/* The root's URL and the path. */
int store_object_url(const struct store *s, const char *path, char **ret);
/* Look for a path in the last listings: 1 and the object, 0 if it does not exist, -1 if unknown. */
int store_find(struct store *s, const char *path, struct io_object *ret);
/* The attributes of an object by the headers of an answer. -EIO if its size is missing. */
int store_object_of(const struct http_request *q, struct io_object *ret);
/* Call prepare() of the kind. */
int store_prepare(struct store *s);
/*
 * http_wait(). A request that was refused because its credentials had expired is sent again with
 * new ones.
 */
int store_request_wait(struct store *s, struct http_request *q);
/* List a directory completely, by one of the last listings if possible. */
int store_directory(struct store *s, const char *path, struct object_list **ret);
int store_submit(struct io_store *base, struct io_req *req, size_t n);
int store_wait(struct io_store *base, struct io_req *req, size_t n);

#endif
