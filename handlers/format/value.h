/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - the contents of a leaf, however they are stored: an array, a text, or None.
 *
 * Leaf types (handlers/leaf) make values from storage; formats make the bytes of files from values.
 * Neither knows the other.
 */
#ifndef PYTREEFS_VALUE_H
#define PYTREEFS_VALUE_H

#include "core/step/item.h"
#include "core/zarr/zarr.h"

enum value_kind {
	VALUE_UNKNOWN,
	VALUE_ARRAY,
	VALUE_TEXT, /* UTF-8, of a string leaf */
	VALUE_NONE,
	VALUE_FILE, /* the bytes of a file in the format of a plugin */
};

struct value {
	enum value_kind kind;
	struct zarr *array; /* VALUE_ARRAY; owns a reference */
	bool is_scalar;     /* VALUE_ARRAY: the checkpoint records a number, not an array */
	struct buf text;    /* VALUE_TEXT, VALUE_FILE */
};

void value_release(struct value *v);
#define auto_value __attribute__((cleanup(value_release))) struct value

#endif
