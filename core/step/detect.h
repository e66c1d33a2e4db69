/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.h - what is this directory? Told by content, never by the type strings of metadata.
 */
#ifndef PYTREEFS_DETECT_H
#define PYTREEFS_DETECT_H

#include "core/io/io.h"

enum shape {
	SHAPE_UNKNOWN,
	SHAPE_ROOT, /* a directory of steps */
	SHAPE_STEP, /* items */
	SHAPE_ITEM, /* one PyTree */
};

/* Kinds of item: children of a step. */
enum item_kind {
	ITEM_PYTREE,
	ITEM_COMPOSITE, /* items inside an item: random keys */
	ITEM_STORED,    /* JSON, proto, anything else: shown as stored */
};

/* In a directory to which steps of a root were moved (todelete=): it says nothing of what the root
 * is. */
#define DETECT_DELETED_FILE ".pytreefs-deleted"

/*
 * Recognise rel beneath dir. An empty directory is a root without steps; so is one that holds
 * nothing but steps that were moved away, to todelete (or NULL) or to a directory with
 * DETECT_DELETED_FILE. -EINVAL when it is nothing of ours, saying what was looked for; -EBUSY when
 * its name says that it is not committed.
 */
int detect_shape(struct io_dir *dir, const char *rel, const char *todelete, enum shape *ret);
/* Whether rel (a child of a root) is a committed checkpoint: SHAPE_STEP or SHAPE_ITEM, or
 * SHAPE_UNKNOWN. */
int detect_step(struct io_dir *dir, const char *rel, enum shape *ret);
/* Whether rel is a PyTree item: 1 or 0. */
int detect_pytree(struct io_dir *dir, const char *rel);
int detect_item(struct io_dir *dir, const char *rel, enum item_kind *ret);
/* A flax checkpoint: a file that begins with a msgpack map. 1 or 0. */
int detect_flax_file(struct io_dir *dir, const char *rel);

const char *shape_text(enum shape s);
/* Files of the stored form that are hidden in a tree or a step: markers, `_sharding`, databases. */
bool detect_is_hidden(struct span name);

#endif
