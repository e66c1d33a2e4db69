/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_impl.h - shared by the files item*.c, and included only there.
 */
#ifndef PYTREEFS_ITEM_IMPL_H
#define PYTREEFS_ITEM_IMPL_H

#include "core/step/item.h"

/*
 * Read the tree of an item whose directory and stores are open. Opens the aggregate file, if there
 * is one.
 */
int item_read_tree(struct item *item);
/* Make the tree of an item without a document of it, from the names of arrays and strings. */
int item_tree_of_names(struct item *item);
/* Log what is to be said of the item's tree, and keep it as item->remark. */
int item_remark(struct item *item, const char *text);
/* The same if the item is a file that is one of several by its name. */
int item_remark_shard(struct item *item);
/* The same for a flax checkpoint: everything is in the file `name` in the item's directory. */
int item_read_file(struct item *item, const char *name);
/* The same for the only item of a ckpt with `safetensors`. */
int item_read_safetensors(struct item *item, const char *path);
/* Read the index of `_strings.json`, once. A missing file is not an error. */
int item_read_strings(struct item *item);
/*
 * Look for a database in a directory below the item's own, for an item whose directories were
 * listed: *ret is borrowed, or NULL when there is none.
 */
int item_below_add(struct item *item, const char *dir, struct kv **ret);
/*
 * Look for a database among the directories in a leaf's name that are shorter than *len, the
 * longest first: returns 1 with the length of its directory, or 0. With *len at the whole name the
 * directory around the leaf is looked at, unless the item's directories were listed.
 */
int item_below_find(struct item *item, struct span param, size_t *len, struct kv **ret);
void item_below_close_files(struct item *item);
/* Frees what item_open() and these made. */
void item_below_release(struct item *item);

#endif
