/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h - anything that `save` and `convert` read: a checkpoint, a directory of leaves, a
 * safetensors file (or a directory of shards), an npz file, a zarr group.
 */
#ifndef PYTREEFS_INPUT_H
#define PYTREEFS_INPUT_H

#include "tools/cli/cmd.h"
#include "tools/convert/import_list.h"
#include "tools/convert/tree_manifest.h"
#include "tools/convert/zip.h"

enum input_kind {
	INPUT_UNKNOWN,
	INPUT_ORBAX,
	INPUT_FILES, /* a directory of .npy, .json, .txt and .null files */
	INPUT_LEAF,  /* one .npy file */
	INPUT_SAFETENSORS,
	INPUT_NPZ,
	INPUT_ZARR,
};

struct input {
	enum input_kind kind;
	const char *path;      /* borrowed */
	const char *separator; /* of the keys in the names of tensors; borrowed */
	bool is_root;          /* INPUT_ORBAX: a directory of steps */
	bool is_step;          /* it has items of its own */
	struct source source;  /* INPUT_ORBAX */
	struct subtree st;
	struct tree_manifest tree_manifest; /* SAFETENSORS, NPZ, ZARR */
	int *fd;                            /* open files */
	size_t n_fds;
	struct safetensors *shard; /* SAFETENSORS: one for each fd */
	struct zip_reader zip;     /* NPZ */
	struct ns *ns;             /* ZARR: what its arrays are read through */
};

/* What a path is; -ENOENT, -EINVAL say why it is nothing. */
int input_open(struct cmd_args *a, const char *path, struct input *ret);
/*
 * Everything in it into f, whose `at` is set. only: patterns of --only, or NULL. ret_leaves: how
 * many it chose.
 */
int input_list(struct input *in, struct select *only, struct import_list *f);
void input_close(struct input *in);
#define auto_input __attribute__((cleanup(input_close))) struct input

/* An fd that is closed with the input: its number, or -errno. */
int input_add_fd(struct input *in, const char *path);

/* Whether a path is something that can be read and is not a checkpoint. */
bool input_is_foreign(const char *path);
/* Whether a directory is what an export makes, or empty. */
bool input_is_export(const char *path);

/* Each kind in its own file. */
int input_orbax_list(struct input *in, struct select *only, struct import_list *f);
int input_files_list(struct input *in, struct select *only, struct import_list *f);
int input_safetensors_open(struct input *in);
int input_safetensors_list(struct input *in, struct select *only, struct import_list *f);
int input_npz_open(struct input *in);
int input_npz_list(struct input *in, struct select *only, struct import_list *f);
int input_zarr_open(struct input *in, struct cmd_args *a);
int input_zarr_list(struct input *in, struct select *only, struct import_list *f);

#endif
