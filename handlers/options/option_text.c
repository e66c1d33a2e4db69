/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option_text.c - options as users write them: lists, and sizes in bytes.
 */
#include <ctype.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "handlers/options/options.h"

int options_each(const char *text, int (*fn)(void *arg, const char *option), void *arg)
{
	auto_free char *one = malloc(strlen(text) + 1);
	size_t n = 0;
	int r = 0;

	if (!one)
		return fail(-ENOMEM, "cannot parse options");
	for (;; text++) {
		if (text[0] == '\\' && text[1] == ',') {
			one[n++] = *++text;
			continue;
		}
		if (*text && *text != ',') {
			one[n++] = *text;
			continue;
		}
		one[n] = '\0';
		r = n ? fn(arg, one) : 0;
		if (r < 0 || !*text)
			return r;
		n = 0;
	}
}

/* A quarter, so that the cache and both budgets leave one to the rest. */
uint64_t option_auto_size(void)
{
	return MAX(64 * MiB, memory_available("") / 4);
}

int option_parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *at = text, *unit;
	uint64_t v = 0;

	if (!strcmp(text, "auto")) {
		*ret = option_auto_size();
		return 0;
	}
	for (; isdigit((unsigned char)*at); at++)
		if (!mul_fits(v, 10, &v) || !add_fits(v, (uint64_t)(*at - '0'), &v))
			return -EINVAL;
	if (at == text)
		return -EINVAL;
	unit = *at ? strchr(units, toupper((unsigned char)*at)) : NULL;
	if (*at && (!unit || at[1]))
		return -EINVAL;
	return mul_fits(v, unit ? (uint64_t)1 << (10 * (unit - units + 1)) : 1, ret) ? 0 : -EINVAL;
}
