/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_write.h - writes and removes objects of a bucket.
 *
 * An object appears as a whole, after its last byte has arrived and its checksum matches, or not at
 * all. These functions send requests and wait for the answers; any thread may
 * call them. A request that was refused because its credentials had expired is sent again with new
 * ones.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_WRITE_H
#define PYTREEFS_CORE_STORE_STORE_WRITE_H

#include "core/io/io_store.h"

/* -EROFS with a note when the objects of a store are only read. */
int store_check_writable(const struct io_store *store);
#define STORE_IF_ABSENT ""
/*
 * if_tag: STORE_IF_ABSENT, or the tag (store_get()) of the object to replace; NULL: no
 * condition. -EEXIST (or -ENOENT, with a tag) if the condition does not hold. When an answer was
 * lost and an object with these bytes exists, it counts as ours: so with a condition no other
 * writer may put the same bytes. ret_may_arrive (unless NULL): after a failure, whether the
 * object may be there nevertheless, or appear later: a request was sent and not answered.
 */
int store_put(struct io_store *store, const char *path, struct span content, const char *if_tag,
	      bool *ret_may_arrive);
#define STORE_TAG_MAX 256
/*
 * Append the bytes of a small object to ret. ret_tag: what the vendor changes with each put, in
 * STORE_TAG_MAX bytes; may be NULL. -ENOENT; -EFBIG above the limit.
 */
int store_get(struct io_store *store, const char *path, size_t limit, struct buf *ret,
	      char *ret_tag);
/* Remove objects, many at once. An object that does not exist counts as removed. Returns the first
 * error. */
int store_remove(struct io_store *store, const char *const *path, size_t n);
/* Remove unfinished uploads below a directory, if the bucket can list them. */
int store_remove_uploads(struct io_store *store, const char *path);

/*
 * An object that is sent in parts. After store_upload_start() several threads may send parts at the
 * same time, unless store_upload_is_in_order(): then parts are sent one after the other. A part is
 * sent from the caller's memory, and the server has it when the call returns.
 */
struct store_upload;
/* Sends no request. A part has at most part_max bytes, or 8 MiB if that is more. */
int store_upload_begin(struct io_store *store, const char *path, size_t part_max,
		       struct store_upload **ret);
bool store_upload_is_in_order(const struct store_upload *u);
/* The size of part `number`, counted from 1; only the last part may be smaller. */
size_t store_upload_part_bytes(const struct store_upload *u, unsigned number);
/* Begin the upload on the server. Not needed when the object has one part only. */
int store_upload_start(struct store_upload *u);
int store_upload_part(struct store_upload *u, unsigned number, uint64_t off, struct span bytes,
		      bool is_last);
/* Complete the object; all parts have been sent. */
int store_upload_end(struct store_upload *u, uint64_t size);
/* Abort the upload unless it was completed. Accepts NULL. */
void store_upload_free(struct store_upload *u);
DEFINE_AUTO(store_upload, struct store_upload, store_upload_free);

#endif
