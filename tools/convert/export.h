/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - writes a checkpoint, or a part of one, as files of another format.
 *
 * For all formats, leaves are listed first, with types and shapes. So every position in the output
 * is known before any data is read, and several threads write at once.
 */
#ifndef PYTREEFS_EXPORT_H
#define PYTREEFS_EXPORT_H

#include "handlers/leaf/leaf.h"
#include "handlers/subtree/tree_manifest.h"
#include "tools/cli/cmd.h"
#include "tools/cli/parallel_for.h"
#include "tools/convert/atomic_file.h"
#include "tools/cli/progress.h"
#include "tools/job/group_work.h"
#include "tools/select/select.h"

enum export_format { EXPORT_UNKNOWN, EXPORT_NPY, EXPORT_NPZ, EXPORT_SAFETENSORS, EXPORT_ZARR };

/* Options that convert shares. */
/* Its arguments are further members of both. */
#define EXPORT_OPTIONS(...)                                                                    \
	{ "cast", 0, "DTYPE", "cast floating leaves (OUT is not a checkpoint)", __VA_ARGS__ }, \
	{                                                                                      \
		"max-shard-size", 0, "SIZE", "safetensors: shards of at most SIZE (5G)",       \
			__VA_ARGS__                                                            \
	}

struct export_leaf {
	const struct leaf_info *info;
	const char *path;        /* "state/params/w.npy" */
	struct array_type array; /* in the output */
	uint64_t bytes;          /* size of its elements in the output */
};

struct export
{
	struct cmd_args *a;
	struct select *only;
	struct source src;
	struct subtree st;
	struct leaf_table leaf_table;
	struct arena arena;       /* memory of paths */
	struct export_leaf *leaf; /* the leaves that --only selects */
	size_t n;
	const struct tree_node **left_out; /* keys that are named as arrays, and are none */
	size_t n_left_out;
	struct tree_manifest_casts casts;
	uint64_t max_shard; /* 0: one file */
	struct atomic_file out;
	struct progress progress;
	unsigned threads;
	struct rank_group *group; /* borrowed; NULL: one process does all */
};

/* Returns the format for the extension of a name. */
enum export_format export_format_of(const char *path);
/* The same for the name of a format: "npz". */
enum export_format export_format_by_name(const char *name);
/* The leaves that are exported, for the manifest. */
struct tree_manifest_only export_only(struct export *x);
/* Check that the options apply to that format: EXIT_OK, or EXIT_USAGE after a message. */
int export_check_options(const struct cmd_args *a, enum export_format format);
/*
 * Write the checkpoint, or the part of one, at path as out. The options have been checked. All
 * ranks of the group call this. Returns an exit status, or an error.
 */
int export_run(struct cmd_args *a, struct rank_group *group, const char *path, const char *out,
	       enum export_format format);

/*
 * Write a leaf in format ext at offset off of the file, through the worker's buffer. Continues crc
 * unless it is NULL. Messages name leaf and file.
 */
int export_leaf_write(struct export *x, const struct export_leaf *l, enum name_ext ext,
		      struct io_file *file, uint64_t off, struct worker *worker, uint32_t *crc);
/* Write a small file in the output's directory. */
int export_text(const struct export *x, const char *name, struct span text);
/* Create the directories of a path in the output's directory. */
int export_make_dirs(const struct export *x, const char *path);
/* Get "TEMP/path", which the caller owns. */
int export_path(const struct export *x, const char *path, char **ret);
/* Log the items that are left out since they are not trees. */
void export_remarks(struct export *x);

/*
 * Run n jobs of the given sizes on all ranks, if all agree (r) that the preparations have
 * succeeded. All ranks get the same result.
 */
int export_workers(struct export *x, int r, size_t n, const uint64_t *bytes, worker_fn *fn,
		   void *arg);

/*
 * One file each. The caller begins and commits the output. All ranks call these functions; rank 0
 * creates the files.
 */
int export_npy(struct export *x);
int export_npz(struct export *x);
int export_safetensors(struct export *x);
int export_zarr(struct export *x);

#endif
