/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_model.h - what a disk would still have if the power went now. For io_crash.c and
 * crash_disk.c.
 *
 * Rules, as POSIX gives them and no better: the bytes and the size of a file are
 * durable after a sync of that file, a name after a sync of the directory that it
 * is in. A rename is one change where both names are in one directory, else one
 * in each of the two. A sync that failed has made nothing durable, and what it
 * was to write counts as written: only new writes, or new renames, help.
 *
 * Objects that nobody changed are not known here: they are what they are.
 */
#ifndef PYTREEFS_CRASH_MODEL_H
#define PYTREEFS_CRASH_MODEL_H

#include "core/base/buf.h"

#define CRASH_SECTOR ((size_t)512) /* reaches the disk as a whole or not at all */

struct crash_node;
struct io_engine;

/* A name of a directory that was ever changed, and what the disk has there; NULL: nothing. */
struct crash_name {
	struct crash_name *next;
	char *name;
	struct crash_node *node;
};

/* One change of names that is not durable yet: up to two names, both or none. */
struct crash_change {
	struct crash_change *next;
	char *name[2];              /* [1] may be NULL */
	struct crash_node *node[2]; /* what is there afterwards */
};

/* A file or directory that was changed, or whose name was. */
struct crash_node {
	struct crash_node *next;
	uint64_t dev, ino;
	bool is_dir;
	bool was_there; /* not made by us: its name needs no sync */
	int fd;         /* of what lives under that inode now */
	/* Files. */
	bool touched; /* durable and dirty are meaningful */
	bool size_dirty;
	struct buf durable;
	uint8_t *dirty; /* a byte per sector of what lives */
	size_t n_dirty;
	/* Directories. */
	struct crash_name *names;
	struct crash_change *pending, **pending_end;
	/* While the disk is put back (crash_disk.c). */
	unsigned number;
	bool staged, placed;
};

struct crash_model {
	struct crash_node *nodes;
	unsigned n_nodes;
};

void crash_model_release(struct crash_model *m);
/* The node of an inode, or NULL. */
struct crash_node *crash_find(struct crash_model *m, int fd);
/* The same, made when it is not known. fd stays the caller's. is_new: made by us just now. */
int crash_node_of(struct crash_model *m, int fd, bool is_new, struct crash_node **ret);

/* Before the first change of a file: remember what the disk has. */
int crash_touch(struct crash_node *n);
/* n bytes at off were written; or the size was set. */
int crash_wrote(struct crash_node *n, uint64_t off, uint64_t len);
void crash_truncated(struct crash_node *n);
/* A file or directory is durable. NULL is accepted: nothing was changed. */
int crash_synced(struct crash_node *n);
/* Its sync failed: what was not durable will not be by another one. */
void crash_sync_lost(struct crash_node *n);
/*
 * The name of dir is (after the change) node's; was: what it was before. other may be NULL, or a
 * second name that changes with it.
 */
int crash_renamed(struct crash_node *dir, const char *name, struct crash_node *was,
		  struct crash_node *node, const char *other, struct crash_node *other_was,
		  struct crash_node *other_node);

enum crash_mode {
	CRASH_KEEP, /* everything had reached the disk by chance */
	CRASH_DROP, /* nothing that was not synced had */
	CRASH_TEAR, /* some of it had, sector by sector and name by name */
	CRASH_LOSE, /* a sync fails; the power goes later */
};
/*
 * Make the disk what it would be. seed: of the choice what had reached it. Nothing else works on
 * these files meanwhile.
 */
int crash_disk(struct crash_model *m, enum crash_mode mode, uint64_t seed, struct io_engine *below);

#endif
