/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_none.c - replaces store_s3.c and store_gcs.c in a build without one of their libraries,
 * and in the ordinary program, which leaves URLs to another one (tools/cli/url_program.h).
 */
#include "core/base/err.h"
#include "core/remote/upload/step_upload.h"
#include "core/remote/source/url_store_impl.h"

static int refuse(struct store *s, const char *url)
{
#ifdef URL_PROGRAM
	return fail(-EOPNOTSUPP,
		    "'%s' cannot be read without the program '" URL_PROGRAM
		    "', which must be beside this one",
		    url);
#else
	return fail(-EOPNOTSUPP,
		    "'%s' cannot be read: this pytreefs was built without libcurl, libcrypto or "
		    "expat (libcurl4-openssl-dev, libssl-dev, libexpat1-dev)",
		    url);
#endif
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

int store_put(struct io_store *store, const char *path, struct span content, const char *if_tag,
	      bool *ret_may_arrive)
{
	return store_check_writable(store);
}

int store_get(struct io_store *store, const char *path, size_t limit, struct buf *ret)
{
	return store_check_writable(store);
}

int store_get_tagged(struct io_store *store, const char *path, size_t limit, struct buf *ret,
		     char ret_tag[STORE_TAG_MAX])
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

int step_upload_begin(const char *url, const struct url_store_opts *opts, struct budget *budget,
		      struct step_upload **ret)
{
	return refuse(NULL, url);
}

struct file_sender *step_upload_sender(struct step_upload *u)
{
	return NULL;
}

int step_upload_run(struct step_upload *u, struct io_dir *from, int (*check)(void *arg), void *arg)
{
	return -EOPNOTSUPP;
}

void step_upload_free(struct step_upload *u)
{
}

struct span step_upload_claim(const struct step_upload *u)
{
	return span_of(NULL, 0);
}

int step_upload_join(const char *url, const struct url_store_opts *opts, struct budget *budget,
		     struct span claim, struct step_upload **ret)
{
	return refuse(NULL, url);
}

int step_upload_send(struct step_upload *u, struct io_dir *from, int (*check)(void *arg), void *arg)
{
	return -EOPNOTSUPP;
}

int step_upload_commit_shared(struct step_upload *u, int (*check)(void *arg), void *arg)
{
	return -EOPNOTSUPP;
}

int step_upload_drop(struct step_upload *u)
{
	return -EOPNOTSUPP;
}

int step_upload_list(const struct step_upload *u, struct buf *ret)
{
	return -EOPNOTSUPP;
}

int step_upload_remove_others(struct step_upload *u, const struct buf *list, size_t n)
{
	return -EOPNOTSUPP;
}

int step_upload_is_committed(struct step_upload *u)
{
	return -EOPNOTSUPP;
}

void step_upload_set_keep(struct step_upload *u, bool keep)
{
}

bool step_upload_may_exist(const struct step_upload *u)
{
	return false;
}

bool step_upload_must_keep(const struct step_upload *u)
{
	return false;
}

int step_upload_resolve(struct step_upload *u)
{
	return -EOPNOTSUPP;
}

struct file_sender *file_sender_ref(struct file_sender *fs)
{
	return fs;
}

void file_sender_unref(struct file_sender *fs)
{
}

void file_sender_grew(struct file_sender *fs, struct sent_file **file, const char *path,
		      struct io_file *from, uint64_t end)
{
}

void file_sender_cut(struct file_sender *fs, struct sent_file *file, uint64_t end)
{
}

void file_sender_closed(struct file_sender *fs, struct sent_file *file)
{
}

int step_uploads_remove(const char *url, const struct url_store_opts *opts,
			const struct upload_gc *gc)
{
	return refuse(NULL, url);
}
