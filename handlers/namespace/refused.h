/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.h - items and views that took long to be refused (core/base/refusal.h).
 */
#ifndef PYTREEFS_REFUSED_H
#define PYTREEFS_REFUSED_H

#include "core/base/buf.h"

struct ns;
struct subtree;
struct subtree_file;
struct subtree_want;

/* What the documents of an item are now, and (ret_bytes may be NULL) their bytes together. */
uint64_t refused_mark(struct ns *ns, const char *path, uint64_t *ret_bytes);
/* subtree_file_new(), or the error of a moment ago when the documents of its items are the same. */
int refused_or_new_file(struct ns *ns, const struct subtree *st, const struct subtree_want *want,
			struct subtree_file **ret);

#endif
