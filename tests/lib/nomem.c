/* SPDX-License-Identifier: Apache-2.0 */
/* nomem.c - a library for LD_PRELOAD with which the allocation of the number TEST_FAIL_AT fails. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static atomic_uint count;
static unsigned fail_at;

__attribute__((constructor)) static void nomem_begin(void)
{
	fail_at = (unsigned)atoi(getenv("TEST_FAIL_AT"));
}

static int fails(void)
{
	if (!fail_at || ++count != fail_at)
		return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
