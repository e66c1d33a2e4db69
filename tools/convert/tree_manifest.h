/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest.h - what safetensors, npz and zarr files cannot say of a tree, as one small JSON
 * text inside them: which containers are lists, which leaves are numbers, texts or None.
 *
 *     {"step": true,
 *      "kinds": {"opt/0": "tuple", ...},
 *      "leaves": {"KEY": "opt/0/n.json"},
 *      "dtypes": {"opt/0/n.json": "int32"},
 *      "texts": {"KEY": "..."},
 *      "marks": {"PATH": {"key": [...], "prng_impl": "...", "typestr": "jax.Array"},
 *                "TUPLE": {"namedtuple": {"module": ..., "clazz": ..., "fields": [...]}}},
 *      "custom": {"": {...}}}
 *
 * step: the paths begin with items. kinds: containers that are not dicts, and empty ones. leaves:
 * those that are not arrays, or whose path does not follow from their key in the file. dtypes: of
 * numbers, and of arrays that .npy has no name for. texts: strings, where the file has no other
 * place for them. marks: other user.pytree.* of a leaf or container. custom: custom metadata of
 * each item.
 *
 * A file without it is a dict of dicts of arrays.
 */
#ifndef PYTREEFS_TREE_MANIFEST_H
#define PYTREEFS_TREE_MANIFEST_H

#include "core/tree/tree_tensors.h"
#include "tools/convert/import_list.h"
#include "handlers/subtree/subtree.h"
#include "tools/select/select.h"

/* Of a directory of leaves, which has xattrs for the rest: that the paths begin with items. */
#define TREE_MANIFEST_STEP "user.pytree.step"

/* A leaf type, in "marks". */
#define JAX_ARRAY "jax.Array"

/* In an npz file whose comment is too short for it: where it is, said by the comment. */
#define NPZ_AT "at"
#define NPZ_BYTES "bytes"

/* A leaf's key in the file, appended: what comes between names, and whether names are escaped as in
 * a mount. */
struct tree_manifest_style {
	const char *separator;
	bool is_path; /* names as in the mount, joined by '/' */
	bool texts;   /* strings go into the structure, too */
};

/* Of the formats that we write. */
extern const struct tree_manifest_style style_safetensors, style_npz, style_zarr;

/*
 * The leaves that only (patterns, one a line; NULL: all) chooses, written with floating arrays cast
 * (DTYPE_UNKNOWN: as they are), piece after piece: strings may be long, and no two of them are in
 * memory at once.
 */
typedef int tree_manifest_put_fn(void *arg, struct span piece);
int tree_manifest_write(const struct subtree *st, struct select *only, enum dtype cast,
			const struct tree_manifest_style *style, tree_manifest_put_fn *put,
			void *arg);
/* The same as one text, charged to the meter. */
int tree_manifest_print(const struct subtree *st, struct select *only, enum dtype cast,
			const struct tree_manifest_style *style, struct buf *ret);
/* What an array has become in the file. */
enum dtype tree_manifest_cast(enum dtype t, bool is_scalar, enum dtype cast);
/* The key of one leaf in the file. */
int tree_manifest_key(const struct subtree_part *part, const struct tree_node *leaf,
		      const struct tree_manifest_style *style, struct buf *ret);
/* Where a key of a file would go that says nothing of its structure. */
int tree_manifest_default_path(struct span key, const struct tree_manifest_style *style,
			       struct buf *ret);
/* The key that a name in the `~` form does not say, as JSON: 1; 0 for a name that says it. */
int tree_manifest_hidden_key(const struct tree_node *t, struct buf *ret);

/* ---- reading one ---- */

struct tree_manifest {
	struct json_doc doc;
	bool is_step;
};

/* text empty: none. -EUCLEAN. what: the file, for messages. */
int tree_manifest_parse(struct span text, const char *what, struct tree_manifest *ret);
void tree_manifest_release(struct tree_manifest *s);
#define auto_tree_manifest __attribute__((cleanup(tree_manifest_release))) struct tree_manifest

/* The path of a key: as it was recorded, or the key split at the separator with ".npy" after it. */
int tree_manifest_path(const struct tree_manifest *s, struct span key,
		       const struct tree_manifest_style *style, struct buf *ret);
/* The dtype of a number; DTYPE_UNKNOWN when it is not recorded. */
enum dtype tree_manifest_dtype(const struct tree_manifest *s, const char *path);
/* Directories, kinds, custom metadata, None leaves and texts; those that only chooses. */
int tree_manifest_import(const struct tree_manifest *s, const char *from, struct select *only,
			 struct import_list *f);
#endif
