/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_page.c - values of the documents of buckets.
 */
#include "core/remote/documents/bucket_page.h"

#include <ctype.h>
#include <stdio.h>

bool parse_time(struct span text, time_t *ret)
{
	struct tm tm = { 0 };
	char s[40];

	if (text.n >= sizeof(s))
		return false;
	memcpy(s, text.p, text.n);
	s[text.n] = '\0';
	if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
		   &tm.tm_min, &tm.tm_sec) != 6)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	*ret = timegm(&tm);
	return true;
}

bool parse_size(struct span text, uint64_t *ret)
{
	uint64_t v = 0;

	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] < '0' || text.p[i] > '9' || v > (UINT64_MAX >> 1) / 10 - 1)
			return false;
		v = 10 * v + (text.p[i] - '0');
	}
	*ret = v;
	return text.n > 0;
}

void parse_word(struct span text, char *ret, size_t max)
{
	for (size_t i = 0; i < text.n; i++)
		if (!isalnum(text.p[i]) && !strchr("-_.:", text.p[i]))
			return;
	if (text.n < max)
		snprintf(ret, max, "%.*s", SPAN_ARG(text));
}
