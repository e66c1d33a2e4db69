/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_plan.h - the merged contributions of all ranks: one tree, and the assignments of each
 * rank.
 *
 * The primary makes it in every collective commit.
 */
#ifndef PYTREEFS_COLLECTIVE_PLAN_H
#define PYTREEFS_COLLECTIVE_PLAN_H

#include "core/job/collective.h"
#include "handlers/job/contribution.h"

/* A leaf of one rank. */
struct contributor {
	struct contributor *next; /* of the same leaf, in ascending order of ranks */
	int rank;
	const struct tree_node *node;
	const struct contribution_leaf *contribution;
	/* one for each box, or a single one for a leaf without boxes */
	struct assignment *assignment;
};

struct collective_leaf {
	struct tree_node *node;
	struct contributor *contributors;
	bool exported; /* its parts do not fit one grid, so it is encoded again from all of them */
	struct array_layout layout; /* for an array: the layout of the whole */
	uint64_t write[LIMIT_RANK]; /* shape of what one rank wrote */
};

/*
 * The type of a node that at least one rank has as a namedtuple: node->type. (collective_types.c)
 */
struct collective_type {
	struct collective_type *next;
	struct tree_node *node;
	struct tree_type type;
	int rank; /* the lowest rank that has it as a namedtuple */
};

/* A file that is stored as it is, and the rank whose bytes are used. */
struct collective_file {
	const struct contribution_file *file;
	int rank;
};

/* Bits of collective_item.stores: ocdbt.process_<rank>, ocdbt.process_replica_<rank>. */
enum { BRINGS_OWN = 1, BRINGS_REPLICAS = 2 };

struct collective_item {
	struct plan *plan; /* for a tree: what is to be described; else only names */
	struct span handler;
	const struct contribution_item *first; /* of the lowest rank that has the item */
	int first_rank;
	struct collective_leaf *leaf; /* parallel to plan->leaf */
	size_t n_leaves, cap;
	uint8_t *stores; /* indexed by rank: the databases (or directories) that it contributes */
	bool any_exported;
	struct collective_type *types;
	struct collective_file *file; /* sorted, and without replicas when decided */
	size_t n_files, cap_files;
};

struct collective_plan {
	struct draft *draft;
	struct arena arena;
	/* indexed by rank; empty for ranks that are not active */
	struct contribution *contribution;
	int n_ranks;
	struct collective_item *item;
	size_t n_items;
	struct span custom; /* metadata of the step; p NULL: none */
	/* The step in the bucket to which all ranks have uploaded their values; NULL: the draft. */
	struct io_dir *parts_in;
};

/*
 * Merge the packed contributions of all ranks. -EINVAL: the message names what does not fit
 * together, and the ranks.
 */
int collective_plan_new(struct draft *d, const struct buf *bytes, struct collective_plan **ret);
/* Accepts NULL. */
void collective_plan_free(struct collective_plan *jp);
DEFINE_AUTO(collective_plan, struct collective_plan, collective_plan_free);

/*
 * Append the assignments of a rank: whether it writes each item of its contribution, and the name
 * and assignments of each leaf.
 */
int collective_plan_assignments(const struct collective_plan *jp, int rank, struct buf *ret);

/* Add the files of one rank; ranks are added in ascending order. (collective_files.c) */
int collective_files_add(struct collective_item *it, const struct contribution_item *si, int rank);
/*
 * Call when all contributions are merged: of several files with one name, the one of the lowest
 * rank is used. -EINVAL: a file has the name of a directory, of a leaf or of an item.
 */
int collective_files_decide(const struct collective_plan *jp, struct collective_item *it);
/* The rank whose file of that name is used; -1: none. */
int collective_files_rank(const struct collective_item *it, const struct contribution_file *f);
/* Whether a name at the top of the draft is one of the files beside the items. */
bool collective_files_has(const struct collective_plan *jp, const char *name);

/*
 * Record that a rank has n as a namedtuple of that type. -EINVAL: the message names two ranks, and
 * the difference.
 */
int collective_type_add(struct collective_plan *jp, struct collective_item *it, struct tree_node *n,
			const struct tree_type *type, int rank);
/*
 * Call when all contributions are merged: nodes that have the fields of their type become
 * namedtuples, the others remain dicts.
 */
void collective_types_decide(struct collective_item *it);

#endif
