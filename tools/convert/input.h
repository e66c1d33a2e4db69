/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h - all inputs of `save` and `convert`: a checkpoint, a directory of leaves, a safetensors
 * file (or a directory of shards), an npz file, a zarr group of an export.
 */
#ifndef PYTREEFS_INPUT_H
#define PYTREEFS_INPUT_H

#include "core/commit/spill_dir.h"
#include "core/tree/tree_manifest_read.h"
#include "tools/cli/cmd.h"
#include "tools/convert/import_list.h"
#include "tools/select/select.h"
#include "tools/convert/zip.h"

enum input_kind {
	INPUT_UNKNOWN,
	INPUT_ORBAX,
	INPUT_FILES, /* a directory of .npy, .json, .txt and .null files */
	INPUT_LEAF,  /* one .npy file */
	INPUT_NPZ,
	/* Read as a checkpoint, but opened as they are: input_stage() applies what options show. */
	INPUT_SAFETENSORS,
	INPUT_ZARR, /* a group that an export made */
};

struct input {
	enum input_kind kind;
	const char *path;           /* borrowed */
	bool is_root;               /* for INPUT_ORBAX: a directory of steps */
	bool is_step;               /* the input has several items */
	bool is_foreign;            /* it is shown as a checkpoint, but another program wrote it */
	struct source source;       /* for INPUT_ORBAX, SAFETENSORS, ZARR */
	struct io_engine *spill_io; /* of the copy that source is, if it is one */
	struct spill_dir spill;
	struct subtree st;
	/* for NPZ: */
	struct tree_manifest tree_manifest;
	int fd;
	struct zip_reader zip;
};

/* Detect and open an input. -ENOENT, -EINVAL: the message says why it is not one. */
int input_open(struct cmd_args *a, const char *path, struct input *ret);
/*
 * If options show checkpoints in another way (transforms=, restore_dtype=), make an input of
 * another format a checkpoint that they show so.
 */
int input_stage(struct cmd_args *a, struct input *in, struct progress *progress);
/*
 * Add everything in the input to f, whose `at` is set. only: the patterns of --only, which choose
 * leaves of trees; NULL: all. Items that are not trees come along in either case, unless f says
 * otherwise.
 */
int input_list(struct input *in, struct select *only, struct import_list *f);
/*
 * Tell a draft what a program that copies the input would: which handler saved its items, and which
 * name patterns of options have for the tree.
 */
int input_hint(const struct input *in, struct draft *d);
void input_close(struct input *in);
#define auto_input __attribute__((cleanup(input_close))) struct input

/* Whether a path can be read, but is not a checkpoint. */
bool input_is_foreign(const char *path);
/* Whether a directory was made by an export, or is empty. */
bool input_is_export(const char *path);

/*
 * Open in->source, a checkpoint or what is read as one, and find its trees, as options show them;
 * as_is: without transforms=.
 */
int input_open_source(struct cmd_args *a, struct input *in, const char *path, bool as_is);
void input_close_source(struct input *in);

/* The listing of each kind of input, in its own file. */
int input_orbax_list(struct input *in, struct select *only, struct import_list *f);
int input_files_list(struct input *in, struct select *only, struct import_list *f);
int input_npz_open(struct input *in);
int input_npz_list(struct input *in, struct select *only, struct import_list *f);
/*
 * Add directories, kinds, custom metadata, None leaves and texts of a manifest that `only` selects.
 * from: the file, for messages.
 */
int import_manifest(const struct tree_manifest *s, const char *from, struct select *only,
		    struct import_list *f);

#endif
