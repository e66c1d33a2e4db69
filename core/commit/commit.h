/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.h - from a finished draft to a step: everything in an order in which each thing is durable
 * before what points to it.
 *
 * core/commit/README.md says what a crash leaves at each point.
 */
#ifndef PYTREEFS_COMMIT_H
#define PYTREEFS_COMMIT_H

#include "core/step/ckpt.h"
#include "core/commit/draft_dir.h"
#include "core/commit/store.h"

/* One array of an item: its values, and what it is called. */
struct commit_leaf {
	struct kv *kv; /* of the item's store; borrowed */
	struct span param;
	/* A part of a larger array: chunk keys are moved by this much; rank 0: not a part. */
	unsigned rank;
	const uint64_t *shift;        /* in chunks */
	const struct zarr_meta *meta; /* of a part: how its keys are spelled */
	struct span json; /* metadata document in place of the leaf's own; p NULL: its own */
	/* Of an array that several ranks write. */
	bool no_document;   /* another one brings it */
	bool replicas;      /* it is in the store for slices */
	unsigned keep_axis; /* only chunks [keep_from, keep_to) of that axis; keep_to 0: all */
	uint64_t keep_from, keep_to;
};

/* A file of an item, with all that it holds. */
struct commit_file {
	struct span name; /* may have directories in it */
	bool is_dir;      /* an empty directory */
	struct span text; /* p NULL: source says it */
	int (*source)(void *arg, uint64_t off, size_t n, void *p);
	void *arg;
	uint64_t size;
};

struct commit_item {
	struct span
		name; /* "" for a checkpoint that is itself an item; "OUTER/INNER" inside another */
	struct span handler; /* type string for `_CHECKPOINT_METADATA`, of the outer item; p NULL:
				none */
	struct store *store; /* NULL: no arrays */
	const struct commit_leaf *leaves;
	size_t n_leaves;
	/* Arrays of the store that are not leaves: the draft needs them should the commit fail.
	 * They go when it did not. */
	struct kv *const *retained;
	size_t n_retained;
	const struct commit_file *files; /* `_METADATA` and the like, in the order of writing */
	size_t n_files;
	const struct ocdbt_parts
		*parts; /* databases of ranks, to be merged by reference; NULL: none */
};

struct commit {
	struct ckpt *ckpt;
	struct draft_dir *draft;
	struct commit_item *items;
	size_t n_items;
	const char *custom; /* JSON object for `_CHECKPOINT_METADATA`; NULL: {} */
	bool direct;        /* one item that is the checkpoint itself */
	unsigned dir_mode;  /* of new directories, under the umask; 0: 0777 */
	enum atomicity atomicity;
	bool shared;         /* several ranks write to the items' directories */
	int64_t deadline_ns; /* monotonic; 0: none. -ETIMEDOUT when it passes before the rename */
	uint64_t *merged;    /* bytes of nodes that merging wrote are added; NULL: nobody asks */
	/* Looks at the finished draft before it becomes a step, and may add files (seal_file());
	 * NULL: nobody does. */
	int (*finish)(void *arg);
	void *finish_arg;
	/*
	 * The finished draft becomes a step of another place, by this function, until the deadline,
	 * and stays here as it is; its files say that they belong to published_to. NULL: it becomes
	 * one here.
	 */
	int (*publish)(void *arg, int64_t deadline_ns);
	void *publish_arg;
	const char *published_to;
};

/*
 * 0: the step is there and would survive a power loss. Otherwise the draft is as it was, may be
 * changed, and committed again. -EEXIST: there is a step of that name.
 */
int commit_run(struct commit *c);
/* -ETIMEDOUT when the deadline of a commit, monotonic or 0 for none, has passed. Any thread. */
int commit_check_deadline(const char *final, int64_t deadline_ns);

#define COMMIT_DELETED \
	"-deleted-" /* after STEP_DRAFT in the name of a step that is being deleted */

/*
 * Delete a committed step: renamed away first, so it is there as a whole or not at all. On failure
 * it is there, here and below: a rename that cannot be made durable is taken back, unless that
 * fails, too; then it is whole under the other name, as the error says.
 */
int commit_delete(struct ckpt *ckpt, const char *name);
/* Move it to a directory of the same file system instead (todelete). */
int commit_move_away(struct ckpt *ckpt, const char *name, const char *to_dir);

#endif
