/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest_read.h - reads a manifest: the properties of a tree that safetensors, npz and zarr
 * files cannot express, as a JSON text in these files: containers that are lists, leaves that are
 * numbers, texts or None.
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
 * A file without it is a dict of dicts of arrays. handlers/subtree/tree_manifest.h prints it,
 * tree_tensors.h makes a tree of it, and tools/convert/input_npz.c the entries of an import.
 */
#ifndef PYTREEFS_TREE_MANIFEST_READ_H
#define PYTREEFS_TREE_MANIFEST_READ_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/dtype/dtype.h"

struct tree_type;

/* The member of `__metadata__`, and of a zarr group's attributes, that has the manifest. */
#define TREE_MANIFEST_KEY "pytreefs"
/* The manifest in messages that name no file. */
#define TREE_MANIFEST_WHAT "the manifest of the tree"
/* Instead of "step", the xattr of a directory of leaves. */
#define TREE_MANIFEST_STEP "user.pytree.step"
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
/* For npz files and zarr groups. */
extern const struct tree_manifest_style style_paths;

/* A manifest that was checked: each member is an object of texts or objects, or NULL. */
struct tree_manifest {
	struct json_doc doc; /* empty: there is none, or it is a part of another document */
	const struct json *kinds, *leaves, *dtypes, *texts, *marks, *custom;
	bool is_step;
};

/* Parse a manifest. -EUCLEAN: malformed. what: the file, for messages. */
int tree_manifest_parse(struct span text, const char *what, struct tree_manifest *ret);
/* The same for a member of another document, which is borrowed. */
int tree_manifest_of(const struct json *manifest, const char *what, struct tree_manifest *ret);
void tree_manifest_release(struct tree_manifest *s);
#define auto_tree_manifest __attribute__((cleanup(tree_manifest_release))) struct tree_manifest

/*
 * Get the path of a key: the recorded one, or the key split at the separator, followed by ".npy".
 */
int tree_manifest_path(const struct tree_manifest *s, struct span key,
		       const struct tree_manifest_style *style, struct buf *ret);
/* The latter, which is that of a file without a manifest. */
int tree_manifest_default_path(struct span key, const struct tree_manifest_style *style,
			       struct buf *ret);
/* Returns the dtype of a number; DTYPE_UNKNOWN when it is not recorded. */
enum dtype tree_manifest_dtype(const struct tree_manifest *s, const char *path);
/* Returns a mark of the leaf or container at a path, or NULL. */
const struct json *tree_manifest_mark(const struct tree_manifest *s, struct span path,
				      const char *name);
/*
 * Get the type that a mark "namedtuple" describes, in the arena. The mark's fields are an array;
 * without a class it is the order of a dict.
 */
int tree_type_of_json(const struct json *mark, const char *what, struct arena *arena,
		      const struct tree_type **ret);

#endif
