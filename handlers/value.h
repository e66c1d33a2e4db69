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
	VALUE_TEXT,			/* UTF-8 of a string leaf */
	VALUE_NONE,
	VALUE_FILE,			/* what a plugin makes of it: bytes of its form */
};

struct value {
	enum value_kind kind;
	struct zarr *array;		/* VALUE_ARRAY: a reference */
	bool is_scalar;			/* VALUE_ARRAY: recorded as a number, not as an array */
	struct buf text;		/* VALUE_TEXT, VALUE_FILE */
};

void value_release(struct value *v);
#define auto_value __attribute__((cleanup(value_release))) struct value

/* ---- leaf handlers: storage -> value ---- */

struct leaf_handler {
	const char *name;		/* "array" */
	const char *const *typestr;	/* value types that it takes, NULL at the end */
	const char *summary;		/* one line, for `info --handlers` */
	enum name_ext ext;		/* of its default form */
	int (*open)(const struct leaf_handler *h, struct item *item, const struct tree_node *leaf, struct value *ret);
};

/* The handler of a leaf; NULL when there is none for its value type: its files are shown as stored. */
const struct leaf_handler *leaf_handler_of(const struct tree_node *leaf);
/* All of them, in the order of probing; NULL at the end. */
extern const struct leaf_handler *const leaf_handlers[];
/* The extension of a leaf's default form: for tree_name(). */
enum name_ext leaf_ext(void *arg, const struct tree_node *leaf);
int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret);
/* The array of a leaf that has one, stored or computed: a reference. */
int leaf_array_open(struct item *item, const struct tree_node *leaf, struct zarr **ret);

extern const struct leaf_handler leaf_array, leaf_scalar, leaf_string, leaf_none;

#endif
