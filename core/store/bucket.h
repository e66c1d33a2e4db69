/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.h - one opened bucket: what those of all vendors share (bucket.c), what is in it
 * (bucket_look.c), and what differs, which is a dialect (store_s3.c, store_gcs.c).
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_H
#define PYTREEFS_CORE_STORE_BUCKET_H

#include <pthread.h>

#include "core/cloud/bucket_page.h"
#include "core/cloud/credentials.h"
#include "core/store/url_store_impl.h"

struct bucket_write;

/* What is asked of a bucket, and how its answers are read. */
struct bucket_dialect {
	/*
	 * Sets url, prefix, credentials (unless it is asked without) and own of the bucket; frees
	 * nothing on failure.
	 */
	int (*open)(struct store *s, const char *url);
	void (*close)(struct store *s);
	/* Append the URL of a page of what is in `prefix`; token: of the page, or ""; most: names
	 * of the page, 0: as many as the server gives. */
	int (*page_url)(const struct store *s, const char *prefix, const char *token, unsigned most,
			struct buf *ret);
	int (*parse_page)(struct span text, bucket_entry_fn *each, void *arg,
			  struct bucket_page *ret);
	/* Make a request for an object one for what it is, and read the answer. */
	int (*about)(const struct store *s, const char *path, struct http_request *q);
	int (*take_about)(const struct http_request *q, struct io_object *ret);
	/* Add what proves who asks. */
	int (*authorize)(const struct store *s, const struct credentials *keys,
			 const struct http_request *req, struct http_headers *ret);
	/* As in struct http_request. */
	bool (*explain)(struct store *s, const struct http_refusal *refusal,
			struct http_request *req);
	/* As in struct store_kind. */
	const char *(*file)(struct store *s, size_t i);
	const struct bucket_write *write; /* bucket_write.h */
};

struct bucket {
	char *url;    /* of the bucket, as it is asked for, without a slash at the end */
	char *prefix; /* "": all of the bucket */
	struct credentials_cache *credentials; /* NULL: it is asked without */
	void *own;                             /* the dialect's */
	pthread_mutex_t lock;                  /* protects what follows */
	char *last_within; /* the directory in whose directories names were looked for last */
};

static inline struct bucket *bucket_of(const struct store *s)
{
	return s->own;
}

/* Of struct store_kind. */
int bucket_open(struct store *s, const char *url);
void bucket_close(struct store *s);
int bucket_prepare(struct store *s);
int bucket_fetch(struct store *s, const char *path, struct object_list **ret);
int bucket_look(struct store *s, const char *path, struct io_object *ret);
int bucket_reach(struct store *s, const char *path, size_t *ret);
int bucket_descend(struct store *s, const char *path);
int bucket_list_begin(struct store *s, const char *path, struct store_listing **ret);
int bucket_list_end(struct store *s, struct store_listing *listing);
int bucket_authorize(void *arg, const struct http_request *req, struct http_headers *ret);
bool bucket_explain(void *arg, const struct http_refusal *refusal, struct http_request *req);
const char *bucket_file(struct store *s, size_t i);
#define BUCKET_KIND                                                                               \
	.no_rename = true, .open = bucket_open, .close = bucket_close, .prepare = bucket_prepare, \
	.fetch = bucket_fetch, .look = bucket_look, .reach = bucket_reach,                        \
	.descend = bucket_descend, .list_begin = bucket_list_begin, .list_end = bucket_list_end,  \
	.authorize = bucket_authorize, .explain = bucket_explain, .file = bucket_file

/* For dialects: "Name: value". */
int bucket_header(struct http_headers *h, const char *name, const char *value);

#endif
