/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_build.h - what all that build a tree from paths share.
 */
#ifndef PYTREEFS_TREE_BUILD_H
#define PYTREEFS_TREE_BUILD_H

#include "core/tree/interner.h"
#include "core/tree/tree.h"

/*
 * Finds children by key among any number of siblings, and keeps one copy of each text: a million
 * leaves have a few hundred different last keys.
 */
struct tree_build {
	struct tree *tree;        /* borrowed */
	struct tree_node **slots; /* hash table of (parent, key); owned */
	size_t n_slots, used;
	uint64_t charged; /* to the meter, for the table of a tree that is metered */
	struct interner texts;
};

void tree_build_release(struct tree_build *b);
/* The text's one copy, in the tree's arena. */
int tree_build_text(struct tree_build *b, struct span text, struct span *ret);
/* The child with that key: 0, or 1 when it was made just now, of kind TREE_UNKNOWN. */
int tree_build_child(struct tree_build *b, struct tree_node *parent, struct span key,
		     bool key_is_index, struct tree_node **ret);

/* A node of kind TREE_UNKNOWN without a place. */
int tree_node_new(struct tree *tree, struct tree_node **ret);
/* Its place: the last child, with a key that lives in the arena. */
void tree_link(struct tree_node *parent, struct tree_node *node, struct span key,
	       bool key_is_index);
/* Both at once; parent NULL makes the root. */
int tree_attach(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
		struct tree_node **ret);
/* tree_finish() with another code for what the tree itself has wrong. */
int tree_finish_as(struct tree *tree, int code);
/* Order of positions, which are decimals without leading zeros: a longer one is the larger one. */
int tree_cmp_index(struct span a, struct span b);

#endif
