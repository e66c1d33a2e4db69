/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_fn.h - the names of the built-in value functions of transforms=.
 *
 * Plugins may not use these names (plugins.c). handlers/transform/derived.c implements the
 * functions.
 */
#ifndef PYTREEFS_VALUE_FN_H
#define PYTREEFS_VALUE_FN_H

#include "core/base/buf.h"

enum value_fn {
	VALUE_FN_NONE,
	VALUE_FN_CAST,
	VALUE_FN_TRANSPOSE,
	VALUE_FN_RESHAPE,
	VALUE_FN_SLICE,
	VALUE_FN_SCALE,
	VALUE_FN_ADD,
	VALUE_FN_PAD,
	VALUE_FN_UNSTACK,
	VALUE_FN_CONCAT,
	VALUE_FN_STACK,
	VALUE_FN_PLUGIN, /* a plugin's function, which has a name of its own */
};

/* Returns VALUE_FN_NONE when no built-in function has that name. */
enum value_fn value_fn_by_name(struct span name);
const char *value_fn_name(enum value_fn fn);

#endif
