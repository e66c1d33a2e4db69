/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_none.c - in place of store_s3.c and store_gcs.c in a build without one of its libraries.
 */
#include "core/base/err.h"
#include "core/store/step_upload.h"
#include "core/store/url_store_impl.h"

static int refuse(struct store *s, const char *url)
{
	return fail(-EOPNOTSUPP,
		    "'%s' cannot be read: this pytreefs was built without libcurl, libcrypto or "
		    "expat (libcurl4-openssl-dev, libssl-dev, libexpat1-dev)",
		    url);
}

const struct store_kind store_s3 = {
	.open = refuse,
};

const struct store_kind store_gcs = {
	.open = refuse,
};

int store_check_writable(const struct io_store *store)
{
	return fail(-EROFS, "'%s' is only read", store->url);
}

int store_put(struct io_store *store, const char *path, struct span content, bool only_new)
{
	return store_check_writable(store);
}

int store_get(struct io_store *store, const char *path, size_t limit, struct buf *ret)
{
	return store_check_writable(store);
}

int store_remove(struct io_store *store, const char *const *path, size_t n)
{
	return store_check_writable(store);
}

int store_remove_uploads(struct io_store *store, const char *path)
{
	return store_check_writable(store);
}

int store_upload_begin(struct io_store *store, const char *path, struct budget *budget,
		       struct store_upload **ret)
{
	return store_check_writable(store);
}

int store_upload_add(struct store_upload *u, struct span bytes)
{
	return -EROFS;
}

int store_upload_end(struct store_upload *u)
{
	return -EROFS;
}

void store_upload_free(struct store_upload *u)
{
}

int step_upload_begin(const char *url, const struct url_store_opts *opts, struct step_upload **ret)
{
	return refuse(NULL, url);
}

int step_upload_run(struct step_upload *u, struct io_dir *from, uint64_t write_budget,
		    int (*check)(void))
{
	return -EOPNOTSUPP;
}

void step_upload_free(struct step_upload *u)
{
}

int step_uploads_remove(const char *url, const struct url_store_opts *opts,
			const struct upload_gc *gc)
{
	return refuse(NULL, url);
}
