/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - committed steps: the names of a root that are steps, and their
 * times.
 */
#ifndef PYTREEFS_STEP_H
#define PYTREEFS_STEP_H

#include "core/io/io.h"

/* The time of the commit: commit_timestamp_nsecs of the metadata, or the mtime of the directory. */
int step_mtime(struct io_dir *dir, struct timespec *ret);

/* One child of a root that is a committed step. */
struct step_entry {
	char *name;
	bool is_file; /* a flax checkpoint, which is one file */
};

struct step_list {
	struct step_entry *entry; /* ascending by number, then by name */
	size_t n, cap;
	size_t n_others; /* checkpoints with names of another form, which are left out */
	char *other;     /* the name of one of them */
};

/*
 * List the steps of a root, as Orbax does with the prefix of that root. It is recorded nowhere:
 * where names have several prefixes, those count of which one is a checkpoint, and of these the
 * empty one, or else that of the most steps. Of names with one prefix those count that most have
 * the form of: as many zeros in front as a fixed width needs, or none. No name is opened for that.
 * need_marker: only directories with commit_success.txt (atomicity=commit_file). show_tmp: also
 * temporary directories. Free with step_list_release().
 */
int step_list(struct io_dir *root, bool need_marker, bool show_tmp, struct step_list *ret);
void step_list_release(struct step_list *l);
#define auto_step_list __attribute__((cleanup(step_list_release))) struct step_list
/*
 * Get the name of the latest step in a list, allocated; -ENOENT, without a note: the list has none
 * that is a checkpoint.
 */
int step_latest(struct io_dir *root, const struct step_list *l, bool need_marker, char **ret);
/*
 * Get the name of the step that a user means by a name that is not one of the root: "latest", or
 * the number, with the prefix or without it ("8", "step_8" for step_000008). Allocated; -ENOENT,
 * without a note: there is none.
 */
int step_meant(struct io_dir *root, struct span typed, bool need_marker, char **ret);
/*
 * Check the name of a step to be made or deleted: 0 if it is a step's in Orbax (step_name_check()),
 * or if it is a whole number after the prefix that the steps of the root have ("step-11" beside
 * "step-10"); else -EINVAL with the reason.
 */
int step_check_name(struct io_dir *root, struct span name, bool need_marker);
/*
 * Check the name of a new step: 0, or -EINVAL if it would hide the steps of the root, which have a
 * prefix, where it has none; the message has the name that would be right. What is not a root takes
 * any name, as does one for names that no step has in Orbax ("model1"), or whose only names are
 * such, but for a bare number.
 */
int step_check_new(struct io_dir *root, struct span name, bool need_marker);
/* Whether there is a commit_success.txt in the directory of that name: 1 or 0. */
int step_has_marker(struct io_dir *root, const char *name);
/*
 * Whether a step of a root, or an item of a step, is not just being copied to a bucket that is
 * mounted (core/commit/step_copy.h): 1 or 0.
 */
int step_is_whole(struct io_dir *root, const char *name);
/* Whether the root has a step or a temporary directory: 1 or 0. Looks no further than the first. */
int step_any(struct io_dir *root);
/*
 * Whether one name in the root is a step that is listed, or a checkpoint with a name like one: 1,
 * with its stat in st, or 0.
 */
int step_find(struct io_dir *root, struct span name, bool need_marker, bool show_tmp,
	      struct stat *st);

#endif
