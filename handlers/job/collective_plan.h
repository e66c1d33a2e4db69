/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_plan.h - the contributions of all ranks put together: one tree, and what each rank is
 * to do for it.
 *
 * Made by the primary in every commit that ranks make together.
 */
#ifndef PYTREEFS_COLLECTIVE_PLAN_H
#define PYTREEFS_COLLECTIVE_PLAN_H

#include "core/job/collective.h"
#include "handlers/job/contribution.h"

/* One leaf of one rank. */
struct contributor {
	struct contributor *next; /* of the same leaf, by rank */
	int rank;
	const struct contribution_leaf *contribution;
	struct assignment *assignment; /* by box; one where there are none */
};

struct collective_leaf {
	struct tree_node *node;
	struct contributor *contributors, **contributors_end;
	bool exported;              /* its parts do not fit one grid: it is put together anew */
	struct array_layout layout; /* ARRAY: of the whole */
	uint64_t write[LIMIT_RANK]; /* what one rank wrote */
};

/* A node that at least one rank has as a namedtuple: node->type is type. (collective_types.c) */
struct collective_type {
	struct collective_type *next;
	struct tree_node *node;
	struct tree_type type;
	int rank; /* the lowest that says so */
};

/* Of a rank: ocdbt.process_<rank>, ocdbt.process_replica_<rank>. */
enum { BRINGS_OWN = 1, BRINGS_REPLICAS = 2 };

struct collective_item {
	struct plan *plan; /* of a tree what is to be described; else only names */
	struct span handler;
	const struct contribution_item *first; /* of the lowest rank that has it */
	int first_rank;
	struct collective_leaf *leaf; /* as plan->leaf */
	size_t n_leaves, cap;
	uint8_t *stores; /* by rank: which databases (or directories) of its it brings */
	bool any_exported;
	struct collective_type *types;
};

struct collective_plan {
	struct draft *draft;
	struct arena arena;
	struct contribution *contribution; /* by rank; those that are not active are empty */
	int n_ranks;
	struct collective_item *item;
	size_t n_items;
	struct span custom; /* of the step; p NULL: none */
};

/* bytes: the packed contribution of each rank. -EINVAL names what does not fit together, and whose
 * it is. */
int collective_plan_new(struct draft *d, const struct buf *bytes, struct collective_plan **ret);
/* Accepts NULL. */
void collective_plan_free(struct collective_plan *jp);
DEFINE_AUTO(collective_plan, struct collective_plan, collective_plan_free);

/* For each item of its contribution whether it writes it, and for each leaf its name and
 * assignments. */
int collective_plan_assignments(const struct collective_plan *jp, int rank, struct buf *ret);

/* A rank has n as a namedtuple of that type. -EINVAL names both ranks and what they do not agree
 * on. */
int collective_type_add(struct collective_plan *jp, struct collective_item *it, struct tree_node *n,
			const struct tree_type *type, int rank);
/* All shares are there: what has the fields of its type is a namedtuple, all else a dict. */
void collective_types_decide(struct collective_item *it);

#endif
