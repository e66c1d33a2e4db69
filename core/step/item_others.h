/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_others.h - files and directories that programs put beside the arrays of an item, or beside
 * the items of a step: the configuration of a network, a tokenizer. Readers of the trees do not
 * look at them, and a copy brings them along.
 */
#ifndef PYTREEFS_ITEM_OTHERS_H
#define PYTREEFS_ITEM_OTHERS_H

#include "core/step/item.h"

/*
 * Whether the name belongs to the stored form of any tree: documents, databases, markers,
 * checksums, temporary directories.
 */
bool item_is_own_name(struct span name);
/*
 * Whether it is another file or directory in the item's directory: 1, with its attributes; 0. One
 * with the name of a leaf or container, as a mount shows it, is not, which item_each_other() logs,
 * once and up to 20 names.
 */
int item_other(struct item *item, struct span name, struct stat *ret);
/* Whether the source can be listed; a look-up in another one takes a request. */
bool others_are_listed(const struct ckpt *c);
/*
 * Call `each` for every such name, in the order of names. type: DT_DIR or DT_REG. In a source that
 * cannot be listed, it is never called.
 */
int item_each_other(struct item *item, io_list_fn *each, void *arg);

/*
 * Whether an entry of a step is another file or directory: no item (directories are, except those
 * whose names begin with a dot), and no document or marker of the step. type: DT_DIR or DT_REG.
 */
bool step_has_other(struct span name, unsigned char type);

#endif
