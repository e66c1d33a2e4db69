/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_none.c - replaces the dialects of vendors in a build without one of their libraries,
 * and in the ordinary program, which leaves URLs to another one (tools/cli/url_program.h).
 */
#include "core/base/err.h"
#include "core/remote/bucket/bucket.h"

static int bucket_none_refuse(struct store *s, const char *url)
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

const struct bucket_dialect s3_dialect = {
	.open = bucket_none_refuse,
};

const struct bucket_dialect gcs_dialect = {
	.open = bucket_none_refuse,
};
