/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h - the leaves below a path, gone through by all threads, in bounded memory.
 *
 * Leaves are opened in the order of the tree and cut into tasks; several are under way at once, but
 * no more than a window of them. What is to be said of a leaf is said in the order of the tree.
 */
#ifndef PYTREEFS_WALK_H
#define PYTREEFS_WALK_H

#include "core/base/err.h"
#include "handlers/subtree/subtree.h"
#include "handlers/format/value.h"
#include "tools/cli/progress.h"
#include "tools/select/select.h"
#include "tools/job/rank_group.h"
#include "tools/scan/tiling.h"

#define WALK_TASKS 65536 /* of one leaf: what is kept for each task stays small */

/* One leaf under way. */
struct walk_leaf {
	const struct subtree_part *part;
	const struct tree_node *node;
	size_t number;        /* among those of the walk */
	char *path;           /* from the node that was named: "state/params/w.npy" */
	struct value value;   /* VALUE_UNKNOWN when it could not be opened */
	struct tiling tiling; /* of VALUE_ARRAY */
	/*
	 * Of an array: at most WALK_TASKS; of others 0. begin() may set another number: 0 for what
	 * the metadata say, of which no chunk is read.
	 */
	uint64_t n_tasks;
	uint64_t per_task;      /* tasks of the tiling in one of these */
	void *state;            /* of the command */
	struct err_note failed; /* code 0: nothing failed */
	bool is_shared;         /* all ranks work on it; only rank 0 reports leaf-level findings */

	/* Private, protected by the walk's lock. */
	bool is_open, is_elsewhere; /* elsewhere: another rank works on it */
	uint64_t first, n_own;      /* of the tasks: this rank's */
	uint64_t taken, ended;
};

/* In a rank group, all ranks work on a leaf of that many bytes. */
#define WALK_SPLIT_BYTES (32 * MiB)
/* Its tasks [*ret_first, *ret_end) are that rank's. */
void walk_share(const struct walk_leaf *leaf, const struct rank_group *t, int rank,
		uint64_t *ret_first, uint64_t *ret_end);

/* Memory of a thread, made when it is asked for. */
struct walk_worker {
	struct walk *walk;
	void *buf[2]; /* of TILE_BYTES */
};

/*
 * With a rank group, leaves are shared among its ranks: rank 0 ends its own leaves and says what
 * other ranks have packed, which it unpacks in its turn; the others end none.
 */
struct walk_ops {
	/* value is open. May be NULL. Any thread. */
	int (*begin)(void *arg, struct walk_leaf *leaf);
	/* One task. Any thread. A failure ends the leaf, not the walk. NULL: no leaf has tasks. */
	int (*task)(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker);
	/*
	 * In the order of the tree, one at a time, also of leaves that failed (leaf->failed), whose
	 * value may be VALUE_UNKNOWN; frees state. A failure ends the walk.
	 */
	int (*end)(void *arg, struct walk_leaf *leaf);
	/* For commands that run in rank groups (selection_share()), NULL in others: pack what end()
	 * would report, freeing state; and report it. */
	int (*pack)(void *arg, struct walk_leaf *leaf, struct buf *ret);
	int (*unpack)(void *arg, struct walk_leaf *leaf, struct span packed);
	/* Of a leaf that is shared: what this rank's tasks came to, freeing state; and add that to
	 * rank 0's. */
	int (*part)(void *arg, struct walk_leaf *leaf, struct buf *ret);
	int (*join)(void *arg, struct walk_leaf *leaf, int rank, struct span packed);
};

struct walk {
	const struct subtree *st; /* borrowed */
	const char *prefix;       /* in front of all paths: "100/" */
	struct walk_place *place; /* private: the leaves */
	size_t n;
	uint64_t bytes;    /* of their values; 0 when nobody asked */
	unsigned passes;   /* how often it is run; 0: once */
	bool is_announced; /* progress knows all of them */
	struct progress *progress;
	const struct walk_ops *ops;
	void *arg;
	struct rank_group *group; /* borrowed; NULL: one process does all */
	uint64_t first;           /* number of the first leaf among those of all walks */
	struct walk_run *run;
};

/* only: NULL for all. */
int walk_init(struct walk *w, const struct subtree *st, const char *prefix, struct select *only);
void walk_release(struct walk *w);
/* progress may be NULL. Tells it the sizes first, when it is on. */
int walk_run(struct walk *w, const struct walk_ops *ops, void *arg, struct progress *progress);
/* A buffer of the worker: 0 or 1. NULL when memory is short. */
void *walk_buf(struct walk_worker *worker, unsigned which);

/*
 * Every tile of a task, read into buffer 0 of the worker in the array's own type; progress is
 * notified.
 */
typedef int walk_tile_fn(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
			 struct walk_worker *worker);
int walk_tiles(struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker, walk_tile_fn *fn,
	       void *arg);

#endif
