/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_write.h - objects of a bucket that are written, and removed.
 *
 * An object appears as a whole, when its last byte has been taken and what was sent was what
 * arrived, or not at all. All of these functions ask the server and wait; a store is any thread's,
 * an upload one thread's at a time. What keys were refused for because they had expired is sent
 * again with others.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_WRITE_H
#define PYTREEFS_CORE_STORE_STORE_WRITE_H

#include "core/base/budget.h"
#include "core/io/io_store.h"

/* -EROFS with a note when the objects of a store are only read. */
int store_check_writable(const struct io_store *store);
/*
 * only_new: -EEXIST when there is an object of that name. When an answer was lost and the object is
 * there with these bytes it is taken for ours: they are to be ones that nobody else writes.
 */
int store_put(struct io_store *store, const char *path, struct span content, bool only_new);
/* A small object, appended to ret. -ENOENT; -EFBIG above the limit. */
int store_get(struct io_store *store, const char *path, size_t limit, struct buf *ret);
/* All of these, many at once; what is not there is removed. The first error. */
int store_remove(struct io_store *store, const char *const *path, size_t n);
/* What uploads below a directory left when they were not ended, where a bucket can say. */
int store_remove_uploads(struct io_store *store, const char *path);

/* An object that is written in parts: its memory is taken from the budget, part by part. */
struct store_upload;
int store_upload_begin(struct io_store *store, const char *path, struct budget *budget,
		       struct store_upload **ret);
int store_upload_add(struct store_upload *u, struct span bytes);
/* The object is there. */
int store_upload_end(struct store_upload *u);
/* One that was not ended leaves nothing, as far as the server can be asked. Accepts NULL. */
void store_upload_free(struct store_upload *u);
DEFINE_AUTO(store_upload, struct store_upload, store_upload_free);

#endif
