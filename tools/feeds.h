/*
 * feeds.h - what is to become a checkpoint: names, what names cannot say, and where the bytes come from.
 *
 * Inputs of every kind (input.h) are described here as the files that a mount would show; then all
 * of them are written into a draft at once, by several threads. Stored chunks are taken over as they
 * are where both sides store them alike.
 */
#ifndef PYTREEFS_FEEDS_H
#define PYTREEFS_FEEDS_H

#include "core/base/arena.h"
#include "core/zarr/dtype.h"
#include "handlers/draft.h"
#include "tools/progress.h"

struct zarr;
struct feed;
struct team;

/* One input file while it is read, by one thread, from its front to its end. */
struct feed_reading {
	const struct feed *feed;
	uint64_t size;			/* set by open() */
	struct zarr *array;		/* set by open(): the file is the .npy form of this; borrowed; or NULL */
	int fd;				/* of open() and close() */
	void *state;
};

struct feed_ops {
	int (*open)(struct feed_reading *rd);
	/* Bytes [off, off + n) of the file. */
	int (*read)(struct feed_reading *rd, uint64_t off, size_t n, void *p);
	void (*close)(struct feed_reading *rd);	/* after a successful open() */
};

struct feed {
	const char *path;		/* in the draft: "default/params/w.npy" */
	const char *from;		/* for messages: where it comes from */
	const struct feed_ops *ops;
	const void *arg;		/* of ops; lives as long as the feeds */
	uint64_t bytes;			/* for the progress bar */
	struct draft_node *node;	/* while they are written; NULL: another rank writes it */
	int owner;			/* which rank writes it */
};

struct feed_mark {
	const char *path, *name, *value;	/* name behind "user.pytree." */
};

struct feeds {
	struct arena arena;
	const char *at;			/* in front of every path: "default" or "" */
	bool any_leaf_type;		/* options decide what arrays are recorded as, not the input */
	const char **dir;
	struct feed *feed;
	struct feed_mark *mark;
	size_t n_dirs, cap_dirs, n, cap, n_marks, cap_marks;
};

void feeds_release(struct feeds *f);
#define auto_feeds __attribute__((cleanup(feeds_release))) struct feeds

/* Paths are copied; a directory on the way to a path is made without being asked for. */
int feeds_dir(struct feeds *f, const char *path);
int feeds_mark(struct feeds *f, const char *path, const char *name, const char *value);
int feeds_file(struct feeds *f, const char *path, const char *from, const struct feed_ops *ops, const void *arg,
	       uint64_t bytes);
/* A file whose text is at hand; it is copied. */
int feeds_text(struct feeds *f, const char *path, const char *from, struct span text);
/*
 * A range of a file on the disk that holds the elements of an array; the fd is the caller's and stays
 * open. The dtype is marked where an .npy header cannot say it.
 */
int feeds_array(struct feeds *f, const char *path, const char *from, int fd, uint64_t at, enum dtype t,
		unsigned rank, const uint64_t *shape, uint64_t bytes);
/* A file on the disk as it is. It is open only while it is read: there may be more of them than descriptors. */
int feeds_stored(struct feeds *f, const char *path, const char *file, uint64_t bytes);
/* The mark that an array's dtype needs, if any: its .npy header does not name it. */
int feeds_mark_dtype(struct feeds *f, const char *path, enum dtype t);
/* One element as the text of a .json leaf, with its dtype. */
int feeds_scalar(struct feeds *f, const char *path, const char *from, enum dtype t, const void *element);

/* Whether patterns of --only (one a line; NULL: all) choose a path, with extension or without. */
bool feeds_selects(const char *path, const char *only);

/*
 * Write all of them, shared by the ranks of a team (NULL: one process). Messages name leaf and input. Of a
 * team the result is that of all.
 */
int feeds_write(struct feeds *f, struct draft *d, unsigned threads, struct progress *progress, struct team *team);

/* Who writes which; -EIO: this rank sees other feeds than rank 0. All ranks call it (feeds_share.c). */
int feeds_share(struct feeds *f, struct team *team);

#endif
