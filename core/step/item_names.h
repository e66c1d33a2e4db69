/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_names.h - the names that are stored in an item without a document of its tree. Included only
 * by item_names.c and item_groups.c.
 */
#ifndef PYTREEFS_ITEM_NAMES_H
#define PYTREEFS_ITEM_NAMES_H

#include "core/step/item_impl.h"

/* The stored keys that a name has. */
enum stored_as {
	AS_ARRAY = 1,   /* NAME/.zarray */
	AS_NODE = 2,    /* NAME/zarr.json, of an array or a group */
	AS_STRING = 4,  /* NAME/_strings.json, or a member of the item's own */
	AS_GROUP = 8,   /* NAME/.zgroup */
	AS_CHUNKS = 16, /* NAME/c, as an array of zarr v3 has unless all of it is the fill value */
	AS_NAMED = 32,  /* nothing: consolidated metadata of a group say that it is an array */
	AS_COPIES = 64  /* NAME/.zmetadata, the consolidated metadata of a group */
};

struct stored_name {
	struct span name; /* allocated in the arena */
	const char *dir;  /* of the database below the item that has it; NULL: the item itself */
	unsigned as;      /* bits of stored_as */
};

/* Memory of a name, with the arrays that item_names_make_tree() allocates. */
#define NAME_BYTES (sizeof(struct stored_name) + sizeof(struct span) + 2)

struct names {
	struct arena arena;
	struct stored_name *name;
	size_t n, cap;
	bool has_groups;
	bool has_names;       /* other than the empty one of the item itself */
	bool is_consolidated; /* the names are those of consolidated metadata */
	const char *dir;      /* of the names that are being listed; borrowed */
	struct buf databases; /* directories with a manifest, each followed by a NUL */
};

int item_names_add(struct names *ns, struct span name, enum stored_as as);
/*
 * Sort the names, with all that is stored of each. Listing has no order, and lists a name twice if
 * it is stored in both formats, or as a string too. One that two databases have could be either's,
 * but for those that were merged.
 */
int item_names_sort(struct names *ns);
int item_names_by_name(const void *a, const void *b);
/* Read a file of an array or a group: 1, or 0 when it is not there. */
int item_names_read_key(struct item *item, struct span name, const char *file, struct buf *ret);
/* Tell groups from arrays, and add what the consolidated metadata of groups name and is lost. */
int item_names_find_groups(struct item *item, struct names *ns);
/*
 * Of a server that cannot list, the consolidated metadata of the top group have the names of all
 * arrays and groups in it: 1; 0: there are none.
 */
int item_names_of_copies(struct item *item, struct names *ns);

#endif
