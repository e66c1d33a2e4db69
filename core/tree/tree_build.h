/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_build.h - shared by everything that builds a tree from paths.
 */
#ifndef PYTREEFS_TREE_BUILD_H
#define PYTREEFS_TREE_BUILD_H

#include "core/tree/interner.h"
#include "core/tree/tree.h"

/*
 * Finds children by key among any number of siblings, and stores each text once: a million leaves
 * have a few hundred different last keys.
 */
struct tree_build {
	struct tree *tree;        /* borrowed */
	struct tree_node **slots; /* hash table of (parent, key) */
	size_t n_slots, used;
	struct arena table; /* memory of the slots; metered if the tree is */
	struct interner texts;
};

void tree_build_release(struct tree_build *b);
#define auto_tree_build __attribute__((cleanup(tree_build_release))) struct tree_build
/* Get the only copy of the text, in the tree's arena. */
int tree_build_text(struct tree_build *b, struct span text, struct span *ret);
/*
 * Find or add the child with that key. Returns 0; or 1 when it was added, with kind TREE_UNKNOWN.
 */
int tree_build_child(struct tree_build *b, struct tree_node *parent, struct span key,
		     bool key_is_index, struct tree_node **ret);

/* Create a node of kind TREE_UNKNOWN without a place. */
int tree_node_new(struct tree *tree, struct tree_node **ret);
/* Make node the last child of parent, with a key that is in the arena. */
void tree_link(struct tree_node *parent, struct tree_node *node, struct span key,
	       bool key_is_index);
/* Both at once; with parent NULL, the root. */
int tree_attach(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
		struct tree_node **ret);
/* tree_finish() with another error code for faults of the tree itself. */
int tree_finish_as(struct tree *tree, int code);
/* Compare positions, which are decimals without leading zeros, so a longer one is larger. */
int tree_cmp_index(struct span a, struct span b);

#endif
