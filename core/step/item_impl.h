/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_impl.h - what the files item*.c share; included by them only.
 */
#ifndef PYTREEFS_ITEM_IMPL_H
#define PYTREEFS_ITEM_IMPL_H

#include "core/step/item.h"

/* The tree of an item whose directory and stores are open; opens the aggregate file when there is
 * one. */
int item_read_tree(struct item *item);
/* The same for a flax checkpoint: all of it is in the file `name` of the item's directory. */
int item_read_file(struct item *item, const char *name);
/* The same for the one item of ckpt_opts.safetensors. */
int item_read_safetensors(struct item *item, const char *path);
/* Index `_strings.json`, once. A missing file is not an error. */
int item_read_strings(struct item *item);
/*
 * The result of reading a file that only informs. That it is absent or broken for good is worth a
 * line in the log, not an error: 0. What may pass (memory, the disk) is one, and is tried again.
 */
int item_optional(const struct item *item, const char *name, int r);

#endif
