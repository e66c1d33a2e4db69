/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_lost.h - what of a tree a safetensors file does not carry, in words for the log.
 */
#ifndef PYTREEFS_SAFETENSORS_LOST_H
#define PYTREEFS_SAFETENSORS_LOST_H

#include "handlers/format/safetensors.h"
#include "handlers/subtree/subtree.h"

/* Of a view: what of the subtree is not in it, or not as it was. Appended to ret; nothing when all
 * is. */
int safetensors_lost_out(const struct subtree *st, const char *separator, struct buf *ret);
/*
 * Of a file that fills a draft: what its names and texts became below top, whose tree is not
 * finished, and need not have been.
 */
int safetensors_lost_in(const struct tree_node *top, const struct safetensors *file,
			const char *separator, struct buf *ret);

#endif
