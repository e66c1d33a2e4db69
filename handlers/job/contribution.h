/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contribution.h - what one rank has of a draft, as it tells the primary.
 *
 * Names and descriptions only: values stay where they are. A share is packed by
 * the rank that has it, from its plans, and parsed by the primary.
 */
#ifndef PYTREEFS_CONTRIBUTION_H
#define PYTREEFS_CONTRIBUTION_H

#include "core/base/wire.h"
#include "handlers/commit/draft_items.h"

/* One box of an array, as it is encoded. A whole array is one box. */
struct contribution_box {
	struct box box;
	struct array_layout layout;
};

struct contribution_leaf {
	struct leaf_desc desc; /* of the whole; values that no document has stay where they are */
	bool in_parts;
	bool replicas;                /* its values are in the database for slices */
	struct contribution_box *box; /* where desc.type->in_boxes */
	size_t n_boxes;
};

struct contribution_node {
	enum tree_kind kind;
	bool key_is_index;
	struct span key;
	const struct tree_type *type; /* what a dict is a namedtuple of; NULL: nothing is said */
	size_t leaf;                  /* index + 1; 0: none */
	size_t n_children;            /* that follow, each with its own */
};

struct contribution_item {
	struct span name, handler; /* handler p NULL: none */
	enum plan_item kind;
	bool ocdbt, rich_types, sharding_file, array_metadata, store_fill_value;
	bool rich_off; /* by an option, and not by default */
	bool manifest; /* it is to have the digests of its leaves */
	enum save_zarr zarr;
	struct span custom; /* metadata of the item; p NULL: none */
	struct contribution_leaf *leaf;
	size_t n_leaves;
	struct contribution_node *node; /* depth first */
	size_t n_nodes;
};

/* Everything lives in arena and in the bytes that were parsed. */
struct contribution {
	struct arena arena;
	struct span final, custom;
	struct contribution_item *item;
	size_t n_items;
};

/* Whether its values are in the database for slices. */
bool plan_leaf_is_replicas(const struct plan_leaf *l);
int contribution_pack(const char *final, struct span custom, struct sealing_item *item, size_t n,
		      struct buf *ret);
/* -EIO: it is not one. bytes must outlive ret. */
int contribution_parse(struct span bytes, struct contribution *ret);
void contribution_release(struct contribution *s);

/* ---- what a rank is told ---- */

enum { TAKE_NOTHING, TAKE_WHOLE, TAKE_CHUNKS, TAKE_EXPORT };

/* Of one box. */
struct assignment {
	uint8_t take;
	bool document; /* it brings the array's metadata */
	/* TAKE_WHOLE of an array that is split: chunks [from, to) of an axis; to 0: all. */
	unsigned axis;
	uint64_t from, to;
};

int assignment_pack(const struct assignment *e, struct buf *ret);
void assignment_parse(struct wire *w, struct assignment *ret);

/* A text with its length; p NULL stays NULL. */
int pack_text(struct buf *b, struct span s);
struct span parse_text(struct wire *w);

#endif
