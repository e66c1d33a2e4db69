/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.h - make a step from a finished draft, in an order in which each file is durable before
 * anything refers to it.
 *
 * core/commit/README.md lists the order, and the state after a crash at each point.
 */
#ifndef PYTREEFS_COMMIT_H
#define PYTREEFS_COMMIT_H

#include "core/step/ckpt.h"
#include "core/commit/draft_dir.h"
#include "core/commit/item_store.h"

/* One array of an item: its values and its name. */
struct commit_leaf {
	struct kv *kv; /* the values, in the item's store; borrowed */
	struct span param;
	/*
	 * For a part of a larger array: its chunk keys are moved by `shift`. Rank 0: the leaf is a
	 * whole array.
	 */
	unsigned rank;
	const uint64_t *shift;        /* in chunks */
	const struct zarr_meta *meta; /* for a part: determines the spelling of its keys */
	/* replaces the leaf's own metadata document; p NULL: the leaf's own is used */
	struct span json;
	/* For an array that several ranks write. */
	bool no_document; /* another rank writes the document */
	bool replicas;    /* the values are in the store for slices */
	/* only chunks [keep_from, keep_to) on this axis are used; keep_to 0: all */
	unsigned keep_axis;
	uint64_t keep_from, keep_to;
};

/* A file of an item, with its contents. */
struct commit_file {
	struct span name; /* may contain directories */
	bool is_dir;      /* an empty directory */
	struct span text; /* the contents; p NULL: source provides them */
	int (*source)(void *arg, uint64_t off, size_t n, void *p);
	void *arg;
	uint64_t size;
};

struct commit_item {
	struct span
		/*
		 * "" for a checkpoint that is itself an item, and for files beside the items;
		 * "OUTER/INNER" for an item in another
		 */
		name;
	/* type string of the outer item for `_CHECKPOINT_METADATA`; p NULL: none */
	struct span handler;
	struct item_store *store; /* NULL: the item has no arrays */
	const struct commit_leaf *leaves;
	size_t n_leaves;
	/*
	 * Arrays of the store that are not leaves. They are kept for the draft in case that the
	 * commit fails, and are removed after it succeeds.
	 */
	struct kv *const *retained;
	size_t n_retained;
	/* `_METADATA` and the like, in the order in which they are written */
	const struct commit_file *files;
	size_t n_files;
	const struct ocdbt_parts
		*parts; /* databases of ranks, which are merged by reference; NULL: none */
};

struct commit;

/* How a finished draft becomes a step. */
struct commit_publisher {
	/* Called first: fail if the name is taken. NULL: who began the draft has made sure. */
	int (*check)(struct commit *c);
	/*
	 * Make the draft a step that would survive a power loss, before the deadline (lines 10 to
	 * 12 of the table in README.md). After an error there is no step, unless its note says so.
	 */
	int (*publish)(struct commit *c);
};
/* The draft gets the name of the step, or has it already and gets the marker. */
extern const struct commit_publisher publish_by_rename, publish_by_marker;

struct commit {
	struct ckpt *ckpt;
	struct draft_dir *draft;
	struct commit_item *items;
	size_t n_items;
	const char *custom;  /* JSON object for `_CHECKPOINT_METADATA`; NULL: {} */
	bool direct;         /* the only item is the checkpoint itself */
	unsigned dir_mode;   /* mode of new directories before the umask; 0: IO_DIR_MODE */
	bool replaces;       /* a checkpoint that has the final name is replaced (replace.h) */
	int64_t deadline_ns; /* monotonic; 0: none. -ETIMEDOUT if it passes before the rename */
	/*
	 * where the databases of ranks are, in directories with the names of the items; borrowed.
	 * NULL: in the draft
	 */
	struct io_dir *parts_in;
	/* the bytes of nodes written by merging are added to it; NULL: they are not counted */
	uint64_t *merged;
	/*
	 * Examines the finished draft before it becomes a step, and may add files (seal_file());
	 * NULL: nothing is done.
	 */
	int (*finish)(void *arg);
	void *finish_arg;
	const struct commit_publisher *publisher;
	void *publisher_arg; /* for one that publishes elsewhere; the draft remains as it is then */
};

/*
 * Returns 0 when the step exists and would survive a power loss. After an error the draft is as
 * before and may be changed and committed again. -EEXIST: a step of that name exists, and
 * `replaces` is not set.
 */
int commit_run(struct commit *c);
/*
 * Write a marker with the text that Orbax writes, which no reader parses. `where` is the directory
 * in the text, below source.
 */
int commit_write_marker(struct io_dir *dir, const struct io_dir *source, const char *where,
			const char *file);
/*
 * -ETIMEDOUT when the deadline of a commit, monotonic or 0 for none, has passed. Any thread may
 * call it.
 */
int commit_check_deadline(const char *final, int64_t deadline_ns);

/*
 * Delete a committed step. It is renamed first, so other processes see all of it or nothing. If the
 * rename cannot be made durable, it is undone, and the step remains. If that fails too, the whole
 * step remains under the new name, which the error contains.
 */
int commit_delete(struct ckpt *ckpt, const char *name);
/* Move a step to a directory in the same file system instead (todelete). */
int commit_move_away(struct ckpt *ckpt, const char *name, const char *to_dir);

#endif
