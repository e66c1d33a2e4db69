/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft_impl.h - nodes and open files of drafts, for node_draft.c and node_draft_file.c.
 */
#ifndef PYTREEFS_NODE_DRAFT_IMPL_H
#define PYTREEFS_NODE_DRAFT_IMPL_H

#include "handlers/draft/draft.h"
#include "handlers/namespace/node_draft.h"

struct node_draft {
	struct node node;
	struct draft *draft;  /* a reference */
	struct draft_node *n; /* a reference; for a generated file: its directory */
	bool generated;
	/*
	 * For a generated file: its size at the last open, for readers after the end of the draft.
	 */
	atomic_ullong opened_size;
};

struct draft_handle {
	struct file file;
	bool writes;  /* for a leaf: opened for writing; constant */
	bool flushed; /* for a leaf: protected by the lock of its draft_file */
	/*
	 * For a generated file: it was ever written; and it was written after the last close(2),
	 * set with the draft's lock held.
	 */
	atomic_bool wrote, is_writing;
	struct buf text; /* for a generated file: its contents at the time of open; constant */
};

static inline struct node_draft *node_draft_of(struct node *n)
{
	return container_of(n, struct node_draft, node);
}

static inline struct draft_handle *draft_handle_of(struct file *f)
{
	return container_of(f, struct draft_handle, file);
}

bool node_is_draft_leaf(const struct node *n);
/*
 * Truncate or extend a file. A file that is truncated to 0 is not a copy of another leaf any more.
 */
int draft_set_size(struct draft_node *n, uint64_t size);
/* Open a leaf, or a generated file. */
int draft_open(struct node *n, int flags, struct file **ret);
int draft_open_generated(struct node *n, int flags, struct file **ret);

#endif
