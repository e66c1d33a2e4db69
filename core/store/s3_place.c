/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_place.c - where requests for a bucket go.
 */
#include "core/store/s3_place.h"

#include <ctype.h>
#include <stdio.h>

#include "core/base/err.h"

#define REGION_STANDARD "us-east-1"
#define ENDPOINT_MAX 1024
#define BUCKET_MAX 255 /* of old ones; others have 63 */

bool s3_region_is_valid(const char *region)
{
	size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < 64 && !region[n];
}

/* As a part of a host's name, for which there is a certificate. */
static bool may_be_in_a_host(const char *bucket)
{
	size_t n = strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return !bucket[n] && n >= 3 && n <= 63 && bucket[0] != '-' && bucket[n - 1] != '-';
}

static int check_prefix(const char *url, const char *prefix)
{
	for (const char *at = prefix; *at;) {
		size_t n = strcspn(at, "/");

		if (n == 0 || (n <= 2 && !strncmp(at, "..", n)))
			return fail(-EINVAL,
				    "'%s' has '%.*s' as a part of its path, which no key of a "
				    "checkpoint has",
				    url, (int)n, at);
		at += n + (at[n] == '/');
	}
	return 0;
}

static int split(const char *url, struct s3_place *p)
{
	const char *at = url + strlen("s3://");
	size_t n = strcspn(at, "/"), end = strlen(at);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)at[i]) && !strchr(".-_", at[i]))
			return fail(-EINVAL,
				    "a bucket has letters, digits, '.', '-' and '_' in its "
				    "name: s3://BUCKET/PREFIX");
	if (n == 0 || n > BUCKET_MAX)
		return fail(-EINVAL, "'%s' has no name of a bucket: s3://BUCKET/PREFIX", url);
	p->bucket = span_dup_str(span_of(at, n));
	while (end > n && (at[end - 1] == '/' || (at[end - 1] == '.' && at[end - 2] == '/')))
		end--;
	n += n < end;
	p->prefix = span_dup_str(span_of(at + n, end - n));
	if (!p->bucket || !p->prefix)
		return fail(-ENOMEM, "cannot open '%s'", url);
	return check_prefix(url, p->prefix);
}

/* What "http://HOST[:PORT][/PATH]" consists of. */
struct endpoint {
	struct span scheme, host, path;
};

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("-._~:/[]", *text))
			return false;
	return true;
}

static int parse_endpoint(const char *text, struct endpoint *ret)
{
	bool is_secure = !strncmp(text, "https://", 8);
	const char *host = text + (is_secure ? 8 : 7);
	size_t n;

	/* A password would be shown to everybody. */
	if (strchr(text, '@'))
		return fail(-EINVAL, "an endpoint with a user's name or a password is not taken");
	if (!is_secure && strncmp(text, "http://", 7) != 0)
		return fail(-EINVAL, "the endpoint '%s' is not a URL: https://HOST", text);
	n = strcspn(host, "/");
	if (!n || !is_plain(host) || strlen(host) > ENDPOINT_MAX)
		return fail(-EINVAL, "the endpoint '%s' is not a URL: https://HOST", text);
	ret->scheme = span_of(text, (size_t)(host - text));
	ret->host = span_of(host, n);
	ret->path = span_str(host + n);
	while (ret->path.n && ret->path.p[ret->path.n - 1] == '/')
		ret->path.n--;
	return 0;
}

/* As it is sent: in small letters, without the port that the scheme has anyway. */
static void tidy_host(char *host, bool is_secure)
{
	const char *standard = is_secure ? ":443" : ":80";
	size_t n = strlen(host), m = strlen(standard);

	for (char *c = host; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (n > m && !strcmp(host + n - m, standard))
		host[n - m] = '\0';
}

static int make_urls(struct s3_place *p, const struct endpoint *e)
{
	auto_free char *bucket = p->is_virtual ? str_fmt("%s.", p->bucket) : strdup("");

	if (bucket)
		p->host = str_fmt("%s%.*s", bucket, SPAN_ARG(e->host));
	if (p->host) {
		tidy_host(p->host, e->scheme.n == 8);
		p->url = str_fmt("%.*s%s%.*s%s%s", SPAN_ARG(e->scheme), p->host, SPAN_ARG(e->path),
				 p->is_virtual ? "" : "/", p->is_virtual ? "" : p->bucket);
	}
	return p->url ? 0 : fail(-ENOMEM, "cannot open a bucket");
}

static int place(const char *url, const struct url_store_opts *opts, const char *endpoint,
		 const char *region, struct s3_place *p)
{
	auto_free char *standard = NULL;
	struct endpoint e = { 0 };
	int r = split(url, p);

	if (r < 0)
		return r;
	if (!s3_region_is_valid(region))
		return fail(-EINVAL, "'%s' is not the name of a region", region);
	p->region = strdup(region);
	standard = str_fmt("https://s3.%s.amazonaws.com%s", region,
			   strncmp(region, "cn-", 3) ? "" : ".cn");
	if (!p->region || !standard)
		return fail(-ENOMEM, "cannot open '%s'", url);
	r = parse_endpoint(endpoint ? endpoint : standard, &e);
	if (r < 0)
		return r;
	p->is_virtual = opts->addressing == URL_ADDRESSING_VIRTUAL ||
			(opts->addressing == URL_ADDRESSING_AUTO && !endpoint &&
			 may_be_in_a_host(p->bucket));
	return make_urls(p, &e);
}

int s3_place(const char *url, const struct url_store_opts *opts, const char *endpoint,
	     const char *region, struct s3_place *ret)
{
	struct s3_place p = { 0 };
	int r = place(url, opts, opts->endpoint ? opts->endpoint : endpoint,
		      opts->region ? opts->region :
		      region       ? region :
				     REGION_STANDARD,
		      &p);

	if (r < 0) {
		s3_place_release(&p);
		return r;
	}
	*ret = p;
	return 0;
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
