/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_model.h - a model of the disk after a power loss, for io_crash.c and crash_disk.c.
 *
 * The rules are those of POSIX: bytes and size of a file are durable after a sync of that file, a
 * name after a sync of its directory. A rename is one change if both names are in one directory,
 * else one change in each directory. A failed sync makes nothing durable, and the data that it
 * should have written counts as clean: only new writes, or new renames, make it durable.
 *
 * The model does not contain objects that were not changed.
 */
#ifndef PYTREEFS_CRASH_MODEL_H
#define PYTREEFS_CRASH_MODEL_H

#include "core/base/buf.h"

#define CRASH_SECTOR ((size_t)512) /* reaches the disk as a whole or not at all */

struct crash_node;
struct io_engine;

/* A name of a directory that was ever changed, and its object on the disk; NULL: none. */
struct crash_name {
	struct crash_name *next;
	char *name;
	struct crash_node *node;
};

/* One change of names that is not durable yet: up to two names, both or none. */
struct crash_change {
	struct crash_change *next;
	char *name[2];              /* [1] may be NULL */
	struct crash_node *node[2]; /* the objects after the change */
};

/* A file or directory that was changed, or whose name was. */
struct crash_node {
	struct crash_node *next;
	uint64_t dev, ino;
	bool is_dir;
	bool was_there; /* it existed before, so its name needs no sync */
	int fd;         /* a descriptor of the live file */
	/* For files. */
	bool touched; /* durable and dirty are meaningful */
	bool size_dirty;
	struct buf durable;
	uint8_t *dirty; /* a byte per sector of the live file */
	size_t n_dirty;
	/* For directories. */
	struct crash_name *names;
	struct crash_change *pending, **pending_end;
	/* Used when the disk is restored (crash_disk.c). */
	unsigned number;
	bool staged, placed;
};

struct crash_model {
	struct crash_node *nodes;
	unsigned n_nodes;
};

void crash_model_release(struct crash_model *m);
/* Returns the node of an inode, or NULL. */
struct crash_node *crash_find(struct crash_model *m, int fd);
/*
 * Get the node of an inode, made if necessary. The caller keeps fd. is_new: the file was just
 * created.
 */
int crash_node_of(struct crash_model *m, int fd, bool is_new, struct crash_node **ret);

/* Call before the first change of a file, to record its durable bytes. */
int crash_touch(struct crash_node *n);
/* Record that n bytes at off were written, or that the size was set. */
int crash_wrote(struct crash_node *n, uint64_t off, uint64_t len);
void crash_truncated(struct crash_node *n);
/* Record that a file or directory is durable. NULL is accepted: it was not changed. */
int crash_synced(struct crash_node *n);
/* Record a failed sync: a later sync does not make the lost bytes durable. */
void crash_sync_lost(struct crash_node *n);
/*
 * Record a change of a name: it is now that of node, and was that of `was` before. other may be
 * NULL, or a second name that changes with it.
 */
int crash_renamed(struct crash_node *dir, const char *name, struct crash_node *was,
		  struct crash_node *node, const char *other, struct crash_node *other_was,
		  struct crash_node *other_node);

enum crash_mode {
	CRASH_KEEP, /* everything has reached the disk by chance */
	CRASH_DROP, /* only synced changes have reached the disk */
	CRASH_TEAR, /* some changes have, sector by sector and name by name */
	CRASH_LOSE, /* a sync fails, and the power goes later */
};
/*
 * Make the disk after a power loss. seed: for random choices. No other thread may use these files.
 */
int crash_disk(struct crash_model *m, enum crash_mode mode, uint64_t seed, struct io_engine *below);

#endif
