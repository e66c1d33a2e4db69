/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item.h - an opened PyTree item: its tree and the store of its arrays.
 *
 * Immutable once opened, and reference counted: nodes and open files of the mount hold references.
 */
#ifndef PYTREEFS_ITEM_H
#define PYTREEFS_ITEM_H

#include <pthread.h>

#include "core/io/io_pins.h"
#include "core/step/access.h"
#include "core/step/ckpt.h"
#include "core/step/document.h"

/*
 * Identifies a directory or file at one time. Inode numbers are reused, so the ctime is included.
 */
struct file_id {
	dev_t dev;
	ino_t ino;
	struct timespec ctime, mtime;
};
static inline struct file_id file_id_of(const struct stat *st)
{
	return (struct file_id){ st->st_dev, st->st_ino, st->st_ctim, st->st_mtim };
}

/* A file of a directory of safetensors, as it was opened. */
struct item_shard {
	char *name;
	dev_t dev;
	ino_t ino;
	/* Its readers, as of looked_at (0: never). Protected by access_lock. */
	struct access access;
	int64_t looked_at;
};

/* The address of an array among the ranks of a job; the item's path follows it. */
struct item_address {
	uint64_t dev, ino;
	int64_t ctime_s, ctime_ns;
	uint64_t leaf;
};

/* Cached results of the access checks and their times, by clock_ns(). */
struct item_access_cache {
	struct access top, files;
	int64_t top_at, files_at, files_took;
	bool has_leaf_dirs; /* valid once files_at is set */
};

/* A database in a directory below the item's own, for arrays whose names begin with it. */
struct item_database {
	char *dir;     /* below the item: "params/dense" */
	struct kv *kv; /* NULL: there is none */
};

struct array_metadatas;
struct digests;
struct shardings;
struct strings;

struct item {
	struct ckpt *ckpt;     /* borrowed */
	struct io_dir *within; /* the directory that path is relative to; borrowed */
	char *path;            /* "100/default", "." */
	struct io_dir *dir;    /* for a file: the directory that contains it */
	struct file_id id;     /* of the directory or file that was opened */
	struct kv *kv;         /* the arrays: a database, or directories */
	struct kv *dirs; /* the arrays that are directories when kv is a database; else NULL */
	struct tree *tree;
	struct kv **
		/*
		 * the stores that sources of leaves (tree_node.source) made, by id; protected by
		 * lock
		 */
		made;
	bool is_ocdbt, is_unmerged, is_aggregate;
	bool has_bare_parts; /* it has directories of parts, and no manifest anywhere */
	bool is_hierarchy;   /* it has metadata of zarr groups, and none of Orbax */
	/*
	 * The directories below that were looked at, sorted by dir; protected by below_lock.
	 * below_listed: there are no other databases.
	 */
	struct item_database *below;
	size_t n_below, cap_below;
	bool below_listed;
	bool is_partial; /* no document has its tree, and its server cannot list all of it */
	char *remark;    /* why its tree may be another one than was saved; NULL: it is that one */
	pthread_mutex_t below_lock;
	bool is_file; /* a flax or safetensors file, not a directory */
	/*
	 * Of a directory of safetensors; and whether the tree has more of the headers than names,
	 * types and shapes.
	 */
	struct item_shard *shard;
	size_t n_shards;
	bool shows_headers;
	/*
	 * the directory beside a flax file that has arrays of many hosts, "checkpoint_1_gda", below
	 * dir; NULL: there is none
	 */
	char *gda;
	struct io_file *aggregate;      /* the legacy file; NULL if there is none */
	struct document aggregate_text; /* the contents of the legacy file */
	atomic_bool is_gone;            /* its path is another checkpoint by now, or none */
	uint64_t owner;          /* of the item's entries in the cache, and of its refusals */
	atomic_flag said_hidden; /* the log has the names of files that leaves hide */
	bool missing_is_error;   /* the metadata says that every chunk is stored */
	uint64_t n_arrays;       /* number of leaves that are arrays, scalars or strings */
	atomic_uint refs;
	pthread_mutex_t access_lock; /* protects access, and the like member of leaf nodes */
	struct item_access_cache access;

	/* Read on demand; protected by lock until read, then immutable. */
	pthread_mutex_t lock;
	bool strings_read, shardings_read, arrays_read;
	struct strings *strings; /* index of `_strings.json`; NULL: there is none */
	struct io_file *strings_file;
	struct io_pins pins;         /* of these files */
	struct shardings *shardings; /* `_sharding`; NULL: there is none */
	/* the first of array_metadatas/process_*; NULL: there is none */
	struct array_metadatas *arrays;
	bool digests_read;
	struct digests *digests; /* `.sha256sums`; NULL: there is none */
};

/*
 * Open the item at path in SOURCE, which is a directory or, for flax, a file. Logs a line if the
 * database was never merged. Errors name the file and the reason.
 */
int item_open(struct ckpt *ckpt, const char *path, struct item **ret);
/*
 * The same for a path in another directory, which must outlive the item: for a draft outside of
 * SOURCE.
 */
int item_open_in(struct ckpt *ckpt, struct io_dir *within, const char *path, struct item **ret);
/* The same, with the tree that is shown, which ckpt_opts.retree makes of the stored one. */
int item_open_shown(struct ckpt *ckpt, const char *path, struct item **ret);
struct item *item_ref(struct item *item);
/* Drops a reference. Accepts NULL. */
void item_unref(struct item *item);
DEFINE_AUTO(item, struct item, item_unref);
/*
 * Release decoded data and open data files that are kept for later reads: for an item that was
 * removed but still has references. Any thread may call it.
 */
void item_close_files(struct item *item);

/*
 * Whether files say that Orbax wrote the item, when it has no _METADATA: other programs write
 * arrays in the same layouts. Returns 1 or 0, or an error when that cannot be told now.
 */
int item_has_trace(const struct item *item);
/* The error of a leaf whose array may be in a database that has lost its manifests. */
#define ITEM_LOST_MANIFEST "no manifest.ocdbt, which says where the arrays of the item are"
/* Append the text of a string leaf. -ENOENT when it is not stored. */
int item_string(struct item *item, const struct tree_node *leaf, struct buf *ret);
/* Returns a reference to the array of a leaf, which is stored, or made by the leaf's source. */
int item_array(struct item *item, const struct tree_node *leaf, struct zarr **ret);
/*
 * The same, with a budget of its own: for an array that is read while one computed from it is being
 * read.
 */
int item_array_inner(struct item *item, const struct tree_node *leaf, struct zarr **ret);
/* Whether the item is stored in databases, as far as is known. */
static inline bool item_is_database(const struct item *item)
{
	return item->is_ocdbt || item->n_below;
}
/* Whether an array is in a database: in that of the item, or in one below it. */
bool item_has_nodes(struct item *item, const struct kv *kv);
/* Whether a directory below the item is known to be a database. */
bool item_has_database(struct item *item, const char *dir);
/*
 * The length of the part of a directory's path before "process_0", a database that JAX merges into
 * the one around it; SIZE_MAX when it is not one of these.
 */
size_t item_process_database(const char *dir);
/* The directory of a database below the item's own, or NULL. */
const char *item_database_dir(struct item *item, const struct kv *kv);
/* The same for the deepest one that can have a leaf, as far as is known; by the leaf's name. */
const char *item_database_of(struct item *item, struct span param);
/*
 * Call each() for the databases below the item's own. A result that is not 0 ends that and is
 * returned.
 */
typedef int item_below_fn(void *arg, const char *dir, struct kv *kv);
int item_below_each(struct item *item, item_below_fn *each, void *arg);
/*
 * The JSON text of a leaf's recorded sharding, borrowed from the item: returns 1; 0 when there is
 * none, or the file is damaged, which is logged; an error when it cannot be read now.
 */
int item_sharding(struct item *item, const struct tree_node *leaf, struct span *ret);
/*
 * The parsed `.sha256sums`, borrowed from the item; NULL when there is none, or the file is
 * damaged, which is logged. An error when it cannot be read now.
 */
int item_digests(struct item *item, const struct digests **ret);
/*
 * The PRNG implementation of a leaf that holds key data: "threefry2x32". Returns as
 * item_sharding().
 */
int item_prng_impl(struct item *item, const struct tree_node *leaf, struct span *ret);
/*
 * Get who may read the item now: the directory's owner and group, 0555 reduced to the classes that
 * may read all files with data of every leaf, and 0222 of the directory. The result may be 500 ms
 * old, or older if the item has very many files (access_fresh_ns()).
 */
int item_access(struct item *item, struct access *ret);
/* Reduce a to the users who may also read the leaf's own files. */
int item_access_leaf(struct item *item, const struct tree_node *leaf, struct access *a);
/*
 * Get who may read all leaves of a subtree: the nodes from top up to, but without, the one with id
 * `end`.
 */
int item_access_leaves(struct item *item, const struct tree_node *top, uint32_t end,
		       struct access *ret);
/*
 * The shape of what each device wrote of a jax array, borrowed from the item: 1; 0: not recorded;
 * an error when it cannot be read now.
 */
int item_write_shape(struct item *item, const struct tree_node *leaf, const uint64_t **ret,
		     unsigned *ret_rank);
/* Get the format that `_METADATA` records; false: it records none. */
bool item_format(const struct item *item, bool *ret_ocdbt, bool *ret_zarr3);
/* Bytes of memory that freeing the item would release. */
uint64_t item_memory(struct item *item);

#endif
