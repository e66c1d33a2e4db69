/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - make one item of a draft durable: its arrays, then the files that describe them. */
#ifndef PYTREEFS_SEAL_H
#define PYTREEFS_SEAL_H

#include "core/commit/commit.h"

/*
 * Write all files of an item. When it returns 0, the item's directory is complete and durable. May
 * be called again.
 */
int seal_item(struct commit *c, struct commit_item *item);
/*
 * The same for values of one of several ranks. Those in directories are copied, or linked, into
 * directories that all of them fill, and remain where they are for another attempt.
 */
int seal_shared_item(struct commit *c, struct commit_item *item);
/*
 * Write only the database of an item: values, nodes and manifest, each durable before the next. Of
 * c, only dir_mode is used. The name of the manifest is durable after a sync of the directory.
 */
int seal_database(struct commit *c, struct commit_item *item);
/* Write one more file of a sealed item. It is durable when this returns 0. */
int seal_file(struct commit *c, const struct commit_item *item, const struct commit_file *f);

#endif
