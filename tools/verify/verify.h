/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h - what the files of `pytreefs verify` share: findings, and what was looked at.
 *
 * Level 1: every record that can be read alone: metadata files, manifests, nodes of databases,
 * array metadata. Level 2: that they agree with each other. Level 3: every chunk decodes. A record
 * of a database is only found through others, so level 1 checks their references, too.
 */
#ifndef PYTREEFS_VERIFY_H
#define PYTREEFS_VERIFY_H

#include "tools/select/selection.h"

enum severity { SEVERITY_WARNING, SEVERITY_ERROR };

/* What was found. Texts are borrowed; leaf and file may be NULL. */
struct finding {
	enum severity severity;
	int level;
	const char *leaf; /* its path below SOURCE: "100/state/params/w.npy" */
	const char *file; /* below SOURCE */
	bool has_range;
	uint64_t off, len; /* in the file */
	const char *text;
};

struct verify {
	struct selection t;
	struct ckpt *ckpt;
	int level;
	bool json;
	uint64_t errors, warnings, n_drafts;
	struct buf drafts; /* names, each with a NUL */
	/* What was looked at. */
	uint64_t steps, items, leaves, chunks, stored_bytes, decoded_bytes;
	uint64_t missing;      /* chunks that are not stored, as the metadata allows */
	uint64_t unused_files; /* data files that no database refers to */
	/* Of stored_bytes: what no checksum covers. */
	uint64_t raw_bytes, unsummed_bytes;
	uint64_t unsummed_leaves; /* that have such bytes, or are text in a file without a checksum */
	uint64_t unopened_leaves; /* of which neither is known */
	/* Leaves whose values were compared with their SHA-256, and bytes of these. */
	uint64_t digest_leaves, digest_bytes;
	struct buf *packed; /* in a rank group: findings of a leaf go there, for rank 0 to report */
	bool pack_failed;
};

/* A finding as bytes; what a leaf has added to the counts since `was`, which ends a leaf's bytes. */
int verify_pack(const struct finding *f, struct buf *ret);
int verify_pack_counts(const struct verify *v, const struct verify *was, struct buf *ret);
/* Say and count what another rank has packed. -EIO: it is not that. */
int verify_unpack(struct verify *v, struct span packed);

/* Of one thread at a time. */
void verify_say(struct verify *v, const struct finding *f);
/* An error of level 1 or 2 about a file; text by printf. */
void verify_file(struct verify *v, int level, const char *file, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The failure r, whose note says what is wrong, about a file (and leaf, or NULL). */
void verify_failed(struct verify *v, int level, const char *leaf, const char *file, int r);
/*
 * The place that a text names: "btreenode:d/1f..:4096:812", "value:...", "file:PATH". dir is put in
 * front of the path. false: none. *ret is owned by the caller.
 */
bool verify_place(const char *text, const char *dir, struct finding *f, char **ret_file);
/* "a/b", or "b" when a is "." or "". Owned by the caller; NULL when memory is short. */
char *verify_join(const char *a, const char *b);

/* What an item that is a whole checkpoint says of itself: _CHECKPOINT_METADATA and its like. */
int verify_own_metadata(struct verify *v, const char *path);
/* A root, one step, one item: path below SOURCE. */
int verify_root(struct verify *v);
int verify_step(struct verify *v, const char *path);
int verify_item(struct verify *v, const char *path);

/* What the checks of an item know of it; all borrowed. */
struct array_metadatas;
struct verify_tree {
	struct item *item;  /* NULL when it cannot be opened */
	struct span *param; /* of all leaves, sorted */
	size_t n_params;
	struct array_metadatas **arrays; /* of array_metadatas/, one of a process */
	size_t n_arrays;
};

/* Whether a leaf has this name in the stored form. */
bool verify_is_param(const struct verify_tree *t, struct span name);
/* Whether a leading part of the key that ends before a '/', and is longer than that, is a leaf's. */
bool verify_has_owner(const struct verify_tree *t, struct span key, size_t longer_than);
/*
 * The file to blame for a leaf when nothing narrower is known: the first of the database, or the
 * one that has the array's metadata or the string, there or not. z: its array, NULL when it could
 * not be opened. Owned by the caller; NULL when memory is short.
 */
struct zarr;
char *verify_leaf_file(const struct verify_tree *t, const struct tree_node *leaf,
		       const struct zarr *z);
/* Over the leaves of an item, as --only says. */
int verify_walk(struct verify *v, const struct verify_tree *t, const struct walk_ops *ops,
		void *arg);
int verify_leaves(struct verify *v, const struct verify_tree *t);
/* `.sha256sums` of an item that could be opened, and the values of its leaves (verify_digest.c). */
int verify_digests(struct verify *v, const struct verify_tree *t);

#endif
