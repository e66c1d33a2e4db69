/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_store.h - sources with a URL: what core/io reads of them (io_store.h), over core/http.
 *
 *     http://HOST[:PORT]/PATH  https://...     any server with ranges; nothing can be listed there,
 * so a directory has those of the known names that exist
 *     s3://BUCKET/PREFIX                       S3, and what speaks like it
 *     gs://BUCKET/PREFIX                       Google Cloud Storage
 */
#ifndef PYTREEFS_CORE_STORE_URL_STORE_H
#define PYTREEFS_CORE_STORE_URL_STORE_H

#include "core/io/io_store.h"

/* How to find what is in a directory of a server that cannot list. */
struct store_names {
	/* NULL ends it; "DIRECTORY/NAME" is looked for in both places. */
	const char *const *name;
	/* The first ones are those that a directory of a checkpoint has. */
	size_t n_first;
	/* A document among them that names directories: add(arg, name) for each. */
	const char *document;
	int (*directories)(struct span text, int (*add)(void *arg, const char *name), void *arg);
};

/* Where the name of a bucket is: in the path, or before the host. Automatic: the path at an
 * endpoint that was given. */
enum url_addressing { URL_ADDRESSING_AUTO, URL_ADDRESSING_PATH, URL_ADDRESSING_VIRTUAL };

struct url_store_opts {
	unsigned connections; /* 0: the default */
	unsigned listing_ms;  /* a new name is seen after at most this; 0: the default */
	struct store_names names;
	/* Of buckets. NULL: what the environment and the vendor's files say, then a default. */
	const char *endpoint, *region;
	enum url_addressing addressing;
	bool anonymous; /* ask without credentials */
	/* What was read is kept there (store_cache.h); NULL: nowhere. */
	const char *cache_dir;
	uint64_t cache_dir_limit;
	bool may_be_empty; /* nothing below the URL is a directory without names, no error */
	bool writes;       /* with credentials that allow it (store_write.h) */
};

/* Asks the server nothing yet. -EINVAL: not a URL of ours; -EOPNOTSUPP: not in this build. */
int store_open(const char *url, const struct url_store_opts *opts, struct io_store **ret);

#define STORE_UPLOAD_THREADS 16 /* that put the files of one step */
/* Whether steps can be written below a URL: s3:// and gs://. */
bool store_is_bucket(const char *url);

/* mkdir() of a cache_dir, for who gives up the right to do it later; 0 also when it exists. */
int store_make_cache_dir(const char *path);
/*
 * How much of a URL is a directory, by whole parts of its path; all of it where that is not cheaply
 * known. For who has the path of a leaf, and looks for the checkpoint that it is in.
 */
int store_reach(const char *url, const struct url_store_opts *opts, size_t *ret);

#endif
