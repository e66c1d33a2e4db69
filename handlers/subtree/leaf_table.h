/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_table.h - what is known of every leaf of a subtree without reading its data.
 *
 * Leaves are opened by all threads of the pool. A leaf that cannot be opened is described by the
 * reason.
 */
#ifndef PYTREEFS_LEAF_TABLE_H
#define PYTREEFS_LEAF_TABLE_H

#include "handlers/subtree/subtree.h"
#include "handlers/format/value.h"

struct leaf_info {
	const struct tree_node *leaf;
	uint32_t part;
	bool is_scalar;
	uint8_t rank;
	enum value_kind kind; /* VALUE_UNKNOWN: why says what is wrong */
	enum dtype dtype;     /* of VALUE_ARRAY, with what follows */
	const uint64_t *shape, *chunk;
	const char *codecs;     /* JSON */
	uint64_t bytes, stored; /* of a text, too */
	uint64_t unsummed;      /* of stored: no checksum covers them; when it was asked for */
	struct span text;       /* of VALUE_TEXT, when it was asked for */
	int error;              /* negative errno; 0 also for a leaf without a handler */
	const char *why;
};

enum leaf_table_flags {
	LEAF_TABLE_STORED = 1 << 0,
	LEAF_TABLE_TEXTS = 1 << 1,
	LEAF_TABLE_SUMS = 1 << 2
};

struct leaf_table {
	const struct subtree *subtree; /* borrowed */
	struct leaf_info *leaf;        /* in the order of parts and trees */
	size_t n;
	struct leaf_table_slice *slice; /* private: memory of the infos */
	size_t n_slices;
	struct arena arena; /* private: of both tables */
};

int leaf_table_make(const struct subtree *st, unsigned flags, struct leaf_table *ret);
/* What a survey with SURVEY_STORED and SURVEY_SUMS says in all: leaves and stored bytes with a
 * checksum and without. */
struct leaf_table_sums {
	uint64_t leaves, bytes, bare_leaves, bare_bytes;
	uint64_t unopened_leaves; /* neither is known of them */
};
void leaf_table_sums(const struct leaf_table *s, struct leaf_table_sums *ret);
void leaf_table_release(struct leaf_table *s);
#define auto_leaf_table __attribute__((cleanup(leaf_table_release))) struct leaf_table

/*
 * The subtree as one JSON document: structure, kinds, dtypes, shapes, sizes; one line per entry.
 * name is that of the whole. more (may be NULL) adds members to a leaf's object, each with ", " in
 * front. -EFBIG: longer than LIMIT_VIEW_TEXT.
 */
typedef int leaf_table_more_fn(void *arg, const struct leaf_info *leaf, struct buf *out);
int leaf_table_json(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret);
/* A page of ours with a title and a document in the places of its markers. */
int leaf_table_page(struct span page, const char *title, struct span document, struct buf *ret);
/* The same in a page for browsers that needs nothing else. */
int leaf_table_html(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret);

#endif
