/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_page.h - a page of a bucket's listing, as its parsers return it (s3_xml.h, gcs_json.h),
 * and values of such documents.
 */
#ifndef PYTREEFS_CORE_CLOUD_BUCKET_PAGE_H
#define PYTREEFS_CORE_CLOUD_BUCKET_PAGE_H

#include <time.h>

#include "core/base/buf.h"
#include "core/io/io_store.h"

#define BUCKET_PAGE_BYTES (16 << 20) /* 1,000 entries with keys of 1,024 bytes, escaped */

/* Called for each object with its whole key. is_dir: a common prefix of keys, up to a '/'. */
typedef int bucket_entry_fn(void *arg, struct span key, const struct io_object *o);

struct bucket_page {
	bool is_truncated;
	struct buf next; /* the token of the next page; owned by the caller */
	size_t n;        /* entries */
};

/* "2024-05-06T07:08:09.000Z", as answers have it; the fraction may be absent. */
bool parse_time(struct span text, time_t *ret);
/* Parse a number of bytes in decimal digits. */
bool parse_size(struct span text, uint64_t *ret);
/* Copy a word from a server, such as an error code. Other text, or a longer one, is ignored. */
void parse_word(struct span text, char *ret, size_t max);

#endif
