/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store.h - sources with a URL as stores of core/io (io_store.h), over libcurl
 * (core/remote/transport).
 *
 *     http://HOST[:PORT]/PATH  https://...     any server with ranges; it cannot list, so a
 *                                              directory has the known names that exist
 *     s3://BUCKET/PREFIX                       S3, and servers like it
 *     gs://BUCKET/PREFIX                       Google Cloud Storage
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_H
#define PYTREEFS_CORE_STORE_URL_STORE_H

#include "core/io/io_store.h"

/* How to find the entries of a directory on a server that cannot list. */
struct store_names {
	/* Ends with NULL; "DIRECTORY/NAME" is looked for in the directory that has DIRECTORY, and
	 * NAME in DIRECTORY itself. */
	const char *const *name;
	/* The first n_first names are those by which a directory of a checkpoint is recognized;
	 * those up to n_model, by which a directory of another model is. */
	size_t n_first, n_model;
	/* One of the names is a document that lists directories; add(arg, name) is called for each.
	 */
	const char *document;
	int (*directories)(struct span text, int (*add)(void *arg, const char *name), void *arg);
};

/* The place of the bucket's name: in the path, or before the host. Automatic: in the path if an
 * endpoint is given. */
enum url_addressing { URL_ADDRESSING_AUTO, URL_ADDRESSING_PATH, URL_ADDRESSING_VIRTUAL };

struct url_store_opts {
	unsigned connections; /* 0: the default */
	unsigned listing_ms;  /* new names are seen after at most so long; 0: the default */
	struct store_names names;
	/* For buckets. NULL: as the environment or the vendor's files say, else a default. */
	const char *endpoint, *region;
	enum url_addressing addressing;
	bool anonymous; /* send requests without credentials */
	/* For web servers: the file with headers for each request (web_headers.h); NULL: none. */
	const char *http_headers;
	/* The directory of the cache on disk (store_cache.h); NULL: there is no such cache. */
	const char *cache_dir;
	uint64_t cache_dir_limit;
	bool may_be_empty; /* a URL without objects below it is an empty directory, not an error */
	unsigned claim_renew_ms;   /* time between renewals of a claim; 0: the default */
	bool writes;               /* request credentials that allow writing (store_write.h) */
	struct url_search *search; /* it may have the store already; NULL: there was no search */
};

/*
 * A search for the directory of a leaf's URL. store_open() of that, or of another directory of the
 * server, one at a time, gets the store that the search has opened, with all that is known there.
 */
struct url_search {
	struct io_store *store;
	size_t end; /* bytes of the URL that are a directory; 0: unknown */
};

/* Sends no request yet. -EINVAL: not a URL of ours; -EOPNOTSUPP: not in this build. */
int store_open(const char *url, const struct url_store_opts *opts, struct io_store **ret);

#define STORE_UPLOAD_THREADS 16 /* threads that upload the files of one step */
/* Whether steps can be written below a URL: s3:// and gs://. */
bool store_is_bucket(const char *url);

/* mkdir() of a cache_dir, before the process gives up the right to do so; 0 if it exists. */
int store_make_cache_dir(const char *path);
/*
 * Find how many bytes of a URL, which begins with a known scheme, are the URL of a directory, by
 * whole parts of its path; all bytes if that is not cheap to find out. Used to find the checkpoint
 * of a leaf's URL.
 */
int url_search(const char *url, const struct url_store_opts *opts, struct url_search *search,
	       size_t *ret);
void url_search_end(struct url_search *search);
#define auto_url_search __attribute__((cleanup(url_search_end))) struct url_search

#endif
