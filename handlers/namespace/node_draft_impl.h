/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft_impl.h - shared by node_draft.c and node_draft_file.c: nodes of a draft, and open
 * files of it.
 */
#ifndef PYTREEFS_NODE_DRAFT_IMPL_H
#define PYTREEFS_NODE_DRAFT_IMPL_H

#include "handlers/draft/draft.h"
#include "handlers/namespace/node_draft.h"

struct node_draft {
	struct node node;
	struct draft *draft;  /* a reference */
	struct draft_node *n; /* a reference; of a generated file its directory */
	bool generated;
	/* Of a generated file: as it was opened last, for readers after the draft's end. */
	atomic_ullong opened_size;
};

struct draft_handle {
	struct file file;
	bool writes;  /* of a leaf: it was opened for writing; constant */
	bool flushed; /* of a leaf: protected by the lock of its draft_file */
	/* Of a generated file: ever; and since close(2) was seen, set under the draft's lock. */
	atomic_bool wrote, is_writing;
	struct buf text; /* of a generated file, as it was when it was opened; constant */
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
/* Contents from scratch are not a copy of anything. */
int draft_set_size(struct draft_node *n, uint64_t size);
/* Open a leaf, or a generated file. */
int draft_open(struct node *n, int flags, struct file **ret);
int draft_open_generated(struct node *n, int flags, struct file **ret);

#endif
