/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_place.h - parses SCHEME://BUCKET/PREFIX and endpoints.
 */
#ifndef PYTREEFS_CORE_STORE_BUCKET_PLACE_H
#define PYTREEFS_CORE_STORE_BUCKET_PLACE_H

#include "core/base/buf.h"

/*
 * The prefix has no slashes at its ends; "" is the whole bucket. -EINVAL with a note. The caller
 * frees both, also on failure.
 */
int bucket_split(const char *url, char **ret_bucket, char **ret_prefix);

/* The parts of "http://HOST[:PORT][/PATH]", borrowed from the text. */
struct endpoint {
	struct span scheme, host, path; /* "http://", without a slash at the end */
};
/* -EINVAL with a note. */
int endpoint_parse(const char *text, struct endpoint *ret);
/* Change a host to how it is sent: in small letters, without the default port of the scheme. */
void endpoint_tidy_host(char *host, bool is_secure);

#endif
