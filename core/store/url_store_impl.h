/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store_impl.h - one opened store, between its kind and what all kinds share.
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_IMPL_H
#define PYTREEFS_CORE_STORE_URL_STORE_IMPL_H

#include "core/http/http.h"
#include "core/store/object_list.h"
#include "core/store/url_store.h"

struct store {
	struct io_store base;
	const struct store_kind *kind;
	struct store_opts opts;
	struct http *http;
	char *root; /* URL of the root as it is asked for, without a slash at the end */
	struct object_lists listings;
};

struct store_kind {
	const char *scheme;
	bool follows; /* redirects */
	/* All that is in a directory. -ENOENT with a note when nothing is. */
	int (*fetch)(struct store *s, const char *path, struct object_list **ret);
	/* What no listing that is at hand says. */
	int (*look)(struct store *s, const char *path, struct io_object *ret);
	/* What authorizes a request, or NULL (http.h); arg is the store. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
};

extern const struct store_kind store_http;

/* Bytes of a path in a URL: all but unreserved characters and '/' are escaped. */
int store_escape(struct buf *ret, const char *path);
/* The URL of a path. */
int store_url(const struct store *s, const char *path, char **ret);
/* A request for it, ready to be completed: url is the caller's to free, as name. */
int store_request(struct store *s, const char *path, struct http_request *ret);
void store_request_release(struct http_request *q);
/* As in io_store_ops; the directory comes from a listing that is at most LISTING_MS old. */
int store_directory(struct store *s, const char *path, struct object_list **ret);
int store_submit(struct io_store *base, struct io_req *req, size_t n);
int store_wait(struct io_store *base, struct io_req *req, size_t n);

#endif
