/* SPDX-License-Identifier: Apache-2.0 */
/* draft_items.h - the contribution of a draft's items to its commit: leaves, parts and files. */
#ifndef PYTREEFS_DRAFT_ITEMS_H
#define PYTREEFS_DRAFT_ITEMS_H

#include "core/commit/commit.h"
#include "handlers/plan/draft_plan.h"

/* Everything that one item contributes to the commit. {} is empty. Owns the plan. */
struct sealing_meta;
struct sealing_item {
	struct plan *plan;
	struct commit_leaf *leaf;
	size_t n_leaves, cap_leaves;
	struct kv **retained; /* arrays that the draft needs and that are not leaves; borrowed */
	size_t n_retained, cap_retained;
	struct commit_file *file;
	size_t n_files, cap_files;
	struct buf strings, sharding, arrays, metadata, aggregate;
	struct plugin_files made;   /* for an item that a plugin handles */
	struct arena arena;         /* memory of names, shifts and documents */
	struct sealing_meta *metas; /* metadata of its leaves */
};

/*
 * Collect the leaves and files of it->plan. File sizes are known then, but the bytes are read when
 * the commit writes them. The draft must be sealed.
 */
int sealing_item_fill(struct sealing_item *it);
/*
 * Add only the files that are stored as they are: those of an item that is not a tree, and those
 * beside the arrays of one that is, or beside the items.
 */
int sealing_item_add_stored(struct sealing_item *it);
/* Call after all items are filled: leaf types may still refuse. */
int sealing_item_finalize(const struct sealing_item *it);
/*
 * Put the leaves that options select into the legacy file: it->aggregate, if there are any.
 * (draft_aggregate.c)
 */
int sealing_item_aggregate(struct sealing_item *it);
/*
 * Set it->retained from files and leaves, and drop a store that is not needed any more.
 * (draft_retained.c)
 */
int sealing_item_retain(struct sealing_item *it);
/*
 * Log rules that select a leaf and set what is the same for all leaves of an item; and, if the
 * items are all of the step, patterns of options that select nothing. (draft_rules.c)
 */
void draft_report_misplaced(const struct draft *d, const struct sealing_item *item, size_t n);
void draft_report_unmatched(const struct draft *d, const struct sealing_item *item, size_t n);
/* Whether options put the leaf into the legacy file: 1 or 0, or an error. */
int plan_leaf_aggregates(const struct plan_leaf *l);
/*
 * Add only the files of it->plan, a tree whose arrays other ranks have stored: `_METADATA` and
 * similar files. (draft_documents.c)
 */
int sealing_item_describe(struct sealing_item *it);
int sealing_item_add_file(struct sealing_item *it, const struct commit_file *f);
/* The same for a text in memory; both live as long as the item. */
int sealing_item_add_text(struct sealing_item *it, const char *name, const struct buf *text);
int sealing_item_add_leaf(struct sealing_item *it, const struct commit_leaf *l);
/* Make the metadata document of a leaf that is stored like a. Released with the item. */
int sealing_item_document(struct sealing_item *it, const struct draft_array *a,
			  const struct plan_leaf *l, struct span *ret_json,
			  const struct zarr_meta **ret);
/* Get the place of part i of an array in the array's grid of chunks. Released with the item. */
int sealing_item_shift(struct sealing_item *it, const struct plan_leaf *l, size_t i,
		       const uint64_t **ret);
void sealing_item_release(struct sealing_item *it);

#endif
