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
#include "handlers/subtree/leaf_table.h"

/* A leaf type, in "marks". */
#define JAX_ARRAY "jax.Array"

/*
 * The form of a leaf's key in a file: the separator of names, and whether names are escaped as in a
 * mount.
 */
struct tree_manifest_style {
	const char *separator;
	bool is_path; /* names as in the mount, joined by '/' */
	bool texts;   /* strings are in the manifest, too */
};

/*
 * For a safetensors file. With another separator, the manifest has the path of each leaf below the
 * top, since a reader splits names at this one.
 */
extern const struct tree_manifest_style style_safetensors;

/* How arrays are cast; DTYPE_UNKNOWN: they are not. */
struct tree_manifest_casts {
	int restore;     /* restore_dtype=: all arrays */
	enum dtype cast; /* --cast: floating-point arrays, instead */
	bool numbers;    /* cast numbers, too: in a safetensors file they are tensors */
};

/* The leaves that a file has. */
struct tree_manifest_only {
	/* Whether it is one of them; NULL: all are. */
	bool (*choose)(void *arg, const struct subtree_part *part, const struct tree_node *leaf);
	void *arg;
};

/*
 * Write the manifest for the leaves that are chosen, with arrays cast. It is written in pieces,
 * since strings may be long, so that only one of them is in memory at a time.
 */
typedef int tree_manifest_put_fn(void *arg, struct span piece);
int tree_manifest_write(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, tree_manifest_put_fn *put,
			void *arg);
/* The same as one text, charged to the meter. */
int tree_manifest_print(const struct subtree *st, struct tree_manifest_only only,
			const struct tree_manifest_casts *casts,
			const struct tree_manifest_style *style, struct buf *ret);
/* Whether a manifest says nothing: a plain dict of arrays needs none. */
bool tree_manifest_is_empty(struct span manifest);
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

#endif
