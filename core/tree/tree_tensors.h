/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_tensors.h - the tree of a safetensors file.
 *
 * A file that `pytreefs export` wrote says in its metadata which of its tensors are numbers, which
 * containers are lists and so on (tools/convert/tree_manifest.h has the format); of any other file
 * only the names of its tensors are known.
 */
#ifndef PYTREEFS_TREE_TENSORS_H
#define PYTREEFS_TREE_TENSORS_H

#include "core/base/json.h"
#include "core/tree/tree.h"

/* The member of `__metadata__`, and of a zarr group's attributes, that has the manifest. */
#define TREE_MANIFEST_KEY "pytreefs"

/*
 * A tree whose arrays have their tensors' names as param. metadata: `__metadata__`, or NULL; when
 * it has a manifest, that says where each tensor stands, else names are split at the separator ("":
 * nowhere). Texts and None of a manifest are leaves, too. The arguments are not needed afterwards.
 * -EUCLEAN: a manifest that does not fit the format or the names.
 */
int tree_from_tensors(const struct span *names, size_t n, const struct json *metadata,
		      const char *separator, struct tree **ret);

#endif
