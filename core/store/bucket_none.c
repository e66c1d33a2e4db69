/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_none.c - in place of store_s3.c and store_gcs.c in a build without one of its libraries.
 */
#include "core/base/err.h"
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
