/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_place.h - where requests for a bucket go: s3://BUCKET/PREFIX and what the options say -> URLs
 * of https.
 */
#ifndef PYTREEFS_CORE_STORE_S3_PLACE_H
#define PYTREEFS_CORE_STORE_S3_PLACE_H

#include "core/store/url_store.h"

struct s3_place {
	char *bucket, *prefix; /* "": all of the bucket */
	char *region;
	bool is_virtual; /* the bucket is part of the host's name */
	char *url;       /* of the bucket, without a slash at the end */
	char *host;      /* as it is sent */
};

/* endpoint and region: those of the environment, or NULL. -EINVAL with a note. */
int s3_place(const char *url, const struct url_store_opts *opts, const char *endpoint,
	     const char *region, struct s3_place *ret);
void s3_place_release(struct s3_place *p);
bool s3_region_is_valid(const char *region);

#endif
