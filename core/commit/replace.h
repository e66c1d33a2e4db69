/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.h - give a finished draft the name of a checkpoint that it replaces.
 *
 * The two names are exchanged, so other processes find the old checkpoint or the new one, also
 * after a crash. Before the exchange the draft gets the name of something that is being removed,
 * which is then the name of the old checkpoint, and which gc recognizes.
 *
 * Where the file system cannot exchange names (NFS), there are two renames, and a crash between
 * them leaves the old checkpoint as ".STEP.pytreefs-draft-old-TIME". gc removes that only if
 * something has the name STEP.
 */
#ifndef PYTREEFS_REPLACE_H
#define PYTREEFS_REPLACE_H

#include "core/commit/draft_dir.h"

/*
 * Whether the directory `name` of parent, as stat() describes it, may be replaced: it is a
 * checkpoint or empty, and nothing is mounted on it, which could be renamed only with -EBUSY.
 * `path` is its name for messages. -EEXIST: it is something else; -EBUSY: it is a mount point.
 */
int replace_check(struct io_dir *parent, const char *name, const struct stat *st, const char *path);

/*
 * Rename the draft to its final name, which exists. *ret_old, allocated, is the new name of what
 * was there. After an error both have their names, unless the note says otherwise. -ENOENT: the
 * draft or the final name is gone; -EEXIST: the final name is not that of a checkpoint; -EBUSY:
 * it is a draft that a living writer holds, or a mount point.
 */
int replace_rename(struct draft_dir *d, char **ret_old);
/* Undo replace_rename(): both get their names back. */
int replace_undo(struct draft_dir *d, const char *old);
/* Remove what was replaced, once the new checkpoint is durable. */
int replace_end(struct draft_dir *d, const char *old);

#endif
