/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store_impl.h - one opened store: the interface between its kind and the shared code.
 */
#ifndef PYTREEFS_CORE_REMOTE_URL_STORE_IMPL_H
#define PYTREEFS_CORE_REMOTE_URL_STORE_IMPL_H

#include "core/remote/source/dir_cache.h"
#include "core/remote/source/url_store.h"
#include "core/remote/transport/http.h"

struct store {
	struct io_store base;
	unsigned refs; /* two while a search has it, too; not thread-safe */
	const struct store_kind *kind;
	const struct bucket_dialect *dialect; /* bucket.h; NULL: a web server */
	struct url_store_opts opts;
	struct http *http;
	char *root;       /* URL of the root, escaped, without a slash at the end */
	void *own;        /* the kind's data */
	char *netrc_file; /* of a web server; NULL: requests have no login */
	struct dir_cache dirs;
	struct store_cache *cache; /* on disk; NULL: none */
};

struct store_listing;

/* A kind of server: web servers, and buckets, whose vendors differ by their dialects. */
struct store_kind {
	bool follows;            /* redirects are followed */
	bool no_rename, no_list; /* io_store.h */
	/* Sets base.url, root and own; frees nothing on failure. */
	int (*open)(struct store *s, const char *url);
	void (*close)(struct store *s);
	/* Called by store_request_submit(): the client's thread never waits for credentials. */
	int (*prepare)(struct store *s);
	/* List a directory completely. -ENOENT with a note when it has no entries. */
	int (*fetch)(struct store *s, const char *path, struct object_list **ret);
	/* Look up a path that the last listings do not answer. */
	int (*look)(struct store *s, const char *path, struct io_object *ret);
	/*
	 * How many bytes of a path, as it is in the URL, are the path of a directory, by whole
	 * parts; all parts are requested at once.
	 */
	int (*reach)(struct store *s, const char *path, size_t *ret);
	/*
	 * list_begin() requests the first page of a directory, of at most `most` names (0: the
	 * server's default); list_end() waits for it, adds it to the cache of directories, and
	 * frees the request. ret is the directory. NULL: directories cannot be listed.
	 */
	int (*list_begin)(struct store *s, const char *path, unsigned most,
			  struct store_listing **ret);
	int (*list_end)(struct store_listing *listing, struct io_object *ret);
	/* Adds the headers that authorize a request (http.h). arg is the store. */
	int (*authorize)(void *arg, const struct http_request *req, struct http_headers *ret);
	bool (*explain)(void *arg, const struct http_refusal *refusal, struct http_request *req);
	/* As in io_store_ops. */
	const char *(*file)(struct store *s, size_t i);
};

extern const struct store_kind web_store, bucket_store;

static inline struct store *store_of(const struct io_store *base)
{
	return container_of((struct io_store *)(uintptr_t)base, struct store, base);
}

/* Set base.url, which is shown, and root, which is requested, without slashes at their ends. */
int store_set_urls(struct store *s, const char *url, const char *root);
/* Whether a path is the directory that was opened, which always exists. */
bool store_is_top(const struct store *s, const char *path);
/*
 * Prepare a request for an object. Unless tag is NULL or "", it is the request's condition, and
 * borrowed.
 */
int store_request(struct store *s, const char *path, const char *tag, struct http_request *ret);
/* The same with a URL, which the request takes, also on failure. */
int store_request_url(struct store *s, const char *path, char *url, struct http_request *ret);
void store_request_release(struct http_request *q);
#define auto_store_request __attribute__((cleanup(store_request_release))) struct http_request
/* The root's URL and the path. */
int store_object_url(const struct store *s, const char *path, char **ret);
/* The attributes of an object by the headers of an answer. -EIO if its size is missing. */
int store_object_of(const struct http_request *q, struct io_object *ret);
/*
 * http_submit() and http_wait(). A request that was refused because its credentials had expired is
 * sent again with new ones.
 */
int store_request_submit(struct store *s, struct http_request *q);
int store_request_wait(struct store *s, struct http_request *q);
/* List a directory completely, by one of the last listings if possible. */
int store_directory(struct store *s, const char *path, struct object_list **ret);
/* store_directory() for a look-up of the directory itself. */
int store_look_into(struct store *s, const char *path, struct io_object *ret);
/* Reads, as in io_store_ops, without a cache on disk; in store_read.c. */
int store_submit(struct io_store *base, struct io_req *req, size_t n);
int store_wait(struct io_store *base, struct io_req *req, size_t n);

#endif
