/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_store.h - the storage of an item's values while it is being written.
 *
 * Each leaf has a kv of its own with keys relative to the leaf ("0.0"), since the name of a leaf
 * may change until the commit. Values are appended to data files of a database, or are files in a
 * directory per leaf; the commit only adds the names of the leaves.
 *
 * Any number of threads may write leaves at the same time. Committing is done by one thread, when
 * no thread writes any more.
 */
#ifndef PYTREEFS_ITEM_STORE_H
#define PYTREEFS_ITEM_STORE_H

#include "core/kv/kv.h"
#include "core/ocdbt/ocdbt.h"

struct item_store;

struct item_store_opts {
	bool ocdbt;
	uint64_t target_size; /* of data files; 0: no limit */
	unsigned dir_mode;    /* mode of new directories before the umask; 0: IO_DIR_MODE */
	/*
	 * directory per leaf: nothing is synced; the caller makes all files and names durable at
	 * its end
	 */
	bool unsynced;
	/*
	 * directory per leaf: number of the first temporary name, if another store uses the same
	 * directory
	 */
	unsigned first_leaf;
	struct ocdbt_data_watcher watcher; /* of data files */
	void (*unwatch)(
		void *arg); /* called with the watcher's arg by item_store_free(); may be NULL */
};

/*
 * Make a store in the item's directory, which it owns on success. Writes nothing to the disk before
 * the first value.
 */
int item_store_new(struct io_dir *dir, const struct item_store_opts *opts, struct item_store **ret);
/*
 * Values that were not committed remain on the disk, and are removed with the draft. Accepts NULL.
 */
void item_store_free(struct item_store *s);
bool item_store_is_ocdbt(const struct item_store *s);
/* The value of first_leaf for another store in the same directory. */
unsigned item_store_next_leaf(struct item_store *s);
struct io_dir *item_store_dir(struct item_store *s);

/*
 * Returns the kv of a new leaf, with put, put_open, locate and list. It holds a reference
 * to the store.
 */
int item_store_leaf(struct item_store *s, struct kv **ret);

/* ---- committing ---- */

/* Make all values durable. */
int item_store_sync(struct item_store *s);
/*
 * Database: call `each` for each key of a leaf with its value, unordered. -EINVAL for a leaf of a
 * directory store.
 */
typedef int item_store_each_fn(void *arg, struct span key, const struct ocdbt_value *value);
int item_store_leaf_each(struct kv *leaf, item_store_each_fn *each, void *arg);
/* Database: call `each` with the path of each data file, relative to the item's directory. */
int item_store_each_file(struct item_store *s, ocdbt_data_fn *each, void *arg);
/* Append the name of the entry in the item's directory that contains the leaf's values. */
int item_store_leaf_entry(struct kv *leaf, struct buf *ret);
/* Whether an entry of the item's directory is the temporary name of a leaf. */
bool item_store_is_temporary(const char *entry);
/* Directory per leaf: call `each` with the key and the CRC-32C of each value that was put. */
typedef int item_store_sum_fn(void *arg, struct span key, uint32_t crc);
int item_store_leaf_each_sum(struct kv *leaf, item_store_sum_fn *each, void *arg);
/*
 * Directory per leaf: if the leaf's directory has another name than this, give it a temporary one,
 * so that the name is free for another leaf.
 */
int item_store_leaf_displace(struct kv *leaf, struct span param);
/*
 * Directory per leaf: whether a leaf may have that name. -ENAMETOOLONG; -EINVAL when it is not a
 * valid path, or is the name of a file of the item.
 */
int item_store_leaf_check(struct span param);
/*
 * Directory per leaf: give the leaf's directory its name, which may contain slashes. It is durable
 * once the item's directory has been synced. May be called again, with the same name or another.
 */
int item_store_leaf_place(struct kv *leaf, struct span param);
/* Copy one value of a leaf to the file `path` in to, and sync it. */
int item_store_leaf_copy(struct kv *leaf, struct span key, struct io_dir *to, const char *path);

/*
 * Move a bare leaf (with empty param) that a failed commit placed back to its directory, so that it
 * may get another name. Does nothing for other leaves.
 */
int item_store_leaf_unplace(struct kv *leaf);

DEFINE_AUTO(item_store, struct item_store, item_store_free);

#endif
