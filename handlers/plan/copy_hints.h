/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_hints.h - what a program copied, besides names and contents: recorded while it copies, used
 * by the plan.
 *
 * A hint never decides against a name, contents or an xattr. handlers/plan/README.md has the rule.
 */
#ifndef PYTREEFS_COPY_HINTS_H
#define PYTREEFS_COPY_HINTS_H

#include "handlers/plan/draft_plan.h"

/* ---- recording; all lock the draft ---- */

/* A program wrote a piece of the generated file of dir. */
void copy_hint_text(struct draft_node *dir, uint64_t off, const void *p, size_t n);
/* A program wrote all of it to a file of another name. */
void copy_hint_file(struct draft_node *dir, struct draft_file *f);
/* What the leaf that another one was copied from shows of itself: JSON texts, empty: nothing. */
struct copied_leaf {
	struct span dtype, typestr, prng_impl, sha256;
};
/* A leaf is a copy of that one; NULL: it is not a copy. */
void copy_hint_leaf(struct draft_node *n, const struct copied_leaf *from);
/* A file is a copy of one of an item that is not a tree. */
void copy_hint_opaque(struct draft_node *n);

/* ---- using ---- */

/* Custom metadata of the step by its copied `_CHECKPOINT_METADATA`, appended to ret; nothing when
 * it has none. */
int copy_hint_custom(struct draft_node *root, struct buf *ret);
/* Parse the copied `_METADATA` of the item into p->hint. */
int plan_hints_read(struct plan *p);
/* p->is_array: a copied `_CHECKPOINT_METADATA` records that the tree, of one leaf, was saved as an
 * array. */
int plan_hint_array(struct plan *p);
/* The node of the copied tree with the key path of one of ours; NULL: it has none. */
const struct tree_node *plan_hint_node(const struct plan *p, const struct tree_node *n);
/* TREE_LIST or TREE_TUPLE when the copied tree has that for a directory; else TREE_DICT. */
enum tree_kind plan_hint_kind(const struct plan *p, const struct tree_node *n);
/* The key of a shortened name below parent, appended to ret: 1, or 0 when the copied tree has none.
 */
int plan_hint_key(struct plan *p, const struct tree_node *parent, struct span stem,
		  struct buf *ret);

/* Whether an item without user.pytree.kind is a copy of one that is not a tree: 1 or 0. */
int plan_looks_opaque(struct draft_node *dir);

/*
 * 1: the item is two items, the tree first; the caller unrefs them. Or 0. These are random keys, as
 * Orbax's handlers save them: a directory of "jax_random_key" or "np_random_key", which is a tree,
 * and of the same name followed by
 * "_metadata", a JSON item. In a commit their names begin with that of the outer item and '/'. Only
 * one of the two has arrays, so the store of the outer item is the store of the tree.
 */
int draft_nested(struct draft_node *item, struct draft_node *ret[2]);
/* Whether the item is inside another; its name is "OUTER/INNER". */
bool plan_is_nested(const struct plan *p);
/* The node whose store has the arrays: the item itself, or the one that it is inside of. */
struct draft_node *plan_owner(const struct plan *p);

#endif
