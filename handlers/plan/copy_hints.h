/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_hints.h - hints from files that a program copied, recorded during the copy and used by the
 * plan.
 *
 * A hint never overrides a name, contents or an xattr. handlers/plan/README.md has the rule.
 */
#ifndef PYTREEFS_COPY_HINTS_H
#define PYTREEFS_COPY_HINTS_H

#include "handlers/plan/draft_plan.h"

/* ---- recording; all functions lock the draft ---- */

/*
 * Record a piece of the generated file of dir that a program wrote. If it does not fit in memory,
 * the commit fails.
 */
void copy_hint_text(struct draft_node *dir, uint64_t off, const void *p, size_t n);
/* Record a generated file that a program wrote completely under another name. */
void copy_hint_file(struct draft_node *dir, struct draft_file *f);
/* Record that a leaf is a copy of `from`. */
void copy_hint_leaf(struct draft_node *n, const struct copied_leaf *from);
/*
 * Record that a program writes other contents to a leaf. It stays a jax.Array if the leaf was one,
 * with that sharding as long as the new shape allows it.
 */
void copy_hint_rewritten(struct draft_node *n);
/*
 * Record that a file is a copy from an item that is not a tree, or (beside_tree) of a file that
 * lies beside the arrays of one that is.
 */
void copy_hint_stored(struct draft_node *n, bool beside_tree);
/* Record the SHA-256 that an item has of the leaf that is being copied to n. NULL: it has none. */
void copy_hint_sha256(struct draft_node *n, const uint8_t *sha256);

/*
 * Record that a leaf is a copy from a tree that is a step (path: its path in that tree), or from an
 * item (path NULL).
 */
int copy_hint_tree(struct draft_node *n, const char *path);

/*
 * Record the directories in SOURCE of the item and of the step that a file was copied from; NULL:
 * none.
 */
void copy_hint_source(struct draft_node *n, const char *item, const char *step);

/*
 * Let the item of n take the format of the tree that is copied into it, unless it has an array or a
 * format already. The draft takes it, too, in case that it is a tree.
 */
void copy_hint_format(struct draft_node *n, bool ocdbt, bool zarr3);
/*
 * The same for the format of the item that a leaf is copied from. The ranks of a job copy different
 * files, and have to agree: theirs are the options.
 */
void copy_hint_format_of_source(struct draft_node *n, bool ocdbt, bool zarr3);
/* Let the item take the format that its copied `_METADATA`, written by now, records. */
void copy_hint_written(struct draft_node *item);

/* ---- using ---- */

/*
 * Whether a draft of a step is a copy of a step that is one tree: 1 or 0. Its copied documents say
 * so, or its leaves.
 */
int plan_is_step_tree(struct draft_node *root);

/*
 * Append custom metadata of the step from its copied `_CHECKPOINT_METADATA` to ret; nothing if it
 * has none.
 */
int copy_hint_custom(struct draft_node *root, struct buf *ret);
/* Parse the copied `_METADATA` of the item into p->hint, and take its format. */
int plan_hints_read(struct plan *p);
/*
 * Set p->copied_handler to what the copied `_CHECKPOINT_METADATA` records for the item, and
 * p->is_array if the tree, of one leaf, was saved as an array.
 */
int plan_hint_handler(struct plan *p);
/* Returns the node of t, or of the copied tree, with the same key path as n, or NULL. */
const struct tree_node *plan_same_path(const struct tree *t, const struct tree_node *n);
const struct tree_node *plan_hint_node(const struct plan *p, const struct tree_node *n);
/* Set the names of the copied tree's nodes. */
int plan_name_hint(struct plan *p);
/*
 * Returns TREE_LIST or TREE_TUPLE if the copied tree has that kind for a directory; else TREE_DICT.
 */
enum tree_kind plan_hint_kind(const struct plan *p, const struct tree_node *n);
/*
 * Append the key of a shortened name below parent to ret: 1; 0: the copied tree does not have it.
 */
int plan_hint_key(struct plan *p, const struct tree_node *parent, struct span stem,
		  struct buf *ret);

/* ---- what is stored as it is (draft_stored.c) ---- */

/*
 * Whether an item without user.pytree.kind is a copy of one that is not a tree: 1 or 0. -EINVAL: a
 * part of it is; the message has the commands that say what it is to be.
 */
int plan_looks_opaque(struct draft_node *dir);
/*
 * Move the files and directories that lie beside the arrays from the children of the item to
 * p->other. -EINVAL: only a part of a directory was copied from such a place.
 */
int plan_take_others(struct plan *p, struct draft_node **child, size_t *n);
/*
 * Whether a child of a draft of a step lies beside its items: 1 or 0. It is a file, or a directory
 * whose name begins with a dot, and marked or copied within the mount from such a place.
 */
int plan_is_beside_items(struct draft_node *n);
/* Set p->other to all of these. */
int plan_take_beside(struct plan *p);
/*
 * Add to the reason why there is no plan the command that stores the item, or the name at its top
 * that cannot be a leaf, as it is; not where an array is the reason. Returns r.
 */
int plan_say_how_to_mark(const struct plan *p, int r);

/*
 * Get the two items that an item consists of, the tree first; the caller unrefs them. 1; 0: it is
 * one item. These are random keys as Orbax's handlers save them: a directory "jax_random_key" or
 * "np_random_key", which is a tree, and one with the suffix "_metadata", which is a JSON item. In a
 * commit, their names begin with the name of the outer item and '/'. Only the tree has arrays, so
 * the store of the outer item is the store of the tree.
 */
int draft_nested(struct draft_node *item, struct draft_node *ret[2]);
/* Whether the item is inside another one; its name is "OUTER/INNER". */
bool plan_is_nested(const struct plan *p);
/* Returns the node whose store has the arrays: the item, or the outer item of a nested one. */
struct draft_node *plan_owner(const struct plan *p);

#endif
