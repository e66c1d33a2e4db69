/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import_list.h - what is to become a checkpoint: names, what names cannot say, and where the bytes
 * come from.
 *
 * Inputs of every kind (input.h) are described here as the files that a mount would show; then all
 * of them are written into a draft at once, by several threads. Stored chunks are taken over as
 * they are where both sides store them alike.
 */
#ifndef PYTREEFS_IMPORT_LIST_H
#define PYTREEFS_IMPORT_LIST_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"
#include "handlers/draft/draft.h"
#include "tools/cli/progress.h"

struct zarr;
struct import_entry;
struct rank_group;

/* One input file while it is read, by one thread, from its front to its end. */
struct import_reading {
	const struct import_entry *import_entry;
	uint64_t size;      /* set by open() */
	struct zarr *array; /* set by open(): the file is this as .npy; borrowed; or NULL */
	bool has_sha256;    /* set by open(): the input records this of the array's elements */
	uint8_t sha256[32];
	int fd; /* of open() and close() */
	void *state;
};

struct import_ops {
	int (*open)(struct import_reading *rd);
	/* Bytes [off, off + n) of the file. */
	int (*read)(struct import_reading *rd, uint64_t off, size_t n, void *p);
	void (*close)(struct import_reading *rd); /* after a successful open() */
};

struct import_entry {
	const char *path; /* in the draft: "default/params/w.npy" */
	const char *from; /* for messages: where it comes from */
	const struct import_ops *ops;
	const void *arg;         /* of ops; lives as long as the feeds */
	uint64_t bytes;          /* for the progress bar */
	struct draft_node *node; /* while they are written; NULL: another rank writes it */
	int owner;               /* which rank writes it */
};

struct import_mark {
	const char *path, *name, *value; /* name after "user.pytree." */
};

/* Charged to the meter: an input may name a million leaves. */
struct import_list {
	struct arena arena;
	uint64_t charged;    /* of the lists, and of what leaves become in a draft */
	uint64_t most;       /* of that; 0: as much as the meter has */
	const char *at;      /* in front of every path: "default" or "" */
	bool any_leaf_type;  /* options decide what arrays are recorded as, not the input */
	bool any_rich_types; /* the same for what tuples are recorded as */
	const char **dir;
	struct import_entry *import_entry;
	struct import_mark *mark;
	size_t n_dirs, cap_dirs, n, cap, n_marks, cap_marks;
};

void import_list_release(struct import_list *f);
#define auto_import_list __attribute__((cleanup(import_list_release))) struct import_list

/* Paths are copied; a directory on the way to a path is made without being asked for. */
int import_add_dir(struct import_list *f, const char *path);
int import_list_mark(struct import_list *f, const char *path, const char *name, const char *value);
int import_add_file(struct import_list *f, const char *path, const char *from,
		    const struct import_ops *ops, const void *arg, uint64_t bytes);
/* A file whose text is at hand; it is copied. */
int import_add_text(struct import_list *f, const char *path, const char *from, struct span text);
/*
 * A range of a file on the disk that holds the elements of an array; the fd is the caller's and
 * stays open. The dtype is marked where an .npy header cannot say it.
 */
int import_add_array(struct import_list *f, const char *path, const char *from, int fd, uint64_t at,
		     enum dtype t, unsigned rank, const uint64_t *shape, uint64_t bytes);
/* A file on the disk as it is. It is open only while it is read: there may be more of them than
 * descriptors. */
int import_add_stored(struct import_list *f, const char *path, const char *file, uint64_t bytes);
/* The mark that an array's dtype needs, if any: its .npy header does not name it. */
int import_list_mark_dtype(struct import_list *f, const char *path, enum dtype t);
/* One element as the text of a .json leaf, with its dtype. */
int import_add_scalar(struct import_list *f, const char *path, const char *from, enum dtype t,
		      const void *element);

/*
 * Write all of them, shared by the ranks of a group (NULL: one process). Messages name leaf and
 * input. In a group, each rank gets the worst result of all.
 */
int import_list_write(struct import_list *f, struct draft *d, unsigned threads,
		      struct progress *progress, struct rank_group *group);

/* Who writes which; -EIO: this rank sees other feeds than rank 0. All ranks call it
 * (import_share.c). */
int import_list_share(struct import_list *f, struct rank_group *group);

#endif
