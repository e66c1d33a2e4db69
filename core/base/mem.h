/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - ownership helpers: cleanup attributes, take(), checked arithmetic.
 *
 * A local that owns something is declared with one of the auto_ attributes and
 * moved into an output with take(); the project has no `goto`.
 */
#ifndef PYTREEFS_MEM_H
#define PYTREEFS_MEM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* Set when the address sanitizer is on; GCC and Clang report that differently. */
#if defined(__SANITIZE_ADDRESS__)
#define PYTREEFS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PYTREEFS_ASAN 1
#endif
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
/* Each argument is evaluated once. Not for constant expressions. */
#define MIN(a, b) EXTREME(<, a, b, __COUNTER__)
#define MAX(a, b) EXTREME(>, a, b, __COUNTER__)
#define EXTREME(op, a, b, id) EXTREME_(op, a, b, id)
#define EXTREME_(op, a, b, id)                      \
	({                                          \
		__auto_type a_##id = (a);           \
		__auto_type b_##id = (b);           \
		a_##id op b_##id ? a_##id : b_##id; \
	})

#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

/* Move a pointer out of a local: the local becomes NULL and its cleanup does nothing. */
#define take(p)                            \
	({                                 \
		__typeof__(p) take_ = (p); \
		(p) = NULL;                \
		take_;                     \
	})

static inline void mem_free_cleanup(void *p)
{
	free(*(void **)p);
}

static inline void mem_close_cleanup(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
	}
}

#define auto_free __attribute__((cleanup(mem_free_cleanup)))
#define auto_close __attribute__((cleanup(mem_close_cleanup)))

/*
 * DEFINE_AUTO(noun, type, fn) makes the attribute usable as
 *     auto_of(noun) type *x = NULL;
 * fn takes the pointer and accepts NULL.
 */
#define DEFINE_AUTO(noun, type, fn)                      \
	static inline void noun##_auto_cleanup(type **p) \
	{                                                \
		fn(*p);                                  \
	}                                                \
	struct noun##_auto_needs_semicolon
#define auto_of(noun) __attribute__((cleanup(noun##_auto_cleanup)))

/* Products and sums of sizes from disk. Return false when the result does not fit. */
static inline bool mul_fits(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}

static inline bool add_fits(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_add_overflow(a, b, ret);
}

static inline uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static inline uint64_t div_up(uint64_t n, uint64_t by)
{
	return n / by + (n % by != 0);
}

#endif
