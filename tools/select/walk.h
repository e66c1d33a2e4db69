/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h - visits the leaves below a path with all threads, in bounded memory.
 *
 * Leaves are opened in the order of the tree and split into tasks. Several leaves are in progress
 * at once, within a window. Reports about leaves come in the order of the tree.
 */
#ifndef PYTREEFS_WALK_H
#define PYTREEFS_WALK_H

#include "core/base/err.h"
#include "handlers/subtree/subtree.h"
#include "handlers/format/value.h"
#include "tools/cli/progress.h"
#include "tools/select/select.h"
#include "tools/job/rank_group.h"
#include "tools/scan/numbers.h"
#include "tools/scan/tiling.h"

#define WALK_TASKS 65536 /* for one leaf, which bounds the data per task */

/* A leaf in progress. */
struct walk_leaf {
	const struct subtree_part *part;
	const struct tree_node *node;
	size_t number;        /* index among those of the walk */
	char *path;           /* from the node that the user named: "state/params/w.npy" */
	struct value value;   /* VALUE_UNKNOWN if it could not be opened */
	struct tiling tiling; /* for VALUE_ARRAY */
	/*
	 * For an array, at most WALK_TASKS; for other leaves, 0. begin() may change it: 0 when
	 * metadata is enough, so that no chunk is read.
	 */
	uint64_t n_tasks;
	uint64_t per_task;      /* number of tasks of the tiling per task of the walk */
	void *state;            /* private to the command */
	struct err_note failed; /* code 0: no error */
	bool is_shared;         /* all ranks work on it; only rank 0 reports leaf-level findings */

	/* Private, protected by the walk's lock. */
	bool is_open, is_elsewhere; /* is_elsewhere: another rank works on it */
	uint64_t first, n_own;      /* the tasks of this rank */
	uint64_t taken, ended;
};

/* In a rank group, all ranks work on a leaf of at least this size. */
#define WALK_SPLIT_BYTES (32 * MiB)
/* Get the tasks of a rank: [*ret_first, *ret_end). */
void walk_share(const struct walk_leaf *leaf, const struct rank_group *t, int rank,
		uint64_t *ret_first, uint64_t *ret_end);

/* Memory of a thread, allocated on first use. */
struct walk_worker {
	struct walk *walk;
	void *buf[2]; /* TILE_BYTES each */
};

/*
 * Operations of a command. In a rank group, the ranks share the leaves: rank 0 calls end() for its
 * own leaves and, in order, unpack() for leaves that other ranks have packed. The other ranks never
 * call end().
 */
struct walk_ops {
	/* The value is open. May be NULL. Any thread may call this. */
	int (*begin)(void *arg, struct walk_leaf *leaf);
	/*
	 * Run one task. Any thread may call this. An error ends the leaf, not the walk. NULL:
	 * leaves have no tasks.
	 */
	int (*task)(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker);
	/*
	 * Called in the order of the tree, one leaf at a time, also for leaves that failed
	 * (leaf->failed), whose value may be VALUE_UNKNOWN. Frees state. An error ends the walk.
	 */
	int (*end)(void *arg, struct walk_leaf *leaf);
	/*
	 * For commands that run in rank groups (selection_share()); NULL in others. pack() appends
	 * what end() would report, and frees state; unpack() reports it.
	 */
	int (*pack)(void *arg, struct walk_leaf *leaf, struct buf *ret);
	int (*unpack)(void *arg, struct walk_leaf *leaf, int rank, struct span packed);
	/*
	 * For a shared leaf: part() appends the results of this rank's tasks, and frees state;
	 * join() adds them to those of rank 0.
	 */
	int (*part)(void *arg, struct walk_leaf *leaf, struct buf *ret);
	int (*join)(void *arg, struct walk_leaf *leaf, int rank, struct span packed);
};

struct walk {
	const struct subtree *st;    /* borrowed */
	const char *prefix;          /* prefix of all paths: "100/" */
	struct subtree_place *place; /* the list of leaves */
	size_t n;
	uint64_t bytes;    /* total size of their values; 0: unknown */
	unsigned passes;   /* number of runs; 0: once */
	bool is_announced; /* progress expects all of them already */
	struct progress *progress;
	const struct walk_ops *ops;
	void *arg;
	struct rank_group *group; /* borrowed; NULL: one process does all */
	uint64_t first;           /* index of the first leaf, counted over all walks */
	struct walk_run *run;
};

/* only: NULL for all leaves. */
int walk_init(struct walk *w, const struct subtree *st, const char *prefix, struct select *only);
void walk_release(struct walk *w);
#define auto_walk __attribute__((cleanup(walk_release))) struct walk
/* progress may be NULL. If it is on, it gets the sizes first. */
int walk_run(struct walk *w, const struct walk_ops *ops, void *arg, struct progress *progress);
/* Returns buffer 0 or 1 of the worker; NULL when memory is short. */
void *walk_buf(struct walk_worker *worker, unsigned which);

/*
 * Call a function for every tile of a task, which is read into buffer 0 of the worker in the
 * array's own type. Updates progress.
 */
typedef int walk_tile_fn(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
			 struct walk_worker *worker);
int walk_tiles(struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker, walk_tile_fn *fn,
	       void *arg);

/*
 * Members of struct walk_ops that sum up arrays (tools/scan/numbers.h), and ignore their arg. The
 * state of a leaf is one struct numbers for each task, which the walk's end() merges in the order
 * of the tasks and frees; NULL for leaves that are not arrays.
 */
int walk_numbers_begin(void *arg, struct walk_leaf *leaf);
int walk_numbers_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker);

#endif
