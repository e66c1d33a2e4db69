/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - a checkpoint, or part of one, as files of another format.
 *
 * All formats: leaves are listed first, with types and shapes; so every place in the output is
 * known before any data is read, and several threads write at once.
 */
#ifndef PYTREEFS_EXPORT_H
#define PYTREEFS_EXPORT_H

#include "handlers/format/format.h"
#include "handlers/subtree/leaf_table.h"
#include "tools/cli/cmd.h"
#include "tools/cli/parallel_for.h"
#include "tools/convert/atomic_file.h"
#include "tools/cli/progress.h"
#include "tools/convert/tree_manifest.h"
#include "tools/job/group_work.h"

enum export_format { EXPORT_UNKNOWN, EXPORT_NPY, EXPORT_NPZ, EXPORT_SAFETENSORS, EXPORT_ZARR };

/* Options that convert has, too. */
#define EXPORT_OPTIONS                                                                  \
	{ "cast", 0, "DTYPE", "cast floating leaves (OUT is not a checkpoint)" },       \
	{                                                                               \
		"max-shard-size", 0, "SIZE", "safetensors: shards of at most SIZE (5G)" \
	}

struct export_leaf {
	const struct leaf_info *info;
	const struct subtree_part *part;
	const char *path; /* "state/params/w.npy" */
	enum dtype dtype; /* of an array in the output */
	uint64_t bytes;   /* of its elements there */
};

struct export
{
	struct cmd_args *a;
	struct select *only;
	struct source src;
	struct subtree st;
	struct leaf_table leaf_table;
	struct arena arena;       /* paths */
	struct export_leaf *leaf; /* that --only chose */
	size_t n;
	enum dtype cast;
	uint64_t max_shard; /* 0: one file */
	struct atomic_file out;
	struct progress progress;
	unsigned threads;
	struct rank_group *group; /* borrowed; NULL: one process does all */
};

/* By the ending of a name. */
enum export_format export_format_of(const char *path);
/* Whether the options of both commands mean something for that format: EXIT_OK, or EXIT_USAGE when
 * that was said. */
int export_check_options(const struct cmd_args *a, enum export_format format);
/* `pytreefs convert` to a file: exit status, or an error. */
int export_run(struct cmd_args *a, struct rank_group *group, const char *path, const char *out);

/*
 * Bytes of a leaf in format ext to the file at off, through the worker's buffer; crc is continued
 * when it is not NULL. Messages name leaf and file.
 */
int export_leaf_write(struct export *x, const struct export_leaf *l, enum name_ext ext,
		      struct io_file *file, uint64_t off, struct worker *worker, uint32_t *crc);
/* The leaf, cast as it is to be. */
int export_leaf_open(const struct export *x, const struct export_leaf *l, enum name_ext ext,
		     struct format *ret);
/* A small file in the output's directory. */
int export_text(const struct export *x, const char *name, struct span text);
/* Directories on the way to a path in the output's directory. */
int export_make_dirs(const struct export *x, const char *path);
/* "TEMP/path", owned by the caller. */
int export_path(const struct export *x, const char *path, char **ret);
/* Items that are not trees are left out, which is said. */
void export_remarks(struct export *x);

/*
 * n jobs of that many bytes each, shared by all ranks, when they agree (r) that what the jobs need
 * is there. The result is that of all.
 */
int export_workers(struct export *x, int r, size_t n, const uint64_t *bytes, worker_fn *fn,
		   void *arg);

/*
 * One file each. The output is begun and committed by the caller. Every rank calls it: what is to
 * be there once rank 0 makes.
 */
int export_npy(struct export *x);
int export_npz(struct export *x);
int export_safetensors(struct export *x);
int export_zarr(struct export *x);

#endif
