/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft.h - drafts in the namespace: what the root of a mount lets pass to them.
 */
#ifndef PYTREEFS_NODE_DRAFT_H
#define PYTREEFS_NODE_DRAFT_H

#include "handlers/namespace/ns.h"

/* Of a root's node: a draft of this mount by its name; -ENOENT. */
int draft_root_lookup(struct node *root, struct span name, struct node **ret);
/* Whether it is a directory of a draft, or the draft itself. */
bool node_is_draft(const struct node *n);
/* Add the names of all drafts of this mount. */
int draft_root_list(struct node *root, struct listing *ret);
int draft_root_mkdir(struct node *root, struct span name, unsigned mode, struct node **ret);
int draft_root_create(struct node *root, struct span name, int flags, struct node **ret,
		      struct file **ret_file);
int draft_root_unlink(struct node *root, struct span name);
/* An empty draft is given up; with allow_delete a step is deleted. */
int draft_root_rmdir(struct node *root, struct span name);
/* A draft becomes a step. */
int draft_root_rename(struct node *root, struct span name, struct node *to_dir, struct span to_name,
		      unsigned flags);
/* chmod and the like of a root that can be written. */
int draft_root_setattr(struct node *root, const struct stat *st, unsigned which, struct file *file);

#endif
