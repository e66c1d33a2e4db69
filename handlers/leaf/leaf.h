/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.h - leaf types: find the type of a leaf or of a file of a draft, and call it.
 *
 * Any thread may call these functions once the options have been read.
 */
#ifndef PYTREEFS_LEAF_H
#define PYTREEFS_LEAF_H

#include "handlers/format/format.h"
#include "handlers/leaf/leaf_type.h"

/* The built-in types, in the order of the table; NULL at the end. */
extern const struct leaf_type *const leaf_types[];
/*
 * Add a type, which must live as long as the process. It is asked before those that were added
 * earlier. Call only while options are read, when there is one thread. 0 or -ENOMEM.
 */
int leaf_type_add(const struct leaf_type *t);
/*
 * override: added types may take type strings of built-in types. builtin: built-in types may take
 * type strings at all.
 */
void leaf_types_allow(bool override, bool builtin);

/*
 * The type of a leaf, or NULL when no type takes its type string: the leaf then appears as the
 * files in which it is stored.
 */
const struct leaf_type *leaf_type_of(const struct tree_node *leaf);
/* The extension of a leaf's default format, as a callback for tree_name(). */
enum name_ext leaf_ext(void *arg, const struct tree_node *leaf);
int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret);
/* Open the value of a leaf in a format, an array cast; DTYPE_UNKNOWN: as it is stored. */
int leaf_open_format(struct item *item, const struct tree_node *leaf, enum name_ext ext,
		     enum dtype cast, struct format *ret);
/*
 * Replace the stored dtype of an array by the one as which it is shown with restore_dtype=. As in
 * Orbax, that is for arrays, not for values that are numbers in the tree. The data of random keys
 * are bits, and stay what they are.
 */
int leaf_restored_dtype(struct item *item, const struct tree_node *leaf, int restore_dtype,
			bool is_scalar, enum dtype *dtype);

/*
 * Find the type of a file of a draft. Returns 1 and describes the leaf in ret, or 0 when no type
 * takes the file. -EINVAL: the contents are not valid. A file that is not strict and has no valid
 * text yet is described as a text.
 */
int leaf_classify(struct leaf_input *f, struct leaf_desc *ret);
/*
 * Append the extensions of files that become leaves, in the order of the table: ".npy, .json, ...".
 */
int leaf_extensions(struct buf *ret);
/* The index of a built-in type in the table, for messages between ranks; -1 for an added type. */
int leaf_type_number(const struct leaf_type *t);
/*
 * Store the value of a leaf by its type. Does nothing when the documents of the item hold the whole
 * value.
 */
int leaf_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to);
/* The entries for a leaf in the documents of its item. */
struct leaf_record leaf_describe(const struct leaf_desc *d);

/* The type of every tensor in a file of arrays (.npy, .safetensors). */
extern const struct leaf_type leaf_array;

#endif
