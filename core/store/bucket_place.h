/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_place.h - parts of the places of buckets: of SCHEME://BUCKET/PREFIX, and of endpoints.
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_PLACE_H
#define PYTREEFS_CORE_STORE_BUCKET_PLACE_H

#include "core/base/buf.h"

/*
 * The prefix is without slashes at its ends, "" for all of the bucket. -EINVAL with a note. Both
 * are the caller's, also on failure.
 */
int bucket_split(const char *url, char **ret_bucket, char **ret_prefix);

/* What "http://HOST[:PORT][/PATH]" consists of: parts of the text. */
struct endpoint {
	struct span scheme, host, path; /* "http://", without a slash at the end */
};
/* -EINVAL with a note. */
int endpoint_parse(const char *text, struct endpoint *ret);
/* As it is sent: in small letters, without the port that the scheme has anyway. */
void endpoint_tidy_host(char *host, bool is_secure);

#endif
