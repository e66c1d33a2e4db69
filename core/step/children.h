/* SPDX-License-Identifier: Apache-2.0 */
/*
 * children.h - the entries of a directory, and which of them are directories.
 */
#ifndef PYTREEFS_CHILDREN_H
#define PYTREEFS_CHILDREN_H

#include "core/io/io.h"

struct child {
	char *name;
	unsigned char type; /* DT_*, as it was listed */
	bool is_dir;        /* links are followed */
	bool may_be_dir; /* is_dir, or with `all`: it cannot be examined now, or by this process */
	bool leads_out;  /* a link that is not followed: a file that cannot be opened */
};

struct children {
	struct io_dir *dir;
	const char *rel;
	bool all;
	struct child *child; /* in the order of the directory */
	size_t n, cap;
};

/*
 * List rel in dir; both are borrowed. A link to nowhere, or an entry that cannot be examined, is
 * left out, or with `all` it counts as a file (but see may_be_dir). Without `all`, errors that a
 * retry may overcome are returned. Release the result, also after an error.
 */
int children_list(struct io_dir *dir, const char *rel, bool all, struct children *ret);
/* Directories have no order: sort by name. */
void children_sort(struct children *c);
/* Whether there is a directory, or a file, of that name. */
bool children_has(const struct children *c, const char *name, bool is_dir);
void children_release(struct children *c);
#define auto_children __attribute__((cleanup(children_release))) struct children
/*
 * The type of the entry at path in dir: DT_DIR, DT_REG or DT_UNKNOWN; of a link, that of its
 * target. type: as it was listed.
 */
unsigned char child_type(struct io_dir *dir, const char *path, unsigned char type);

#endif
