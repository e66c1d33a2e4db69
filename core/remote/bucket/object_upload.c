/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_upload.c - sends an object in parts, or by one request if it is small.
 *
 * file_sender.c decides which part is sent when, and owns the memory.
 */
#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/remote/bucket/bucket_write.h"

#define PARTS_MAX 10000   /* S3's limit */
#define GROWS_AFTER 1000u /* after so many parts, parts are twice as large */
#define GROWS_AT_MOST 4u

static const struct bucket_write *upload_write_table(const struct store_upload *u)
{
	return u->s->dialect->write;
}

int store_upload_begin(struct io_store *store, const char *path, size_t part_max,
		       struct store_upload **ret)
{
	struct store_upload *u;
	int r = store_check_writable(store);

	if (r < 0)
		return r;
	u = calloc(1, sizeof(*u));
	if (u)
		u->path = strdup(path);
	if (!u || !u->path) {
		free(u);
		return fail(-ENOMEM, "cannot write '%s'", path);
	}
	u->s = container_of(store, struct store, base);
	u->part_max = MAX(part_max, PART_BYTES);
	pthread_mutex_init(&u->lock, NULL);
	*ret = u;
	return 0;
}

bool store_upload_is_in_order(const struct store_upload *u)
{
	return upload_write_table(u)->in_order;
}

size_t store_upload_part_bytes(const struct store_upload *u, unsigned number)
{
	return MIN((size_t)PART_BYTES << MIN((number - 1) / GROWS_AFTER, GROWS_AT_MOST),
		   u->part_max);
}

int store_upload_start(struct store_upload *u)
{
	return u->id ? 0 : upload_write_table(u)->begin(u);
}

int store_upload_part(struct store_upload *u, unsigned number, uint64_t off, struct span bytes,
		      bool is_last)
{
	struct upload_part p = { .bytes = bytes, .off = off, .number = number, .is_last = is_last };
	int r;

	if (number > PARTS_MAX)
		return fail(-EFBIG, "'%s' has more than %d parts", u->path, PARTS_MAX);
	if (number == 1 && is_last && !u->id && bytes.n <= upload_write_table(u)->put_max) {
		r = store_put(&u->s->base, u->path, bytes, u->is_new ? STORE_IF_ABSENT : NULL,
			      NULL);
		u->exists = r >= 0;
		return r;
	}
	if (upload_write_table(u)->in_order) {
		u->size = off + bytes.n;
		u->crc = crc32c_more(u->crc, bytes);
	}
	r = store_upload_start(u);
	if (r < 0)
		return r;
	r = upload_write_table(u)->part(u, &p);
	bucket_request_release(&p.request);
	return r;
}

int store_upload_end(struct store_upload *u, uint64_t size)
{
	int r;

	if (u->exists)
		return 0;
	u->size = size;
	r = upload_write_table(u)->end(u);
	u->exists = r >= 0;
	return r;
}

void store_upload_free(struct store_upload *u)
{
	struct err_note why;

	if (!u)
		return;
	err_peek(&why);
	if (u->id && !u->exists)
		upload_write_table(u)->abort(u);
	secret_free(u->id);
	for (size_t i = 0; i < u->cap_tags; i++)
		free(u->tag[i]);
	free(u->tag);
	pthread_mutex_destroy(&u->lock);
	free(u->path);
	free(u);
	err_restore(&why);
}
