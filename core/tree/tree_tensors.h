/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_tensors.h - the tree of a safetensors file, or of a zarr group with a manifest.
 *
 * In a file that `pytreefs export` wrote, the metadata says which tensors are numbers, which
 * containers are lists and so on (tree_manifest_read.h has the format). Of any other file, only the
 * names of its tensors are known.
 */
#ifndef PYTREEFS_TREE_TENSORS_H
#define PYTREEFS_TREE_TENSORS_H

#include "core/tree/tree.h"
#include "core/tree/tree_manifest_read.h"

/*
 * Build a tree whose arrays have the names of their tensors as param. metadata is `__metadata__`,
 * or NULL. Its manifest, if any, gives the place of each tensor; otherwise names are split at the
 * separator ("": nowhere). Texts and None of a manifest become leaves, too. The arguments are not
 * needed afterwards. -EUCLEAN: a manifest that breaks the format or does not match the names.
 */
int tree_from_tensors(const struct span *names, size_t n, const struct json *metadata,
		      const char *separator, struct tree **ret);
/*
 * The same for a zarr group that `pytreefs export` wrote: the names are paths of arrays below it,
 * and the manifest, an object, also has the texts.
 */
int tree_from_group(const struct span *names, size_t n, const struct json *manifest,
		    struct tree **ret);
/* Both, of a manifest that was checked, with the texts of its leaves by their keys. */
int tree_from_manifest(const struct span *names, size_t n, const struct tree_manifest *manifest,
		       const struct tree_manifest_style *style, const struct json *texts,
		       struct tree **ret);
/* Get the implementation of the random keys of a leaf that a manifest names: 1, or 0. */
int tree_key_impl(const struct tree *tree, struct span param, struct span *ret);
/*
 * Append `__metadata__` of the n files of a model, without what is of the format or of us, as one
 * JSON object in Python's spelling; nothing if that leaves nothing. Each text is an object, or
 * NULL. Of a name in several files the first one counts.
 */
int tensors_custom(const char *const *metadata, size_t n, struct buf *ret);
/* Append one member to that object, or begin it; the caller ends it with '}'. */
int tensors_add_custom(const struct json *m, struct buf *ret);

#endif
