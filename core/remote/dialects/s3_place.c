/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_place.c - the https URL of a bucket of S3.
 */
#include "core/remote/dialects/s3_place.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/remote/bucket/bucket_place.h"

#define REGION_STANDARD "us-east-1"

bool s3_region_is_valid(const char *region)
{
	size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < 64 && !region[n];
}

/* Whether a bucket's name may be a part of the host's name and matches the wildcard certificate. */
static bool may_be_in_a_host(const char *bucket)
{
	size_t n = strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return !bucket[n] && n >= 3 && n <= 63 && bucket[0] != '-' && bucket[n - 1] != '-';
}

int s3_place(const char *url, const struct url_store_opts *opts, const char *endpoint,
	     const char *region, struct s3_place *p)
{
	auto_free char *standard = NULL;
	struct endpoint e = { 0 };
	int r = bucket_split(url, &p->bucket, &p->prefix);

	if (r < 0)
		return r;
	if (opts->endpoint)
		endpoint = opts->endpoint;
	region = opts->region ? opts->region : region ? region : REGION_STANDARD;
	if (!s3_region_is_valid(region))
		return fail(-EINVAL, "'%s' is not the name of a region", region);
	p->region = strdup(region);
	standard = str_fmt("https://s3.%s.amazonaws.com%s", region,
			   strncmp(region, "cn-", 3) ? "" : ".cn");
	if (!p->region || !standard)
		return fail(-ENOMEM, "cannot open '%s'", url);
	r = endpoint_parse(endpoint ? endpoint : standard, &e);
	if (r < 0)
		return r;
	p->is_virtual = opts->addressing == URL_ADDRESSING_VIRTUAL ||
			(opts->addressing == URL_ADDRESSING_AUTO && !endpoint &&
			 may_be_in_a_host(p->bucket));
	p->host = str_fmt("%s%s%.*s", p->is_virtual ? p->bucket : "", p->is_virtual ? "." : "",
			  SPAN_ARG(e.host));
	if (!p->host)
		return fail(-ENOMEM, "cannot open a bucket");
	endpoint_tidy_host(p->host, e.scheme.n == 8);
	p->url = str_fmt("%.*s%s%.*s%s%s", SPAN_ARG(e.scheme), p->host, SPAN_ARG(e.path),
			 p->is_virtual ? "" : "/", p->is_virtual ? "" : p->bucket);
	return p->url ? 0 : fail(-ENOMEM, "cannot open a bucket");
}

void s3_place_release(struct s3_place *p)
{
	free(p->bucket);
	free(p->prefix);
	free(p->region);
	free(p->url);
	free(p->host);
	*p = (struct s3_place){ 0 };
}
