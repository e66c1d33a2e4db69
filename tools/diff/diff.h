/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - declarations shared by the files of `pytreefs diff`.
 */
#ifndef PYTREEFS_DIFF_H
#define PYTREEFS_DIFF_H

#include "tools/scan/numbers.h"
#include "tools/select/selection.h"

enum diff_sort { DIFF_UNSORTED, DIFF_MAX_ABS, DIFF_MAX_ULP, DIFF_RMS, DIFF_RELATIVE };

/* Differences of the values of one leaf, which are printed when all are known. */
struct diff_row {
	double key;
	char *path, *text;
};

struct diff {
	struct selection t;
	const char *name_a, *name_b;
	bool json;
	struct tolerance tolerance;
	bool ignore_dtype; /* floats of two types are equal if they are in the narrower one */
	uint64_t compared, same, differences;
	enum diff_sort sort;
	uint64_t top, omitted; /* number of sorted rows that are printed, and that are not */
	struct diff_row *row;
	size_t n_rows, cap_rows;

	/*
	 * The trees that are being compared, and the partner in B for each node of each part of A.
	 */
	const struct subtree *a, *b;
	const struct tree_node ***partner;
	const struct subtree_part **part; /* for each part of A: the part of B, or NULL */
};

/* Compare two sources, and print the differences. */
int diff_sources(struct diff *d, struct source *a, struct source *b);
/* Compare an item that is not a tree, with all of its files. (diff_files.c) */
int diff_file_part(struct diff *d, const char *prefix, struct node *a, struct node *b,
		   const struct subtree_part *part);
/*
 * Compare the files beside the arrays and items of d->a and d->b, which are below the nodes.
 * single: both are one tree, whatever the names of their items are. (diff_files.c)
 */
int diff_others(struct diff *d, const char *prefix, struct node *a, struct node *b, bool single);
/* The type (DT_DIR) of the entry of that name, or -1. (diff_files.c) */
int diff_type_of(const struct listing *l, const char *name);
/* Report the names that only the listing of B has. (diff_files.c) */
void diff_only_in_b(struct diff *d, const char *prefix, const struct listing *la,
		    const struct listing *lb);
/* Compare leaves that are on both sides. */
int diff_values(struct diff *d, const struct subtree *a, const char *prefix);
/* Print the rows, the largest first, and free them. */
void diff_say_rows(struct diff *d);
/*
 * Compare custom metadata of two roots, steps or items: JSON objects, "" for none. Members may be
 * in any order; numbers are equal if their texts are.
 */
int diff_custom(struct diff *d, const char *path, struct span a, struct span b);
/* Returns the leaf of B for a leaf of A, or NULL. */
const struct tree_node *diff_partner(const struct diff *d, const struct subtree_part *part,
				     const struct tree_node *leaf,
				     const struct subtree_part **ret_part);
/* Print one difference. more: text, or with --json members of an object; "" for none. */
void diff_say(struct diff *d, const char *path, const char *what, const char *more);

#endif
