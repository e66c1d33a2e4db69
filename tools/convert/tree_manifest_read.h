/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest_read.h - reads the manifest of a tree (handlers/subtree/tree_manifest.h) as entries
 * of an import list.
 */
#ifndef PYTREEFS_TREE_MANIFEST_READ_H
#define PYTREEFS_TREE_MANIFEST_READ_H

#include "handlers/subtree/tree_manifest.h"
#include "tools/convert/import_list.h"
#include "tools/select/select.h"

/* In a directory of leaves, whose xattrs have the rest: the paths begin with items. */
#define TREE_MANIFEST_STEP "user.pytree.step"

/* In an npz file whose comment is too short for the manifest: its position. */
#define NPZ_AT "at"
#define NPZ_BYTES "bytes"

/* For the other formats that export writes. */
extern const struct tree_manifest_style style_npz, style_zarr;

struct tree_manifest {
	struct json_doc doc;
	bool is_step;
};

/* Parse a manifest; an empty text is none. -EUCLEAN: malformed. what: the file, for messages. */
int tree_manifest_parse(struct span text, const char *what, struct tree_manifest *ret);
void tree_manifest_release(struct tree_manifest *s);
#define auto_tree_manifest __attribute__((cleanup(tree_manifest_release))) struct tree_manifest

/*
 * Get the path of a key: the recorded one, or the key split at the separator, followed by ".npy".
 */
int tree_manifest_path(const struct tree_manifest *s, struct span key,
		       const struct tree_manifest_style *style, struct buf *ret);
/* Returns the dtype of a number; DTYPE_UNKNOWN when it is not recorded. */
enum dtype tree_manifest_dtype(const struct tree_manifest *s, const char *path);
/* Add directories, kinds, custom metadata, None leaves and texts that `only` selects. */
int tree_manifest_import(const struct tree_manifest *s, const char *from, struct select *only,
			 struct import_list *f);
#endif
