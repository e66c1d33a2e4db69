/*
 * structure.h - what safetensors, npz and zarr files cannot say of a tree, as one small JSON text inside
 * them: which containers are lists, which leaves are numbers, texts or None.
 *
 *     {"step": true,                         the paths begin with items
 *      "kinds": {"opt/0": "tuple", ...},     containers that are no dicts, and empty ones
 *      "leaves": {"KEY": "opt/0/n.json"},    leaves that are no arrays, or whose path does not follow
 *                                            from their key in the file
 *      "dtypes": {"opt/0/n.json": "int32"},  of numbers, and of arrays that .npy has no name for
 *      "texts": {"KEY": "..."},              strings, where the file has no other place for them
 *      "marks": {"PATH": {"key": [...], "prng_impl": "...", "typestr": "jax.Array"}, ...},
 *                                            other user.pytree.* of it
 *      "custom": {"": {...}}}                custom metadata of each item
 *
 * A file without it is a dict of dicts of arrays.
 */
#ifndef PYTREEFS_STRUCTURE_H
#define PYTREEFS_STRUCTURE_H

#include "tools/feeds.h"
#include "handlers/subtree.h"

/* Of a directory of leaves, which has xattrs for the rest: that the paths begin with items. */
#define STRUCTURE_STEP "user.pytree.step"
#define STRUCTURE_KEY "pytreefs"	/* of the metadata of a safetensors file, of a zarr group's attributes */

/* In an npz file whose comment is too short for it: where it is, said by the comment. */
#define NPZ_AT "at"
#define NPZ_BYTES "bytes"

/* A leaf's key in the file, appended: what comes between names, and whether names are escaped as in a mount. */
struct structure_style {
	const char *separator;
	bool is_path;			/* names as in the mount, joined by '/' */
	bool texts;			/* strings go into the structure, too */
};

/* Of the formats that we write. */
extern const struct structure_style style_safetensors, style_npz, style_zarr;

/*
 * The leaves that only (patterns, one a line; NULL: all) chooses, written with floating arrays cast
 * (DTYPE_UNKNOWN: as they are).
 */
int structure_print(const struct subtree *st, const char *only, enum dtype cast, const struct structure_style *style,
		    struct buf *ret);
/* What an array has become in the file. */
enum dtype structure_cast(enum dtype t, bool is_scalar, enum dtype cast);
/* The key of one leaf in the file. */
int structure_key(const struct subtree_part *part, const struct tree_node *leaf, const struct structure_style *style,
		  struct buf *ret);
/* The key that a name in the `~` form does not say, as JSON: 1; 0 for a name that says it. */
int structure_hidden_key(const struct tree_node *t, struct buf *ret);

/* ---- reading one ---- */

struct structure {
	struct json_doc doc;
	bool is_step;
};

/* text empty: none. -EUCLEAN. what: the file, for messages. */
int structure_parse(struct span text, const char *what, struct structure *ret);
void structure_release(struct structure *s);
#define auto_structure __attribute__((cleanup(structure_release))) struct structure

/* The path of a key: as it was recorded, or the key split at the separator with ".npy" behind it. */
int structure_path(const struct structure *s, struct span key, const struct structure_style *style, struct buf *ret);
/* The dtype of a number; DTYPE_UNKNOWN when it is not recorded. */
enum dtype structure_dtype(const struct structure *s, const char *path);
/* Directories, kinds, custom metadata, None leaves and texts; those that only chooses. */
int structure_feed(const struct structure *s, const char *from, const char *only, struct feeds *f);
#endif
