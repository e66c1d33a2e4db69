/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - where the values of an item go while it is being written.
 *
 * Each leaf has a kv of its own, whose keys are below the leaf ("0.0"): the name
 * of a leaf may change until the commit. Values are appended to data files of a
 * database, or are files of a directory per leaf; what remains for the commit is
 * to say how the leaves are called.
 *
 * Leaves may be written by any number of threads at once. Committing is one
 * thread's business, when nobody writes any more.
 */
#ifndef PYTREEFS_STORE_H
#define PYTREEFS_STORE_H

#include "core/kv/kv.h"
#include "core/ocdbt/ocdbt.h"

struct store;

struct store_opts {
	bool ocdbt;
	uint64_t target_size; /* of data files; 0: no limit */
	unsigned dir_mode;    /* of new directories, under the umask; 0: 0777 */
	bool unsynced; /* directory per leaf: the caller makes all durable at its end, names too */
	unsigned first_leaf; /* directories: where temporary names begin, when another store is in
				the same */
};

/* In the item's directory, which is taken on success. Makes nothing on the disk before the first
 * value. */
int store_new(struct io_dir *dir, const struct store_opts *opts, struct store **ret);
/* Values that were not committed stay on the disk, and are removed with the draft. Accepts NULL. */
void store_free(struct store *s);
bool store_is_ocdbt(const struct store *s);
/* first_leaf for another store in the same directory. */
unsigned store_next_leaf(struct store *s);
struct io_dir *store_dir(struct store *s);

/* The kv of a new leaf: put, put_file, put_open, locate and list. It holds the store. */
int store_leaf(struct store *s, struct kv **ret);

/* ---- committing ---- */

/* All values durable. */
int store_sync(struct store *s);
/*
 * Database: each key of a leaf with its value, in no order. -EINVAL for a leaf of a directory store.
 */
typedef int store_each_fn(void *arg, struct span key, const struct ocdbt_value *value);
int store_leaf_each(struct kv *leaf, store_each_fn *each, void *arg);
/* Database: the path of each data file below the item's directory. */
int store_each_file(struct store *s, ocdbt_data_fn *each, void *arg);
/* The entry of the item's directory that holds the leaf's values, appended to ret. */
int store_leaf_entry(struct kv *leaf, struct buf *ret);
/* Whether an entry of the item's directory has a temporary name: that of a leaf which has not got
 * its own. */
bool store_is_temporary(const char *entry);
/* Directory per leaf: the key and the CRC-32C of each value that was put. */
typedef int store_sum_fn(void *arg, struct span key, uint32_t crc);
int store_leaf_each_sum(struct kv *leaf, store_sum_fn *each, void *arg);
/* Directory per leaf: one that has another name than this gets a temporary one, out of the way of
 * others. */
int store_leaf_displace(struct kv *leaf, struct span param);
/*
 * Directory per leaf: whether a leaf of that name can have one. -ENAMETOOLONG; -EINVAL: no
 * directory can be called so, or a file of the item is.
 */
int store_leaf_check(struct span param);
/*
 * Directory per leaf: the leaf's directory gets its name (it may hold slashes), and is durable when
 * the item's directory has been synced. May be called again, with the same name or another.
 */
int store_leaf_place(struct kv *leaf, struct span param);
/* One value of a leaf in another place, too, where it is durable: a file below to. */
int store_leaf_copy(struct kv *leaf, struct span key, struct io_dir *to, const char *path);

/*
 * A bare leaf that a commit which failed has placed (empty param) goes back to where it was, so
 * that it may get another name. Nothing for other leaves.
 */
int store_leaf_unplace(struct kv *leaf);

DEFINE_AUTO(store, struct store, store_free);

#endif
