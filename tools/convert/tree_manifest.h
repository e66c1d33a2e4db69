/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest.h - the properties of a tree that safetensors, npz and zarr files cannot express,
 * as a JSON text in these files: containers that are lists, leaves that are numbers, texts or None.
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
 * numbers, and of arrays whose dtype .npy cannot express. texts: strings, if the file has no other
 * place for them. marks: other user.pytree.* attributes of a leaf or container. custom: custom
 * metadata of each item, and under "" those of the step.
 *
 * A file without it is a dict of dicts of arrays.
 */
#ifndef PYTREEFS_TREE_MANIFEST_H
#define PYTREEFS_TREE_MANIFEST_H

#include "core/tree/tree_tensors.h"
#include "tools/convert/import_list.h"
#include "handlers/subtree/subtree.h"
#include "tools/select/select.h"

/* In a directory of leaves, whose xattrs have the rest: the paths begin with items. */
#define TREE_MANIFEST_STEP "user.pytree.step"

/* A leaf type, in "marks". */
#define JAX_ARRAY "jax.Array"

/* In an npz file whose comment is too short for the manifest: its position. */
#define NPZ_AT "at"
#define NPZ_BYTES "bytes"

/*
 * The form of a leaf's key in a file: the separator of names, and whether names are escaped as in a
 * mount.
 */
struct tree_manifest_style {
	const char *separator;
	bool is_path; /* names as in the mount, joined by '/' */
	bool texts;   /* strings are in the manifest, too */
};

/* For the formats that export writes. */
extern const struct tree_manifest_style style_safetensors, style_npz, style_zarr;

/* How arrays are cast; DTYPE_UNKNOWN: they are not. */
struct tree_manifest_casts {
	int restore;     /* restore_dtype=: all arrays */
	enum dtype cast; /* --cast: floating-point arrays, instead */
};

/*
 * Write the manifest for the leaves that `only` selects (NULL: all), with arrays cast. It is
 * written in pieces, since strings may be long, so that only one of them is in memory at a time.
 */
typedef int tree_manifest_put_fn(void *arg, struct span piece);
int tree_manifest_write(const struct subtree *st, struct select *only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, tree_manifest_put_fn *put,
			void *arg);
/* The same as one text, charged to the meter. */
int tree_manifest_print(const struct subtree *st, struct select *only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, struct buf *ret);
/* Replace the stored dtype of an array by the one in the file. */
int tree_manifest_cast(struct item *item, const struct tree_node *leaf, bool is_scalar,
		       const struct tree_manifest_casts *casts, enum dtype *dtype);
/* Get the key of a leaf in the file. */
int tree_manifest_key(const struct subtree_part *part, const struct tree_node *leaf,
		      const struct tree_manifest_style *style, struct buf *ret);
/* Get the path for a key of a file without a manifest. */
int tree_manifest_default_path(struct span key, const struct tree_manifest_style *style,
			       struct buf *ret);
/* Get the key of a shortened name (`~`) as JSON: 1; 0: the name contains its key. */
int tree_manifest_hidden_key(const struct tree_node *t, struct buf *ret);

/* ---- parsing ---- */

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
