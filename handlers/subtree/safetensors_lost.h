/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_lost.h - describes, for the log, the parts of a tree that a safetensors file cannot
 * hold.
 */
#ifndef PYTREEFS_SAFETENSORS_LOST_H
#define PYTREEFS_SAFETENSORS_LOST_H

#include "handlers/format/safetensors.h"
#include "handlers/subtree/subtree.h"

/*
 * For a file that shows a subtree: append the parts that are missing from it, or changed. Appends
 * nothing when the file holds everything.
 */
int safetensors_lost_out(const struct subtree *st, const char *separator, struct buf *ret);
/*
 * For a file that fills a draft: append the names and texts that became something else below `top`,
 * whose tree may be incomplete.
 */
int safetensors_lost_in(const struct tree_node *top, const struct safetensors *file,
			const char *separator, struct buf *ret);

#endif
