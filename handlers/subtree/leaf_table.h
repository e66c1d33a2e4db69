/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_table.h - a table of the leaves of a subtree, made without reading their data, except for
 * scalars that are requested.
 *
 * All threads of the pool open leaves. The entry of a leaf that cannot be opened has the reason
 * instead. Strings, shapes and chunks in the table live as long as it does.
 */
#ifndef PYTREEFS_LEAF_TABLE_H
#define PYTREEFS_LEAF_TABLE_H

#include "handlers/subtree/subtree.h"
#include "handlers/format/value.h"

struct leaf_info {
	const struct subtree_part *part;
	const struct tree_node *leaf;
	bool is_scalar;
	enum value_kind kind;    /* VALUE_UNKNOWN: see `why` */
	struct array_type array; /* for VALUE_ARRAY, like chunk and codecs */
	const uint64_t *chunk;
	const char *codecs;     /* JSON */
	uint64_t bytes, stored; /* size of the value, and of its stored form; also for a text */
	/* stored bytes that no checksum covers; only with LEAF_TABLE_SUMS */
	uint64_t unsummed;
	/* for VALUE_TEXT with LEAF_TABLE_TEXTS; JSON of a scalar with LEAF_TABLE_SCALARS */
	struct span text;
	int error; /* negative errno; 0 also for a leaf whose type is unknown */
	const char *why;
};

enum leaf_table_flags {
	LEAF_TABLE_STORED = 1 << 0,
	LEAF_TABLE_TEXTS = 1 << 1,
	LEAF_TABLE_SUMS = 1 << 2,
	/* read scalars, too; the entry of one that cannot be read has the reason */
	LEAF_TABLE_SCALARS = 1 << 3
};

struct leaf_table {
	const struct subtree *subtree; /* borrowed */
	struct leaf_info *leaf;        /* in the order of parts, then of the tree */
	size_t n;
	struct leaf_table_slice *slice; /* private: the memory of the entries */
	size_t n_slices;
	struct arena arena; /* private: memory of these arrays */
};

/*
 * Make the table of n leaves, in the order of subtree_next(), or of LEAF_TABLE_ALL. Release it with
 * leaf_table_release(). A leaf that cannot be opened is not an error.
 */
#define LEAF_TABLE_ALL SIZE_MAX /* place is not used */
int leaf_table_make(const struct subtree *st, unsigned flags, const struct subtree_place *place,
		    size_t n, struct leaf_table *ret);
/*
 * Sums over a table made with LEAF_TABLE_STORED and LEAF_TABLE_SUMS: leaves and stored bytes with a
 * checksum, and without one (bare).
 */
struct leaf_table_sums {
	uint64_t leaves, bytes, bare_leaves, bare_bytes;
	uint64_t unopened_leaves; /* could not be opened, so they count for neither */
};
void leaf_table_sums(const struct leaf_table *s, struct leaf_table_sums *ret);
void leaf_table_release(struct leaf_table *s);
#define auto_leaf_table __attribute__((cleanup(leaf_table_release))) struct leaf_table

/*
 * Append the table as one JSON document with a line per entry: structure, kinds, dtypes, shapes,
 * sizes. `name` is the name of the whole. `more` may add members to a leaf's object, each with ", "
 * before it; it may be NULL. -EFBIG: the document is longer than LIMIT_VIEW_TEXT.
 */
typedef int leaf_table_more_fn(void *arg, const struct leaf_info *leaf, struct buf *out);
int leaf_table_json(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret);
/* Append an HTML page of the program, with a title and a document in place of the markers. */
int leaf_table_page(struct span page, const char *title, struct span document, struct buf *ret);
/* Append the document in an HTML page that needs no other file. */
int leaf_table_html(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret);

#endif
