/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - what a leaf holds, whatever stores it: an array, a text, or nothing.
 *
 * Leaf handlers make values from storage; forms make file bytes from values.
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
	VALUE_FILE, /* what a plugin makes of it: bytes of its form */
};

struct value {
	enum value_kind kind;
	struct zarr *array; /* VALUE_ARRAY: a reference */
	bool is_scalar;     /* VALUE_ARRAY: recorded as a number, not as an array */
	struct buf text;    /* VALUE_TEXT, VALUE_FILE */
};

void value_release(struct value *v);
#define auto_value __attribute__((cleanup(value_release))) struct value

/* ---- leaf handlers: storage -> value ---- */

struct leaf_handler {
	const char *name;           /* "array" */
	const char *const *typestr; /* value types that it takes, NULL at the end */
	const char *summary;        /* one line, for `info --handlers` */
	enum name_ext ext;          /* of its default form */
	int (*open)(const struct leaf_handler *h, struct item *item, const struct tree_node *leaf,
		    struct value *ret);
};

#endif
