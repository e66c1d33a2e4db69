/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.h - leaf types: which type a leaf has, and what it holds.
 */
#ifndef PYTREEFS_LEAF_H
#define PYTREEFS_LEAF_H

#include "handlers/leaf/leaf_type.h"

/* The built-in types, in the order of the table; NULL at the end. */
extern const struct leaf_type *const leaf_types[];
/*
 * One more, asked before those that were added earlier; it must live as long as the process. Called
 * while options are read, when there is one thread. 0 or -ENOMEM.
 */
int leaf_type_add(const struct leaf_type *t);
/* Whether added types may take type strings of built-in types; whether built-in types take any. */
void leaf_types_allow(bool override, bool builtin);

/* The type of a leaf; NULL when no type takes its type string: its files are shown as stored. */
const struct leaf_type *leaf_type_of(const struct tree_node *leaf);
/* The extension of a leaf's default format: for tree_name(). */
enum name_ext leaf_ext(void *arg, const struct tree_node *leaf);
int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret);

/*
 * The type of a file of a draft: 1, and ret describes the leaf; 0: no type takes it. -EINVAL: its
 * contents are not valid. What is not strict and has no valid text yet is described as a text.
 */
int leaf_classify(struct leaf_input *f, struct leaf_desc *ret);
/* ".npy, .json, ...": what files of drafts become leaves, in the order of the table; appended. */
int leaf_extensions(struct buf *ret);
/* The place of a built-in type in the table, for messages between ranks; -1: it was added. */
int leaf_type_number(const struct leaf_type *t);
/* Its type stores its value; nothing where documents say all of it. */
int leaf_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to);
/* What the documents of its item say of a leaf. */
struct leaf_record leaf_describe(const struct leaf_desc *d);

/* The type of every element of a file of arrays: .npy, .safetensors. */
extern const struct leaf_type leaf_array;

#endif
