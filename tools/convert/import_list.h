/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_list.h - the input of a new checkpoint: names, xattrs, and sources of bytes.
 *
 * All kinds of inputs (input.h) are described as the files that a mount would show. Then all
 * entries are written into a draft by several threads. Stored chunks are moved unchanged if both
 * sides store them alike.
 */
#ifndef PYTREEFS_IMPORT_LIST_H
#define PYTREEFS_IMPORT_LIST_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"
#include "handlers/draft/draft.h"
#include "tools/cli/progress.h"

struct zarr;
struct placement;
struct import_entry;
struct rank_group;

/* An input file that one thread reads from front to back. */
struct import_reading {
	const struct import_entry *import_entry;
	uint64_t size; /* set by open() */
	/* set by open(): the array whose .npy file this is; borrowed; or NULL */
	struct zarr *array;
	bool has_sha256; /* set by open(): the input records this SHA-256 of the array's elements */
	uint8_t sha256[32];
	int fd; /* for open() and close() */
	void *state;
};

struct import_ops {
	int (*open)(struct import_reading *rd);
	/* Read bytes [off, off + n) of the file. */
	int (*read)(struct import_reading *rd, uint64_t off, size_t n, void *p);
	void (*close)(struct import_reading *rd); /* after a successful open(); NULL: nothing */
};

struct import_entry {
	const char *path; /* in the draft: "default/params/w.npy" */
	const char *from; /* source of the bytes, for messages */
	const struct import_ops *ops;
	const void *arg;         /* for ops; must outlive the list */
	uint64_t bytes;          /* for the progress bar */
	struct draft_node *node; /* set during the write; NULL: another rank writes it */
	int owner;               /* the rank that writes it */
};

/*
 * A hint about a copied tree, see handlers/plan/copy_hints.h: its generated file, or its format.
 */
struct import_hint {
	const char *dir, *file; /* the directory in the draft, and the path of the copy, or NULL */
	bool ocdbt, zarr3;
};

struct import_mark {
	const char *path, *name, *value; /* name: without the prefix "user.pytree." */
};

/* Charged to the meter, since an input may have a million leaves. */
struct import_list {
	struct arena arena;
	uint64_t charged;   /* memory of the lists, and estimated memory of the leaves in a draft */
	uint64_t most;      /* limit for `charged`; 0: that of the meter */
	const char *at;     /* prefix of every path: "default" or "" */
	int restore_dtype;  /* arrays of checkpoints are cast to it; DTYPE_UNKNOWN: they are not */
	bool any_leaf_type; /* options determine the recorded type of arrays, not the input */
	bool any_rich_types; /* options determine the recorded type of tuples, not the input */
	bool is_step;        /* the input has items */
	bool no_items;       /* those of them that are not trees are left out */
	bool has_others;     /* there are files beside arrays or items, which may have any name */
	struct placement *placement; /* chunks and shardings of all arrays; NULL: none */
	const char **dir;
	const char **left;  /* paths of leaves that --only did not choose */
	const char **whole; /* directories whose contents are not subject to --only */
	struct import_entry *import_entry;
	struct import_mark *mark;
	struct import_hint *hint;
	size_t n_left, cap_left, n_whole, cap_whole;
	size_t n_dirs, cap_dirs, n, cap, n_marks, cap_marks, n_hints, cap_hints;
};

void import_list_release(struct import_list *f);
#define auto_import_list __attribute__((cleanup(import_list_release))) struct import_list

/* Add a directory. Paths are copied; missing parent directories are created. */
int import_add_dir(struct import_list *f, const char *path);
int import_list_mark(struct import_list *f, const char *path, const char *name, const char *value);
int import_list_mark_span(struct import_list *f, const char *path, const char *name,
			  struct span value);
int import_list_mark_shape(struct import_list *f, const char *path, const char *name,
			   const uint64_t *shape, unsigned rank);
int import_add_file(struct import_list *f, const char *path, const char *from,
		    const struct import_ops *ops, const void *arg, uint64_t bytes);
/* Add a file with a given text, which is copied. */
int import_add_text(struct import_list *f, const char *path, const char *from, struct span text);
/*
 * Add a file on disk unchanged. It is only open while it is read, since there may be more files
 * than descriptors.
 */
int import_add_stored(struct import_list *f, const char *path, const char *file, uint64_t bytes);
/* Add an xattr for the dtype of an array if its .npy header cannot express it. */
int import_list_mark_dtype(struct import_list *f, const char *path, enum dtype t);
/* Leave out a leaf that --only did not choose: its containers may be incomplete then. */
int import_list_leave_out(struct import_list *f, const char *path);
/* Take everything below a directory, whatever --only says. */
int import_list_keep(struct import_list *f, const char *path);
/*
 * With --only, after all entries were added or left out: drop containers without an entry below
 * them, and the kinds of those that lack a leaf (import_choice.c).
 */
int import_list_choose(struct import_list *f);
/* Take the copied `_METADATA` or `_CHECKPOINT_METADATA` of a directory as a hint. */
int import_list_hint(struct import_list *f, const char *path, const char *file);
/* Let the item of that path keep a format where no option says otherwise. */
int import_list_format(struct import_list *f, const char *path, bool ocdbt, bool zarr3);
/* Add one element as the text of a .json leaf, with its dtype. */
int import_add_scalar(struct import_list *f, const char *path, const char *from, enum dtype t,
		      const void *element);

/*
 * Write all entries. The ranks of a group (NULL: one process) share them. Messages name leaf and
 * input. In a group, each rank gets the worst result of all.
 */
int import_list_write(struct import_list *f, struct draft *d, unsigned threads,
		      struct progress *progress, struct rank_group *group);

/* Append a whole file. -EFBIG: it has more than max bytes. */
int import_read_file(const char *file, size_t max, struct buf *ret);
/* Make the names of the entries of this rank, and their xattrs (import_names.c). */
int import_list_make_names(struct import_list *f, struct draft *d, const struct rank_group *group);
/*
 * Assign the entries to ranks. -EIO: this rank has other entries than rank 0. All ranks call it
 * (import_share.c).
 */
int import_list_share(struct import_list *f, struct rank_group *group);

#endif
