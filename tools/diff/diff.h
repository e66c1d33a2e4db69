/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - what the two files of `pytreefs diff` share.
 */
#ifndef PYTREEFS_DIFF_H
#define PYTREEFS_DIFF_H

#include "tools/select/selection.h"

struct diff {
	struct selection t;
	const char *name_a, *name_b;
	bool json;
	double tolerance;
	uint64_t compared, same, differences;

	/* Of the trees that are being compared: for each part of A, for each of its nodes, B's. */
	const struct subtree *a, *b;
	const struct tree_node ***partner;
	const struct subtree_part **part; /* B's of each part of A, or NULL */
};

/* All of it; says what it finds. */
int diff_sources(struct diff *d, struct source *a, struct source *b);
/* Leaves that are on both sides. */
int diff_values(struct diff *d, const struct subtree *a, const char *prefix);
/* B's leaf for one of A's, or NULL. */
const struct tree_node *diff_partner(const struct diff *d, const struct subtree_part *part,
				     const struct tree_node *leaf,
				     const struct subtree_part **ret_part);
/* One difference: more is text, or with --json members of an object; "" when there is nothing to
 * add. */
void diff_say(struct diff *d, const char *path, const char *what, const char *more);
void diff_say_same(struct diff *d, const char *path);
/* The number in its array of element i of a tile. */
uint64_t diff_place(const struct tiling *t, const struct tile *tile, uint64_t i);

#endif
