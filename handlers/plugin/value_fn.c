/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_fn.c - the names of the built-in value functions of transforms=.
 */
#include "handlers/plugin/value_fn.h"

#include "core/base/mem.h"

static const char *const fn_names[] = {
	[VALUE_FN_NONE] = "",
	[VALUE_FN_CAST] = "cast",
	[VALUE_FN_TRANSPOSE] = "transpose",
	[VALUE_FN_RESHAPE] = "reshape",
	[VALUE_FN_SLICE] = "slice",
	[VALUE_FN_SCALE] = "scale",
	[VALUE_FN_ADD] = "add",
	[VALUE_FN_PAD] = "pad",
	[VALUE_FN_UNSTACK] = "unstack",
	[VALUE_FN_CONCAT] = "concat",
	[VALUE_FN_STACK] = "stack",
};

enum value_fn value_fn_by_name(struct span name)
{
	for (size_t i = VALUE_FN_NONE + 1; i < ARRAY_LEN(fn_names); i++)
		if (span_eq(name, span_str(fn_names[i])))
			return (enum value_fn)i;
	return VALUE_FN_NONE;
}

const char *value_fn_name(enum value_fn fn)
{
	return fn_names[fn];
}
