/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h - what every unit test includes: cmocka, with the headers that it wants before it.
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

/* cmocka's fail() is in the way of ours, which tests use to make notes. */
#undef fail
#undef fail_msg
#define fail_msg(...)                      \
	do {                               \
		print_error(__VA_ARGS__);  \
		print_error("\n");         \
		_fail(__FILE__, __LINE__); \
	} while (0)

#include "core/base/err.h"

#endif
