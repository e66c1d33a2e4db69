/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - what a leaf holds, whatever stores it: an array, a text, or nothing.
 *
 * Leaf types (handlers/leaf) make values from storage; formats make file bytes from values.
 * Neither knows the other.
 */
#ifndef PYTREEFS_VALUE_H
#define PYTREEFS_VALUE_H

#include "core/step/item.h"
#include "core/zarr/zarr.h"

enum value_kind {
	VALUE_UNKNOWN,
	VALUE_ARRAY,
	VALUE_TEXT, /* UTF-8 of a string leaf */
	VALUE_NONE,
	VALUE_FILE, /* what a plugin makes of it: bytes of its format */
};

struct value {
	enum value_kind kind;
	struct zarr *array; /* VALUE_ARRAY: a reference */
	bool is_scalar;     /* VALUE_ARRAY: recorded as a number, not as an array */
	struct buf text;    /* VALUE_TEXT, VALUE_FILE */
};

void value_release(struct value *v);
#define auto_value __attribute__((cleanup(value_release))) struct value

#endif
