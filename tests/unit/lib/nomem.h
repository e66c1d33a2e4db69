/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nomem.h - make allocations of our own code fail on request. Included by one file of a test
 * program, which is linked with --wrap for these functions.
 */
#ifndef PYTREEFS_NOMEM_H
#define PYTREEFS_NOMEM_H

#include "tests/unit/lib/points.h"
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
void *__real_block_alloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_str_fmt(const char *fmt, ...);
void *__wrap_block_alloc(size_t n);

static unsigned count, fail_at; /* fail_at 0: never */

static bool fails(void)
{
	return fail_at && ++count == fail_at;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

__attribute__((format(printf, 1, 2))) char *__wrap_str_fmt(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	int n;

	if (fails())
		return NULL;
	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

void *__wrap_block_alloc(size_t n)
{
	return fails() ? NULL : __real_block_alloc(n);
}

/* The next allocation that fails. */
static inline unsigned after(unsigned n)
{
	return points_after("TEST_EVERY_ALLOCATION", n);
}

#endif
