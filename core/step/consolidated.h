/* SPDX-License-Identifier: Apache-2.0 */
/*
 * consolidated.h - the copy of all metadata below a zarr group that zarr.consolidate_metadata()
 * puts into the group's `zarr.json` (v3) or into `.zmetadata` beside it (v2).
 */
#ifndef PYTREEFS_CONSOLIDATED_H
#define PYTREEFS_CONSOLIDATED_H

#include "core/base/json.h"

/* `name` is a path below the group, "" for the group itself; `doc` the copy of the metadata. */
typedef int consolidated_fn(void *arg, struct span name, bool is_array, const struct json *doc);

/*
 * Call fn for each array and group that a parsed `zarr.json` or `.zmetadata` names, until it fails.
 * Returns 1, or 0 if the document has no consolidated metadata; -EUCLEAN for a name that is none.
 */
int consolidated_each(const struct json *root, consolidated_fn *fn, void *arg);

#endif
