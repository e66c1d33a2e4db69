/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_held.h - the most memory that was allocated at one time, in a build with the address
 * sanitizer; 0 in others. For one file of a program.
 */
#ifndef PYTREEFS_MEMORY_HELD_H
#define PYTREEFS_MEMORY_HELD_H

#include "tests/fuzz/fuzz.h"

#ifdef PYTREEFS_ASAN
#include <stdatomic.h>

int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
					      void (*free_hook)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);

static atomic_long memory_now, memory_peak;

static void memory_allocated(const volatile void *p, size_t n)
{
	long now = atomic_fetch_add(&memory_now, (long)n) + (long)n;

	if (now > atomic_load(&memory_peak))
		atomic_store(&memory_peak, now);
}

static void memory_freed(const volatile void *p)
{
	if (p)
		atomic_fetch_sub(&memory_now, (long)__sanitizer_get_allocated_size(p));
}
#endif

/* Once. */
static inline void memory_watch(void)
{
#ifdef PYTREEFS_ASAN
	must(__sanitizer_install_malloc_and_free_hooks(memory_allocated, memory_freed));
#endif
}

/* Start to count allocations. */
static inline void memory_begin(void)
{
#ifdef PYTREEFS_ASAN
	atomic_store(&memory_now, 0);
	atomic_store(&memory_peak, 0);
#endif
}

static inline uint64_t memory_most(void)
{
#ifdef PYTREEFS_ASAN
	return (uint64_t)atomic_load(&memory_peak);
#else
	return 0;
#endif
}

#endif
