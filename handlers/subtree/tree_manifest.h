/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest.h - prints the manifest of a tree (core/tree/tree_manifest_read.h).
 */
#ifndef PYTREEFS_TREE_MANIFEST_H
#define PYTREEFS_TREE_MANIFEST_H

#include "core/tree/tree_manifest_read.h"
#include "handlers/subtree/leaf_table.h"

/* How arrays are cast; DTYPE_UNKNOWN: they are not. */
struct tree_manifest_casts {
	int restore;     /* restore_dtype=: all arrays */
	enum dtype cast; /* --cast: floating-point arrays, instead */
	bool numbers;    /* cast numbers, too: in a safetensors file they are tensors */
};

/* The leaves that a file has. */
struct tree_manifest_only {
	/* Whether it is one of them; NULL: all are. */
	bool (*choose)(void *arg, const struct subtree_part *part, const struct tree_node *leaf);
	void *arg;
	bool is_part; /* chosen by a user, so that empty containers are left out */
};

/*
 * Whether all members of a container are in the file, which empty containers of a part are not: a
 * list without some of its members is not a list.
 */
bool tree_manifest_is_whole(const struct tree_manifest_only *only, const struct subtree_part *part,
			    const struct tree_node *t);

/*
 * Write the manifest for the leaves that are chosen, with arrays cast. It is written in pieces,
 * since strings may be long, so that only one of them is in memory at a time.
 */
typedef int tree_manifest_put_fn(void *arg, struct span piece);
int tree_manifest_write(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, tree_manifest_put_fn *put,
			void *arg);
/* The same as one text, charged to the meter. */
int tree_manifest_print(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, struct buf *ret);
/* Replace the stored dtype of an array by the one in the file. */
int tree_manifest_cast(struct item *item, const struct tree_node *leaf, bool is_scalar,
		       const struct tree_manifest_casts *casts, enum dtype *dtype);
/* Get the key of a leaf in the file. */
int tree_manifest_key(const struct subtree_part *part, const struct tree_node *leaf,
		      const struct tree_manifest_style *style, struct buf *ret);
/* Get the key of a shortened name (`~`) as JSON: 1; 0: the name contains its key. */
int tree_manifest_hidden_key(const struct tree_node *t, struct buf *ret);

#endif
