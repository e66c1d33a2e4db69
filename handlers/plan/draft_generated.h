/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_generated.h - the files that a draft shows before it is committed: `_METADATA` of an item
 * and `_CHECKPOINT_METADATA` of the step.
 */
#ifndef PYTREEFS_DRAFT_GENERATED_H
#define PYTREEFS_DRAFT_GENERATED_H

#include "handlers/draft/draft.h"

/* ---- contents of generated files (draft_shown.c); all functions lock the draft ---- */

/*
 * Get the generated file of a directory and its time: the text that a program wrote, as long as it
 * still describes the draft, else a new one.
 */
int draft_generated_text(struct draft_node *dir, struct buf *ret, struct timespec *ret_mtime);
/* A program opens the generated file for writing. Sets the flag of its handle. */
void draft_hint_open(struct draft_node *dir, atomic_bool *open);
/*
 * A program closes the generated file: the text counts as up to date with the draft, and the flag
 * is cleared. Does nothing if the flag is not set.
 */
void draft_hint_close(struct draft_node *dir, atomic_bool *open);
/*
 * The text was written under a temporary name, last changed at mtime, and was renamed to the
 * generated file.
 */
void draft_hint_renamed(struct draft_node *dir, const struct timespec *mtime);
/*
 * Set the time of a node, or of its generated file, as utimens(2) does. It lasts until the contents
 * change.
 */
void draft_set_mtime(struct draft_node *n, bool generated, const struct timespec *mtime);

/* ---- generated files (draft_tree.c) ---- */

/*
 * Returns the name of the generated file of a directory, or NULL. if_hidden: even if it is hidden.
 * The caller holds the lock.
 */
const char *draft_generated_name(const struct draft_node *dir, bool if_hidden);
/*
 * Whether `name` in dir is its generated file. This function and the following ones lock the draft.
 */
bool draft_is_generated(struct draft_node *dir, struct span name, bool if_hidden);
/* Hide or show the generated file: tar removes a file before it writes it. */
void draft_hide_generated(struct draft_node *dir, bool hide);
/*
 * Make `_METADATA` of an item as a commit would write it now, including leaves that are incomplete.
 * -ENOENT: the item is not a tree.
 */
int draft_metadata(struct draft_node *item, struct buf *ret);

#endif
