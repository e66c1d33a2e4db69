/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h - included by every unit test: cmocka, with the headers that it needs.
 */
#ifndef PYTREEFS_UNIT_H
#define PYTREEFS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* cmocka's fail() hides that of the program, with which tests make notes. */
#undef fail
#undef fail_msg
#define fail_msg(...)                      \
	do {                               \
		print_error(__VA_ARGS__);  \
		print_error("\n");         \
		_fail(__FILE__, __LINE__); \
	} while (0)

#include "core/base/err.h"

/* Returns this thread's last note, whatever its code, for an unexpected failure. */
static inline const char *unit_last_note(void)
{
	static _Thread_local struct err_note note;

	err_peek(&note);
	return note.code ? note.text : "without a note";
}

/* cmocka prints the two numbers in hex. If the first is an error, its note says more. */
static inline void unit_int_equal(uint64_t a, uint64_t b, const char *file, int line)
{
	int code = (int)(int64_t)a;

	if (a != b && code < 0 && *err_where(code))
		print_error("%d at %s: %s\n", code, err_where(code), err_text(code));
	_assert_int_equal(a, b, file, line);
}
#undef assert_int_equal
#define assert_int_equal(a, b) \
	unit_int_equal((uint64_t)(int64_t)(a), (uint64_t)(int64_t)(b), __FILE__, __LINE__)

/* cmocka compares byte by byte, and says where they differ. */
static inline void unit_memory_equal(const void *a, const void *b, size_t n, const char *file,
				     int line)
{
	if (memcmp(a, b, n))
		_assert_memory_equal(a, b, n, file, line);
}
#undef assert_memory_equal
#define assert_memory_equal(a, b, n) unit_memory_equal((a), (b), (n), __FILE__, __LINE__)

#endif
