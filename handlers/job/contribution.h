/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contribution.h - the description of one rank's part of a draft, for the primary.
 *
 * It has only names and descriptions, no values. A rank packs it from its plans, and the primary
 * parses it.
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
	/* of the whole array; values are included only if a document contains them */
	struct leaf_desc desc;
	bool in_parts;
	bool replicas;                /* its values are in the database for slices */
	struct contribution_box *box; /* if desc.type->in_boxes */
	size_t n_boxes;
};

struct contribution_node {
	enum tree_kind kind;
	bool key_is_index;
	struct span key;
	const struct tree_type *type; /* for a dict that is a namedtuple: its type; NULL: unknown */
	size_t leaf;                  /* index + 1 of the leaf; 0: not a leaf */
	size_t n_children; /* number of children, which follow with their own descendants */
};

/* A file that is stored as it is, or an empty directory, by its path in the item. */
struct contribution_file {
	struct span name;
	bool is_dir;
};

struct contribution_item {
	struct span name, handler; /* handler: p NULL if there is none */
	enum plan_item kind;
	bool ocdbt, rich_types, sharding_file, array_metadata, store_fill_value;
	bool rich_off; /* rich_types is off by an option, not by default */
	bool manifest; /* it gets the digests of its leaves */
	enum save_zarr zarr;
	struct span custom; /* metadata of the item; p NULL: none */
	struct contribution_leaf *leaf;
	size_t n_leaves;
	struct contribution_node *node; /* in depth-first order */
	size_t n_nodes;
	struct contribution_file *file;
	size_t n_files;
};

/* All memory belongs to arena, or to the bytes that were parsed. */
struct contribution {
	struct arena arena;
	struct span final, custom;
	struct contribution_item *item;
	size_t n_items;
};

/* Whether its values are in the database for slices. */
bool plan_leaf_is_replicas(const struct plan_leaf *l);
/* Pack the plans of the items, whose files that are stored as they are become it->file. */
int contribution_pack(const char *final, struct span custom, struct sealing_item *item, size_t n,
		      struct buf *ret);
/* -EIO: bytes are not a contribution. bytes must outlive ret. */
int contribution_parse(struct span bytes, struct contribution *ret);
void contribution_release(struct contribution *s);

/* ---- assignments ---- */

enum { TAKE_NOTHING, TAKE_WHOLE, TAKE_CHUNKS, TAKE_EXPORT };

/* The assignment for one box. */
struct assignment {
	uint8_t take;
	bool document; /* the rank stores the metadata document of the array */
	/* For TAKE_WHOLE of a split array: chunks [from, to) along an axis; to 0: all chunks. */
	unsigned axis;
	uint64_t from, to;
};

int assignment_pack(const struct assignment *e, struct buf *ret);
void assignment_parse(struct wire *w, struct assignment *ret);

/* Pack a text with its length. A NULL p is preserved. */
int pack_text(struct buf *b, struct span s);
struct span parse_text(struct wire *w);

#endif
