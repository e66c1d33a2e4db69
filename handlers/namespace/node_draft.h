/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft.h - drafts in the namespace: operations on the root of a mount that concern drafts.
 */
#ifndef PYTREEFS_NODE_DRAFT_H
#define PYTREEFS_NODE_DRAFT_H

#include "handlers/namespace/ns.h"

/* Look up a draft of this mount by name, as a child of the root; -ENOENT. */
int draft_root_lookup(struct node *root, struct span name, struct node **ret);
/* Whether the node is a draft, or a directory in one. */
bool node_is_draft(const struct node *n);
/* Add the names of all drafts of this mount. */
int draft_root_list(struct node *root, struct listing *ret);
int draft_root_mkdir(struct node *root, struct span name, unsigned mode, struct node **ret);
int draft_root_create(struct node *root, struct span name, int flags, struct node **ret,
		      struct file **ret_file);
int draft_root_unlink(struct node *root, struct span name);
/* Abort an empty draft, or, with allow_delete, delete a step. */
int draft_root_rmdir(struct node *root, struct span name);
/* Commit a draft: rename it to its step. */
int draft_root_rename(struct node *root, struct span name, struct node *to_dir, struct span to_name,
		      unsigned flags);
/* chmod(2) and similar calls on the root, if it is writable. */
int draft_root_setattr(struct node *root, const struct stat *st, unsigned which, struct file *file);

#endif
