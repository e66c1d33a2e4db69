/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_meta.h - the small JSON files of a step and a root: `_CHECKPOINT_METADATA`,
 * `_ROOT_METADATA`.
 *
 * Pure functions of bytes. Members that are only copied (metrics, user metadata) are kept as JSON
 * text in Python's spelling, with all digits of numbers.
 */
#ifndef PYTREEFS_STEP_META_H
#define PYTREEFS_STEP_META_H

#include "core/base/arena.h"

enum step_items {
	STEP_ITEMS_NONE, /* null or absent: releases before 0.11.2 */
	STEP_ITEMS_MAP,  /* a step of items */
	STEP_ITEMS_ONE,  /* a direct checkpoint: one handler for all of it */
};

struct step_item {
	struct span name, handler; /* type string; p is NULL if unknown */
};

/* For printing, spans may point anywhere, and a text may be NULL, which means "{}". */
struct step_meta {
	struct arena arena;
	bool absent; /* the file does not exist, is empty or is not JSON */
	enum step_items kind;
	struct span handler;           /* STEP_ITEMS_ONE */
	const struct step_item *items; /* STEP_ITEMS_MAP, in the document's order */
	size_t n_items;
	bool has_init, has_commit;
	int64_t init_ns, commit_ns;
	const char *metrics, *performance_metrics, *custom; /* JSON objects */
};

/*
 * Parse the file; an empty span means that there is none. As in Orbax, a file that is empty or not
 * JSON counts as absent (ret->absent is set, and a line logged). -EUCLEAN: members have wrong
 * types, or there are unknown members and custom_metadata; unknown members alone become custom
 * metadata.
 */
int step_meta_parse(struct span json, const char *what, struct step_meta **ret);
/* Append the file as Orbax writes it. */
int step_meta_print(const struct step_meta *m, struct buf *ret);
/* The handler of an item: returns 1, or 0 when the file records none for it. */
int step_meta_handler(const struct step_meta *m, struct span item, struct span *ret);
/* Whether the handler of an item is Orbax's of trees. */
bool step_meta_is_tree(const struct step_meta *m, struct span item);
/* The same for the name of a handler. */
bool step_meta_tree_handler(struct span handler);
/* Accepts NULL. */
void step_meta_free(struct step_meta *m);
DEFINE_AUTO(step_meta, struct step_meta, step_meta_free);

/* `metadata/_ROOT_METADATA`, or the older `metadata/metadata`, which is just a user document. */
struct root_meta {
	struct arena arena;
	const char *internal, *custom; /* JSON objects; for printing, NULL means "{}" */
};

/*
 * Parse the file. An empty span means that there is none: both members are "{}". -EUCLEAN: the file
 * is damaged.
 */
int root_meta_parse(struct span json, const char *what, struct root_meta **ret);
int root_meta_print(const struct root_meta *m, struct buf *ret);
/* Accepts NULL. */
void root_meta_free(struct root_meta *m);
DEFINE_AUTO(root_meta, struct root_meta, root_meta_free);

#endif
