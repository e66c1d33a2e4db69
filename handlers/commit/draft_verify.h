/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_verify.h - whether what was written is what was planned.
 */
#ifndef PYTREEFS_DRAFT_VERIFY_H
#define PYTREEFS_DRAFT_VERIFY_H

#include "handlers/commit/draft_items.h"

/* Every array of the planned items can be opened in the draft's directory, with its shape and
 * chunks. */
int draft_verify(struct draft *d, struct sealing_item *item, size_t n);
/* The node of the opened tree with the key path of one that was planned; NULL: there is none. */
const struct tree_node *draft_written(const struct tree *tree, const struct tree_node *planned);

#endif
