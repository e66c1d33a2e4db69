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

/* Whether the last part of a path is the name of a safetensors file that is not hidden. */
static inline bool item_is_safetensors(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return *name != '.' && span_ends(span_str(name), span_str(".safetensors"));
}

/* The same of a file that is an item by itself: of safetensors, or of flax ("flax_model.msgpack"). */
static inline bool item_is_whole_file(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return item_is_safetensors(path) ||
	       (*name != '.' && span_ends(span_str(name), span_str(".msgpack")));
}

#endif
