/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item.h - an opened PyTree item: its tree and the store of its arrays.
 *
 * Immutable once opened, and counted: nodes and open files of the mount hold it.
 */
#ifndef PYTREEFS_ITEM_H
#define PYTREEFS_ITEM_H

#include <pthread.h>

#include "core/base/refusal.h"
#include "core/step/access.h"
#include "core/step/ckpt.h"
#include "core/step/document.h"

/* One directory or file at one time: inode numbers are used again, so the time of change counts
 * too. */
struct file_id {
	dev_t dev;
	ino_t ino;
	struct timespec ctime;
};

/* How the ranks of a job speak of an array: this, and then the item's path. */
struct item_address {
	uint64_t dev, ino;
	int64_t ctime_s, ctime_ns;
	uint64_t leaf;
};

/* Cached result of the access check, and its time. */
struct item_access_cache {
	struct access top, files;
	int64_t top_at, files_at, files_took;
	bool has_leaf_dirs; /* known with files */
};

struct array_metadatas;
struct digests;
struct shardings;
struct strings;

struct item {
	struct ckpt *ckpt;     /* borrowed */
	struct io_dir *within; /* that path is below; borrowed */
	char *path;            /* below SOURCE: "100/default", "." */
	struct io_dir *dir;    /* of the file's directory for a flax file */
	struct file_id id;     /* of what was opened */
	struct kv *kv;         /* arrays: the database, or the directory */
	struct kv *dirs;       /* arrays as directories, when kv is a database; else NULL */
	struct tree *tree;
	struct kv **
		made; /* what sources of leaves (tree_node.source) gave, by id; protected by lock */
	bool is_ocdbt, is_unmerged, is_aggregate;
	bool is_file;                   /* a flax or safetensors file, not a directory */
	struct io_file *aggregate;      /* the legacy file, when there is one */
	struct document aggregate_text; /* of it, mapped or read */
	uint64_t owner;                 /* of its arrays in the cache */
	bool missing_is_error;          /* the document says that every chunk is stored */
	uint64_t n_arrays;              /* leaves that are arrays, scalars or strings */
	atomic_uint refs;
	pthread_mutex_t access_lock; /* protects access, and the same of the nodes of leaves */
	struct item_access_cache access;

	/* Read when first asked for; protected by lock until then, immutable after. */
	pthread_mutex_t lock;
	bool strings_read, shardings_read, arrays_read;
	struct refusal strings_refused, shardings_refused, arrays_refused;
	struct strings *strings; /* index of `_strings.json`; NULL: none */
	struct io_file *strings_file;
	struct shardings *shardings;    /* `_sharding`; NULL: none */
	struct array_metadatas *arrays; /* the first of array_metadatas/process_*; NULL: none */
	bool digests_read;
	struct digests *digests; /* `.sha256sums`; NULL: none */
};

/*
 * Open the item at path beneath SOURCE, a directory or (flax) a file. One line in the log when it
 * was never merged. Errors name the file and the reason.
 */
int item_open(struct ckpt *ckpt, const char *path, struct item **ret);
/* The same beneath another directory, which outlives the item: of a draft that is not in SOURCE. */
int item_open_in(struct ckpt *ckpt, struct io_dir *within, const char *path, struct item **ret);
/* The same, with the tree that ckpt_opts.retree makes of the stored one: what is to be shown. */
int item_open_shown(struct ckpt *ckpt, const char *path, struct item **ret);
struct item *item_ref(struct item *item);
/* Accepts NULL. */
void item_unref(struct item *item);
DEFINE_AUTO(item, struct item, item_unref);
/*
 * Give back what is kept for the next reader, decoded bytes and open data files: for an item that
 * is gone, while somebody still holds it. Any thread.
 */
void item_close_files(struct item *item);

/* The text of a string leaf, appended. -ENOENT when it is not stored. */
int item_string(struct item *item, const struct tree_node *leaf, struct buf *ret);
/* The array of a leaf, stored or made by its source: a reference. */
int item_array(struct item *item, const struct tree_node *leaf, struct zarr **ret);
/* The same, to be read while an array that is made of it is being read. */
int item_array_inner(struct item *item, const struct tree_node *leaf, struct zarr **ret);
/*
 * The JSON text of a leaf's recorded sharding: borrowed from the item. 1; 0 when there is none, or
 * when the file is damaged, which the log says; an error when it cannot be read now.
 */
int item_sharding(struct item *item, const struct tree_node *leaf, struct span *ret);
/*
 * `.sha256sums`: borrowed from the item. NULL when it has none, or when the file is damaged, which
 * the log says; an error when it cannot be read now.
 */
int item_digests(struct item *item, const struct digests **ret);
/* The PRNG implementation of a leaf that is key data: "threefry2x32". Returns the same. */
int item_prng_impl(struct item *item, const struct tree_node *leaf, struct span *ret);
/*
 * Who may read it now: 0555 of the classes that may read all files which hold something of every
 * leaf, and the directory's 0222. Half a second old at most, but for the modes of very many files.
 */
int item_access(struct item *item, struct access *ret);
/* a becomes that of those who may also read what the leaf has of its own. */
int item_access_leaf(struct item *item, const struct tree_node *leaf, struct access *a);
/* Those who may read all leaves of the item's tree from top to before the node numbered `end`. */
int item_access_leaves(struct item *item, const struct tree_node *top, uint32_t end,
		       struct access *ret);
/* Bytes that the item holds in memory: what dropping it gives back. */
uint64_t item_memory(struct item *item);

#endif
