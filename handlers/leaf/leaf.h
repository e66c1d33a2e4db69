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

#endif
