/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.h - items and views that took long to be refused, by name.
 */
#ifndef PYTREEFS_REFUSED_H
#define PYTREEFS_REFUSED_H

#include "core/base/buf.h"

struct ns;
struct refused;
struct subtree;
struct subtree_file;
struct subtree_want;

int refused_new(struct refused **ret);
/* Accepts NULL. */
void refused_free(struct refused *t);

/* What the documents of an item are now, and (ret_bytes may be NULL) their bytes together. */
uint64_t refused_mark(struct ns *ns, const char *path, uint64_t *ret_bytes);
/* The error of what was refused a moment ago and has the same mark; or 0. */
int refused_ask(struct refused *t, const char *name, uint64_t mark);
/* Its error r, of work that began then, is remembered when it took long. Returns r. */
int refused_keep(struct refused *t, const char *name, uint64_t mark, int64_t began, int r);
/* subtree_file_new(), or the error of a moment ago when the documents of its items are the same. */
int refused_or_new_file(struct ns *ns, const struct subtree *st, const struct subtree_want *want,
			struct subtree_file **ret);

#endif
