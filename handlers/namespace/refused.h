/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.h - remembers errors of items and views that took long to determine
 * (core/base/refusal.h).
 */
#ifndef PYTREEFS_REFUSED_H
#define PYTREEFS_REFUSED_H

#include "core/base/buf.h"

struct ns;
struct subtree;
struct subtree_file;
struct subtree_want;

/*
 * Returns a mark of the present documents of an item, and (ret_bytes may be NULL) their total size.
 */
uint64_t refused_mark(struct ns *ns, const char *path, uint64_t *ret_bytes);
/*
 * Like subtree_file_new(), but returns the remembered error if the documents of the items have not
 * changed.
 */
int refused_or_new_file(struct ns *ns, const struct subtree *st, const struct subtree_want *want,
			struct subtree_file **ret);

#endif
