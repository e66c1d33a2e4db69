/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.c - arrays that grow by doubling.
 */
#include "core/base/array.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/meter.h"

#define CAP_MIN ((size_t)8)

static size_t larger(size_t cap, size_t need)
{
	return MAX(MAX(need, 2 * cap), CAP_MIN);
}

bool array_reserve_size(void **array, size_t *cap, size_t need, size_t element_bytes)
{
	size_t more = larger(*cap, need);
	void *p;

	if (need <= *cap)
		return true;
	p = reallocarray(*array, more, element_bytes);
	if (!p)
		return false;
	*array = p;
	*cap = more;
	return true;
}

int array_reserve_charged_size(void **array, size_t *cap, size_t need, size_t element_bytes,
			       size_t charged_bytes)
{
	uint64_t charge = (larger(*cap, need) - *cap) * charged_bytes;
	int r = need <= *cap ? 0 : meter_charge(charge);

	if (r < 0 || array_reserve_size(array, cap, need, element_bytes))
		return r;
	meter_release(charge);
	return fail(-ENOMEM, "cannot list %zu elements: not enough memory", need);
}

int array_by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}
