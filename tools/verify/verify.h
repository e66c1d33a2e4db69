/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - declarations shared by the files of `pytreefs verify`: findings and counts.
 *
 * Level 1: every record that can be read by itself: metadata files, manifests, nodes of databases,
 * array metadata. Level 2: the records agree with each other. Level 3: every chunk decodes. Records
 * of a database can only be found through others, so level 1 checks their references, too.
 */
#ifndef PYTREEFS_VERIFY_H
#define PYTREEFS_VERIFY_H

#include <pthread.h>

#include "tools/select/selection.h"

enum severity {
	SEVERITY_WARNING,
	SEVERITY_ERROR,
	SEVERITY_UNCHECKED, /* it is not known whether there is damage, as it could not be read */
	SEVERITY_REFUSED,   /* a warning: Orbax cannot restore what this program reads */
};

/* A finding. Texts are borrowed; leaf and file may be NULL. */
struct finding {
	enum severity severity;
	int level;
	const char *leaf; /* its path below SOURCE: "100/state/params/w.npy" */
	const char *file; /* below SOURCE */
	bool has_range;
	uint64_t off, len; /* in the file */
	const char *text;
	bool of_item; /* it concerns many leaves: reported once, without a leaf */
};

/*
 * A reported finding about a range of a file, or one of an item, which is not reported again for
 * other leaves.
 */
struct verify_repeat {
	char *file, *reason; /* owned */
	char *leaf;          /* the last leaf that it concerns; NULL: none */
	uint64_t off, len, leaves;
};

struct verify {
	struct selection t;
	struct ckpt *ckpt;
	int level;
	bool json;
	uint64_t errors, warnings, unchecked, n_drafts;
	uint64_t refused;  /* the part of warnings that are of SEVERITY_REFUSED */
	struct buf drafts; /* names, each followed by a NUL */
	/* Counts of what was checked. */
	uint64_t steps, items, leaves, chunks, stored_bytes, decoded_bytes;
	uint64_t missing;      /* chunks that are not stored, as the metadata allows */
	uint64_t unused_files; /* data files that no database refers to */
	/* Items that are not trees or JSON, and the entries of their directories: not looked at. */
	uint64_t opaque_items, opaque_files;
	uint64_t other_files; /* files and directories beside arrays and items: not looked at */
	/* The part of stored_bytes that no checksum covers. */
	uint64_t raw_bytes, unsummed_bytes;
	/* leaves with such bytes, or with a text in a file without a checksum */
	uint64_t unsummed_leaves;
	uint64_t unopened_leaves; /* leaves that could not be opened, so they count for neither */
	/* Number of leaves whose values were compared with their SHA-256, and of their bytes. */
	uint64_t digest_leaves, digest_bytes;
	struct verify_repeat *repeat;
	size_t n_repeats, cap_repeats;
	struct buf *packed; /* in a rank group: gets the findings of a leaf, for rank 0 to report */
	bool pack_failed;
};

/*
 * Returns SEVERITY_ERROR for damage, and SEVERITY_UNCHECKED for a failure that says nothing about
 * the stored data, such as -EACCES, or -EIO of a server.
 */
enum severity verify_severity(const struct verify *v, int r);
/* Append a finding; ret is unchanged on failure. */
int verify_pack(const struct finding *f, struct buf *ret);
/* Report what was packed, of that leaf; NULL: of the packed one. -EIO: malformed. */
struct wire;
int verify_unpack_findings(struct verify *v, const char *leaf, struct wire *w);
/*
 * End what is packed for rank 0: r is the result of a leaf whose findings went to v->packed, which
 * is ret, and the counts that it has added since `was` follow them. v->packed becomes NULL.
 */
int verify_pack_end(struct verify *v, int r, const struct verify *was, struct buf *ret);
/* Report and count what another rank has packed. -EIO: malformed. */
int verify_unpack(struct verify *v, struct span packed);

/*
 * Report a finding, unless the same was reported about the same range of a file: then only count
 * the leaf. Not thread-safe.
 */
void verify_say(struct verify *v, const struct finding *f);
void verify_repeats_release(struct verify *v);
/* Count what is abandoned, or still being written. */
int verify_draft(struct verify *v, const char *path, const char *name);
/* Report an error of level 1 or 2 about a file, with a formatted text. */
void verify_file(struct verify *v, int level, const char *file, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/*
 * Report the failure r, whose note has the text, about a file, as damage of level 1 or as something
 * not checked: 0. Returns r (-ENOMEM, -EINTR) if it says nothing of the file.
 */
int verify_failed(struct verify *v, const char *file, int r);
/*
 * Parse the place that a text names: "btreenode:d/1f..:4096:812", "value:...", "file:PATH". dir
 * becomes the prefix of the path. false: none. The caller owns *ret_file.
 */
bool verify_place(const char *text, const char *dir, struct finding *f, char **ret_file);
/* Returns "a/b", or "b" when a is "." or "". The caller frees it; NULL when memory is short. */
char *verify_join(const char *a, const char *b);

/*
 * Check the metadata of an item that is a whole checkpoint: _CHECKPOINT_METADATA and similar files.
 */
int verify_own_metadata(struct verify *v, const char *path);
/* Check a root, one step or one item, by its path below SOURCE. */
int verify_root(struct verify *v);
int verify_step(struct verify *v, const char *path);
/* named: a handler of Orbax for trees is recorded for the item. */
int verify_item(struct verify *v, const char *path, bool named);

/* The state of the checks of an item; all borrowed. */
struct array_metadatas;
struct zarr;
struct verify_tree {
	struct item *item;  /* NULL when it cannot be opened */
	struct span *param; /* of all leaves, sorted */
	size_t n_params;
	struct array_metadatas **arrays; /* one for each process, from array_metadatas/ */
	size_t n_arrays;
};

/* Check the databases of an item, which is NULL when it cannot be opened, in its directory. */
int verify_databases(struct verify *v, struct item *item, const char *path, struct io_dir *dir);
/* Whether this is the name of a leaf in the stored form. */
bool verify_is_param(const struct verify_tree *t, struct span name);
/*
 * Whether a prefix of the key that ends before a '/', and is longer than `longer_than`, is that of
 * a leaf.
 */
bool verify_has_owner(const struct verify_tree *t, struct span key, size_t longer_than);
/*
 * Returns the file to report for a leaf when the place is not known more exactly: the first one of
 * the database, or the one that has, or should have, the array's metadata or the string. z: its
 * array, NULL when it could not be opened. The caller frees it; NULL when memory is short.
 */
char *verify_leaf_file(const struct verify_tree *t, const struct tree_node *leaf,
		       const struct zarr *z);
/* Returns the path below SOURCE of a file of an item's arrays. The caller frees it; or NULL. */
char *verify_array_file(const struct item *item, const char *name);
/* Walk over the leaves of an item that --only selects. */
int verify_walk(struct verify *v, const struct verify_tree *t, const struct walk_ops *ops,
		void *arg);
int verify_leaves(struct verify *v, const struct verify_tree *t);
/*
 * Report what Orbax refuses of an item although its values can be read (verify_orbax.c).
 */
int verify_orbax(struct verify *v, const char *path, struct item *item, bool named);
/* Whether Orbax refuses the array of a leaf, or does not find it: appends why. */
bool verify_orbax_array(struct item *item, const struct tree_node *leaf, const struct zarr *z,
			struct buf *ret);
void verify_refused(struct verify *v, const char *file, const char *text);
/* Check the groups of an item that is a zarr hierarchy, at `path` below SOURCE. */
int verify_groups(struct verify *v, const char *path, const struct verify_tree *t);
/*
 * Check `.sha256sums` of an item that could be opened, and the values of its leaves
 * (verify_digest.c).
 */
int verify_digests(struct verify *v, const struct verify_tree *t);

/* ---- chunks ---- */

#define VERIFY_WINDOW (128 * MiB) /* window of a decoder for zstd's highest level */

struct verify_chunk {
	uint64_t stored; /* number of bytes; 0: the chunk is not stored */
	bool is_summed;  /* a checksum covers it: of the chunk, of its value, or of its node */
};

/*
 * Find a chunk, read it, check its decoded size, and compare the checksum that follows its value.
 * has_nodes: inline values are in nodes, which have checksums. large: held while a decoder uses a
 * large window.
 */
int verify_chunk(struct zarr *z, const uint64_t *index, struct walk_worker *worker,
		 pthread_mutex_t *large, bool has_nodes, struct verify_chunk *ret);

/* The objects of an array that are stored. */
struct verify_objects {
	uint64_t *object; /* their numbers in the grid, ascending */
	size_t n, cap;
	uint64_t grid;   /* number of objects that the array may have */
	bool is_guessed; /* the server cannot list: some of them may not exist */
	char *strange;   /* the first key that belongs to no chunk */
	uint64_t n_strange;
};

/*
 * ret must be zeroed, and needs a release on failure, too. On a server that cannot list, the first
 * objects of the grid, at most a million.
 */
int verify_objects_list(const struct verify_tree *t, struct zarr *z, struct verify_objects *ret);
void verify_objects_release(struct verify_objects *o);

#endif
