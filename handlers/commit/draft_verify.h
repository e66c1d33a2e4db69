/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_verify.h - checks that a draft was written as planned.
 */
#ifndef PYTREEFS_DRAFT_VERIFY_H
#define PYTREEFS_DRAFT_VERIFY_H

#include "handlers/commit/draft_items.h"

/*
 * Check that every array of the planned items can be opened in the draft's directory, with its
 * shape and chunks.
 */
int draft_verify(struct draft *d, struct sealing_item *item, size_t n);
/* Returns the node of the opened tree with the key path of a planned node, or NULL. */
const struct tree_node *draft_written(const struct tree *tree, const struct tree_node *planned);

#endif
