/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.h - leaf types: which handler a leaf has, and what it holds.
 *
 * Built-in handlers are a table in leaf.c; plugins stand before them (plugins.h). Handlers are
 * immutable once options have been read; any thread may open leaves.
 */
#ifndef PYTREEFS_LEAF_H
#define PYTREEFS_LEAF_H

#include "handlers/format/value.h"

/* The handler of a leaf; NULL when there is none for its value type: its files are shown as stored.
 */
const struct leaf_handler *leaf_handler_of(const struct tree_node *leaf);
/* All of them, in the order of probing; NULL at the end. */
extern const struct leaf_handler *const leaf_handlers[];
/* The extension of a leaf's default form: for tree_name(). */
enum name_ext leaf_ext(void *arg, const struct tree_node *leaf);
int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret);

extern const struct leaf_handler leaf_array, leaf_scalar, leaf_string, leaf_none;

#endif
