/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_meta.h - the small JSON files about a step and a root: `_CHECKPOINT_METADATA`,
 * `_ROOT_METADATA`.
 *
 * Pure: bytes in, bytes out. Members that only travel through (metrics, user metadata) are kept as
 * JSON text in Python's spelling, numbers of any length in full.
 */
#ifndef PYTREEFS_STEP_META_H
#define PYTREEFS_STEP_META_H

#include "core/base/arena.h"

enum step_items {
	STEP_ITEMS_NONE, /* null or absent: releases before 0.11.2 */
	STEP_ITEMS_MAP,  /* a step of items */
	STEP_ITEMS_ONE,  /* a direct checkpoint: one handler for it all */
};

struct step_item {
	struct span name, handler; /* type string; p is NULL when it is not known */
};

/* To be written, spans may point anywhere and texts may be NULL for "{}". */
struct step_meta {
	struct arena arena;
	bool absent; /* no file, an empty one, or one that is not JSON */
	enum step_items kind;
	struct span handler;           /* STEP_ITEMS_ONE */
	const struct step_item *items; /* STEP_ITEMS_MAP, in the document's order */
	size_t n_items;
	bool has_init, has_commit;
	int64_t init_ns, commit_ns;
	const char *metrics, *performance_metrics, *custom; /* JSON objects */
};

/*
 * Read the file; an empty span stands for none. A file that is empty or not JSON is as good as none
 * (ret->absent, and a log line), as for Orbax. -EUCLEAN: members of wrong types, or unknown members
 * beside custom_metadata; unknown members alone become custom metadata.
 */
int step_meta_parse(struct span json, const char *what, struct step_meta **ret);
/* The file as Orbax writes it. */
int step_meta_print(const struct step_meta *m, struct buf *ret);
/* The handler of an item: 1, or 0 when the file has none for it. */
int step_meta_handler(const struct step_meta *m, struct span item, struct span *ret);
/* Accepts NULL. */
void step_meta_free(struct step_meta *m);
DEFINE_AUTO(step_meta, struct step_meta, step_meta_free);

/* `metadata/_ROOT_METADATA`, or the older `metadata/metadata`, which is a bare user document. */
struct root_meta {
	struct arena arena;
	const char *internal, *custom; /* JSON objects; NULL to be written: "{}" */
};

/* An empty span stands for no file: both are "{}". -EUCLEAN: the file is broken. */
int root_meta_parse(struct span json, const char *what, struct root_meta **ret);
int root_meta_print(const struct root_meta *m, struct buf *ret);
/* Accepts NULL. */
void root_meta_free(struct root_meta *m);
DEFINE_AUTO(root_meta, struct root_meta, root_meta_free);

#endif
