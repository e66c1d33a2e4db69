/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.c - arrays that grow by doubling.
 */
#include "core/base/array.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

#define CAP_MIN ((size_t)8)

bool array_reserve_size(void **array, size_t *cap, size_t need, size_t element_bytes)
{
	size_t more = MAX(MAX(need, 2 * *cap), CAP_MIN);
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

int array_by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}
