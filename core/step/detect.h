/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect.h - recognize a directory by its contents, never by the type strings in metadata.
 */
#ifndef PYTREEFS_DETECT_H
#define PYTREEFS_DETECT_H

#include "core/io/io.h"

enum shape {
	SHAPE_UNKNOWN,
	SHAPE_ROOT, /* a directory of steps */
	SHAPE_STEP, /* a directory of items */
	SHAPE_ITEM, /* one PyTree */
};

/* The kinds of items, which are the children of a step. */
enum item_kind {
	ITEM_PYTREE,
	ITEM_COMPOSITE, /* items inside an item: random keys */
	ITEM_STORED,    /* JSON, proto, or anything else: shown as stored */
};

/*
 * The name of a file in a directory into which steps of a root were moved (todelete=).
 * detect_shape() ignores such directories.
 */
#define DETECT_DELETED_FILE ".pytreefs-deleted"

/*
 * Recognize the directory rel of dir. An empty directory is a root without steps, and so is one
 * that holds only steps moved there by deletion, to todelete (which may be NULL) or to a directory
 * with DETECT_DELETED_FILE. -EINVAL when it is not a checkpoint, with a note of what was looked
 * for; -EBUSY when its name says that it is not committed.
 */
int detect_shape(struct io_dir *dir, const char *rel, const char *todelete, enum shape *ret);
/*
 * Whether the files of rel itself mark it, whatever is in its directories: ret is SHAPE_STEP or
 * SHAPE_ITEM, else SHAPE_UNKNOWN.
 */
int detect_marked(struct io_dir *dir, const char *rel, enum shape *ret);
/*
 * Whether rel, a child of a root, is a committed checkpoint: ret is SHAPE_STEP or SHAPE_ITEM, else
 * SHAPE_UNKNOWN.
 */
int detect_step(struct io_dir *dir, const char *rel, enum shape *ret);
/*
 * The kind of a child of a step. It is a PyTree if its files say so, if an array is in a directory
 * in it, or if there are arrays further down and nothing else on the way to them; also if it has
 * data files of a database, and lost what names them, so that it cannot be opened.
 */
int detect_item(struct io_dir *dir, const char *rel, enum item_kind *ret);
/* Whether the directory has a `d` with data files of a database: 1 or 0. */
int detect_has_data_files(struct io_dir *dir, const char *rel);
/* Whether there is a root or a step of its own in the directory rel: 1 or 0. */
int detect_holds_steps(struct io_dir *dir, const char *rel);
/*
 * Whether rel is a flax checkpoint, a file that begins with a dict or a number of its own: 1 or 0.
 */
int detect_flax_file(struct io_dir *dir, const char *rel);

const char *shape_text(enum shape s);
/* Whether a file of a step or an item is not shown: markers, `_sharding`, databases. */
bool detect_is_hidden(struct span name);

#endif
