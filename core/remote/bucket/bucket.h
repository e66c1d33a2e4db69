/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.h - one opened bucket. bucket.c has the code that all vendors share, bucket_look.c the
 * look-ups and listings, and a dialect the rest (s3.c, gcs.c).
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_H
#define PYTREEFS_CORE_STORE_BUCKET_H

#include "core/remote/documents/bucket_page.h"
#include "core/remote/credentials/credentials.h"
#include "core/remote/source/url_store_impl.h"

struct bucket_write;

/* A vendor's requests and answers. */
struct bucket_dialect {
	/*
	 * Sets url, prefix, credentials (unless requests are anonymous) and own of the bucket;
	 * frees nothing on failure.
	 */
	int (*open)(struct store *s, const char *url);
	void (*close)(struct store *s);
	/* Append the URL of a page of the listing of `prefix`. token: the page's, or "" for the
	 * first; most: the number of names on the page, or 0 for the server's default. */
	int (*page_url)(const struct store *s, const char *prefix, const char *token, unsigned most,
			struct buf *ret);
	int (*parse_page)(struct span text, bucket_entry_fn *each, void *arg,
			  struct bucket_page *ret);
	/* Turn a request for an object into one for its metadata, and parse the answer. */
	int (*about)(const struct store *s, const char *path, struct http_request *q);
	int (*take_about)(const struct http_request *q, struct io_object *ret);
	/* Add the headers that authorize a request. */
	int (*authorize)(const struct store *s, const struct credentials *keys,
			 const struct http_request *req, struct http_headers *ret);
	/* As in struct http_request. */
	bool (*explain)(struct store *s, const struct http_refusal *refusal,
			struct http_request *req);
	/*
	 * The URL to read an object by, with the tag ("": any) as a condition. NULL: root and path
	 * are the URL, and If-Match is the condition.
	 */
	int (*object_url)(const struct store *s, const char *path, const char *tag, char **ret);
	const char *tag_header; /* as in struct http_request */
	/* As in struct store_kind. */
	const char *(*file)(struct store *s, size_t i);
	const struct bucket_write *write; /* bucket_write.h */
};

struct bucket {
	char *url;    /* the URL of the bucket, without a slash at the end */
	char *prefix; /* "": the whole bucket */
	struct credentials_cache *credentials; /* NULL: requests are anonymous */
	void *own;                             /* the dialect's data */
};

static inline struct bucket *bucket_of(const struct store *s)
{
	return s->own;
}

extern const struct bucket_dialect s3_dialect, gcs_dialect;

/* Members of struct store_kind, in bucket.c and bucket_look.c. */
int bucket_fetch(struct store *s, const char *path, struct object_list **ret);
int bucket_look(struct store *s, const char *path, struct io_object *ret);
int bucket_reach(struct store *s, const char *path, size_t *ret);
int bucket_list_begin(struct store *s, const char *path, unsigned most, struct store_listing **ret);
int bucket_list_end(struct store_listing *listing, struct io_object *ret);

/* For dialects: "Name: value". */
int bucket_header(struct http_headers *h, const char *name, const char *value);

#endif
