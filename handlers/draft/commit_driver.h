/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_driver.h - where drafts are made and become steps: all that differs between a directory, a
 * bucket, and a job whose ranks write one step together in either.
 *
 *     driver                SOURCE                              makes a step by
 *     directory_driver      a directory                         renaming the draft
 *     in_place_driver       one, with atomicity=commit_file     its marker
 *     bucket_driver         a URL                               uploading the draft
 *     mounted_driver        a bucket on a file system           copying the draft
 *     job_directory_driver  a directory, of a job               the primary's rename
 *     job_bucket_driver     a URL, of a job                     the primary's marker
 *
 * ns_open() and ns_share() choose one for the life of a struct draft_env; nothing else asks which
 * it is. draft_commit() is the sequence of a commit, and core/commit/README.md has its order on the
 * disk. handlers/commit/draft_drivers.c has the tables, and handlers/job/job_driver.c those of
 * jobs.
 *
 * An operation that may be NULL says what then holds. The others return 0, or an error with a note.
 */
#ifndef PYTREEFS_COMMIT_DRIVER_H
#define PYTREEFS_COMMIT_DRIVER_H

#include "core/commit/commit.h"

struct collective_place_ops;
struct draft;
struct draft_env;
struct draft_node;
struct plan;
struct sealing_item;
struct statvfs;

/*
 * The pieces of an array of which each process writes one: n along an axis, and the index of the
 * one that this process writes; from n on it writes none.
 */
struct slices {
	unsigned n, axis, own;
	bool separate; /* they have a store of their own in the item */
};

struct commit_driver {
	/* ---- a draft begins ---- */

	/* Refuse a step that cannot be begun. NULL: the commit checks its name. */
	int (*check_new)(const struct draft_env *env, struct span final);
	/*
	 * Make the directory d->dir, and claim the place of the step if others could take it. mode:
	 * of directories, before the umask.
	 */
	int (*begin)(struct draft *d, const char *final, unsigned mode);
	/* Whether this process has a part of each item (struct plan.partial), others the rest. */
	bool plans_part;

	/* Of a job whose ranks have directories of their own: claims the place for all. Or NULL. */
	const struct collective_place_ops *place;

	/* ---- values are written ---- */

	/* How the processes divide an array that all of them have: 1, or 0. NULL: they do not. */
	bool (*slices)(const struct draft_env *env, const struct array_type *t, struct slices *ret);
	/*
	 * Make the name of a directory for the arrays of an item; *ret is NULL for those at the top
	 * of the draft. The draft's lock is held.
	 */
	int (*store_name)(struct draft *d, char **ret);
	/* Let data files of the store be uploaded while they grow. NULL: they are not. */
	int (*watch)(const struct draft_node *item, bool replicas, struct item_store_opts *ret);

	/* ---- the commit, in this order ---- */

	/* Let the draft become the step `name`, which is a valid name of one. */
	int (*set_final)(struct draft *d, const char *name);
	/* Whether this process has a part of a draft that is one item. NULL: it has all of it. */
	bool (*has_part)(const struct draft *d);
	/*
	 * Whether the commit moves stored chunks of that item, which programs may be reading. NULL:
	 * it does not.
	 */
	bool (*moves_chunks)(const struct plan *p);
	/*
	 * Write and publish the step. r: the error of planning its items, which the other ranks of
	 * a job have to know. custom: metadata of the step, or empty.
	 */
	int (*commit)(struct draft *d, struct sealing_item *item, size_t n, struct span custom,
		      int r, int64_t deadline);
	/* For `commit`: makes the finished draft a step. */
	const struct commit_publisher *publisher;
	/* Open the item of that path in a draft that is finished, and not published yet. */
	int (*open_finished)(struct draft *d, const char *path, struct item **ret);
	/* Whether this process runs on_commit=. NULL: it does. */
	bool (*runs_on_commit)(const struct draft_env *env);

	/* ---- a draft ends ---- */

	/* Remove what there is besides the step; logs a failure. NULL: nothing. */
	int (*committed)(struct draft *d);
	/* Remove a draft that is given up. */
	int (*remove)(struct draft *d);
	/* The mount ends: log what becomes of the draft. */
	void (*leave)(struct draft *d);
	/* The draft has ended in one of these ways. NULL: nobody else has to know. */
	void (*ended)(struct draft *d, bool aborted);

	/* ---- SOURCE ---- */

	mode_t writable, writable_of; /* bits of its mode: set, and those that the directory has */
	/* Set its free space, if the directory does not tell. NULL: it does. */
	void (*space)(struct statvfs *ret);
	/* -EINVAL: a step that is there cannot be replaced. NULL: it can. */
	int (*check_replace)(const char *path);
	unsigned threads; /* how many it may start */
};

#endif
