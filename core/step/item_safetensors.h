/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_safetensors.h - names of safetensors files, and of other files that are items.
 */
#ifndef PYTREEFS_ITEM_SAFETENSORS_H
#define PYTREEFS_ITEM_SAFETENSORS_H

#include "core/base/buf.h"

/* The file that says in which shard of a model a tensor is, and the only file of one without. */
#define ITEM_SHARDS_INDEX "model.safetensors.index.json"
#define ITEM_SHARDS_FILE "model.safetensors"

/* Whether the last part of a path ends so, and is not hidden. */
static inline bool item_ends_with(const char *path, const char *extension)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return *name != '.' && span_ends(span_str(name), span_str(extension));
}

/* Whether it is the name of a safetensors file. */
static inline bool item_is_safetensors(const char *path)
{
	return item_ends_with(path, ".safetensors");
}

/* Whether it is that of a file which is an item by itself: of safetensors, or of flax. */
static inline bool item_is_whole_file(const char *path)
{
	return item_is_safetensors(path) || item_ends_with(path, ".msgpack");
}

/*
 * Parse the end of a file's name, "model-00001-of-00002.safetensors": the number of such files, or
 * 0; with the length of what is before the first number, and of the numbers.
 */
unsigned item_shards_of(const char *name, unsigned *ret_stem, unsigned *ret_width);
struct io_dir;
/*
 * Append the names of the files of a model in a directory, each followed by a NUL, in their order:
 * those that ITEM_SHARDS_INDEX names; without one all .safetensors files, or ITEM_SHARDS_FILE where
 * nothing can be listed. -EINVAL: there are none.
 */
int safetensors_files(struct io_dir *dir, struct buf *ret);

#endif
