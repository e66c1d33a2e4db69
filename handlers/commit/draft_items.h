/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_items.h - what the items of a draft bring into its commit: leaves, parts and files.
 */
#ifndef PYTREEFS_DRAFT_ITEMS_H
#define PYTREEFS_DRAFT_ITEMS_H

#include "core/commit/commit.h"
#include "handlers/plan/draft_plan.h"

/* Everything that one item brings into the commit. {} is empty; the plan is its own. */
struct sealing_meta;
struct sealing_item {
	struct plan *plan;
	struct commit_leaf *leaf;
	size_t n_leaves, cap_leaves;
	struct kv **retained; /* arrays of the draft that are not leaves; borrowed */
	size_t n_retained, cap_retained;
	struct commit_file *file;
	size_t n_files, cap_files;
	struct buf strings, sharding, arrays, metadata, aggregate;
	struct plugin_files made;   /* of an item that a plugin takes */
	struct arena arena;         /* names, shifts, documents */
	struct sealing_meta *metas; /* of its leaves */
};

/*
 * Collect leaves and files of it->plan; lengths of files are known then, their bytes are read when
 * the commit writes them. The draft must be sealed.
 */
int sealing_item_fill(struct sealing_item *it);
/* After all items are filled: the types of its leaves may still refuse. */
int sealing_item_finalize(const struct sealing_item *it);
/* The leaves that options ask for go into the legacy file: it->aggregate, if any.
 * (draft_aggregate.c) */
int sealing_item_aggregate(struct sealing_item *it);
/* it->kept, from files and leaves; a store that nobody needs any more is dropped.
 * (draft_retained.c) */
int sealing_item_retain(struct sealing_item *it);
/* In the log: patterns of options that choose no leaf or item of a draft. (draft_rules.c) */
void draft_report_rules(const struct draft *d, const struct sealing_item *item, size_t n);
/* 1: the options ask for that. */
int plan_leaf_aggregates(const struct plan_leaf *l);
/* Name of the handler that Orbax restores the item with; {} for an item that it does not know. */
struct span sealing_item_handler(const struct plan *p);
/* The files of it->plan alone, which is a tree that others have stored: `_METADATA` and its like. */
int sealing_item_describe(struct sealing_item *it);
int sealing_item_add_leaf(struct sealing_item *it, const struct commit_leaf *l);
/* What a document says, which is kept and released with the item. The text must last as long. */
int sealing_item_meta(struct sealing_item *it, struct span json, const char *what,
		      struct zarr_meta **ret);
void sealing_item_release(struct sealing_item *it);

#endif
