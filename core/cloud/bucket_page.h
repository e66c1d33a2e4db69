/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_page.h - a page of what is in a bucket, as its parsers give it (s3_xml.h, gcs_json.h), and
 * values of such documents.
 */
#ifndef PYTREEFS_CORE_CLOUD_BUCKET_PAGE_H
#define PYTREEFS_CORE_CLOUD_BUCKET_PAGE_H

#include <time.h>

#include "core/base/buf.h"
#include "core/io/io_store.h"

#define BUCKET_PAGE_BYTES \
	(16 << 20) /* 1,000 keys of 1,024 bytes, escaped, and what is said of them */

/* An object (is_dir: what keys that go on after a '/' have in common), by its whole key. */
typedef int bucket_entry_fn(void *arg, struct span key, const struct io_object *o);

struct bucket_page {
	bool is_truncated;
	struct buf next; /* the token of the page that follows; the caller's */
	size_t n;        /* entries */
};

/* "2024-05-06T07:08:09.000Z", as answers have it; the fraction may be absent. */
bool parse_time(struct span text, time_t *ret);
/* A number of bytes, in decimal digits. */
bool parse_size(struct span text, uint64_t *ret);
/* A word of a server's, as of the code of an error; others, and longer ones, are left out. */
void parse_word(struct span text, char *ret, size_t max);

#endif
