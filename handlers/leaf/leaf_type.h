/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_type.h - what a leaf type implements.
 *
 * A built-in type is a file leaf_NAME.c of this folder and a line in the table of leaf.c. A plugin
 * fills in the same struct and adds it (leaf_type_add()). Types are immutable once options have
 * been read; any thread may call them.
 */
#ifndef PYTREEFS_LEAF_TYPE_H
#define PYTREEFS_LEAF_TYPE_H

#include "handlers/format/value.h"

struct leaf_type {
	const char *name;           /* "array" */
	const char *const *typestr; /* type strings that it takes, NULL at the end */
	const char *summary;        /* one line, for `info --handlers` */
	enum name_ext ext;          /* of its default format */

	/* ---- from an item: reading ---- */

	/* Whether a leaf is of this type by where its value is, whatever its type string says.
	 * NULL: never. */
	bool (*recorded)(const struct tree_node *leaf);
	/* Whether it takes a type string that is not in typestr. NULL: no. */
	bool (*takes)(const struct leaf_type *t, struct span typestr);
	/* The value of a leaf; ret is {}, and released by the caller also after a failure. */
	int (*open)(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		    struct value *ret);
};

#endif
