/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_place.c - parses the URLs of buckets and endpoints.
 */
#include "core/remote/bucket/bucket_place.h"

#include <ctype.h>

#include "core/base/err.h"

#define ENDPOINT_MAX 1024
#define BUCKET_MAX 255 /* the limit of old buckets; new ones have 63 */

int bucket_split(const char *url, char **ret_bucket, char **ret_prefix)
{
	int scheme = (int)(strstr(url, "://") - url);
	const char *at = url + scheme + strlen("://");
	size_t n = strcspn(at, "/"), end = strlen(at);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)at[i]) && !strchr(".-_", at[i]))
			return fail(-EINVAL,
				    "a bucket has letters, digits, '.', '-' and '_' in its "
				    "name: %.*s://BUCKET/PREFIX",
				    scheme, url);
	if (n == 0 || n > BUCKET_MAX)
		return fail(-EINVAL, "'%s' has no name of a bucket: %.*s://BUCKET/PREFIX", url,
			    scheme, url);
	*ret_bucket = span_dup_str(span_of(at, n));
	while (end > n && (at[end - 1] == '/' || (at[end - 1] == '.' && at[end - 2] == '/')))
		end--;
	n += n < end;
	*ret_prefix = span_dup_str(span_of(at + n, end - n));
	if (!*ret_bucket || !*ret_prefix)
		return fail(-ENOMEM, "cannot open '%s'", url);
	for (at = *ret_prefix; *at; at += n + (at[n] == '/')) {
		n = strcspn(at, "/");
		if (n == 0 || (n <= 2 && !strncmp(at, "..", n)))
			return fail(-EINVAL,
				    "'%s' has '%.*s' as a part of its path, which no key of a "
				    "checkpoint has",
				    url, (int)n, at);
	}
	return 0;
}

static bool place_is_plain(const char *text)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && !strchr("-._~:/[]", *text))
			return false;
	return true;
}

int endpoint_parse(const char *text, struct endpoint *ret)
{
	bool is_secure = !strncmp(text, "https://", 8);
	const char *host = text + (is_secure ? 8 : 7);
	size_t n;

	/* Users of this machine can read options, so a password must not be there. */
	if (strchr(text, '@'))
		return fail(-EINVAL, "an endpoint with a user's name or a password is not taken");
	if (!is_secure && strncmp(text, "http://", 7) != 0)
		return fail(-EINVAL, "the endpoint '%s' is not a URL: https://HOST", text);
	n = strcspn(host, "/");
	if (!n || !place_is_plain(host) || strlen(host) > ENDPOINT_MAX)
		return fail(-EINVAL, "the endpoint '%s' is not a URL: https://HOST", text);
	ret->scheme = span_of(text, (size_t)(host - text));
	ret->host = span_of(host, n);
	ret->path = span_str(host + n);
	while (ret->path.n && ret->path.p[ret->path.n - 1] == '/')
		ret->path.n--;
	return 0;
}

void endpoint_tidy_host(char *host, bool is_secure)
{
	const char *standard = is_secure ? ":443" : ":80";
	size_t n = strlen(host), m = strlen(standard);

	for (char *c = host; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (n > m && !strcmp(host + n - m, standard))
		host[n - m] = '\0';
}
