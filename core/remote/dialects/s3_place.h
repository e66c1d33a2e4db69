/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_place.h - the https URL of a bucket, from s3://BUCKET/PREFIX and options.
 */
#ifndef PYTREEFS_CORE_STORE_S3_PLACE_H
#define PYTREEFS_CORE_STORE_S3_PLACE_H

#include "core/remote/source/url_store.h"

struct s3_place {
	char *bucket, *prefix; /* "": the whole bucket */
	char *region;
	bool is_virtual; /* the bucket is part of the host's name */
	char *url;       /* the URL of the bucket, without a slash at the end */
	char *host;      /* the value of the header Host */
};

/*
 * endpoint and region come from the environment; NULL: not set. -EINVAL with a note. The caller
 * releases the place, which is zeroed before, also on failure.
 */
int s3_place(const char *url, const struct url_store_opts *opts, const char *endpoint,
	     const char *region, struct s3_place *p);
void s3_place_release(struct s3_place *p);
bool s3_region_is_valid(const char *region);

#endif
