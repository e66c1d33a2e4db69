/* SPDX-License-Identifier: Apache-2.0 */
/*
 * db.h - an opened database: manifest, data files and nodes. Private to the folder.
 */
#ifndef PYTREEFS_OCDBT_DB_H
#define PYTREEFS_OCDBT_DB_H

#include <pthread.h>

#include "core/base/cache.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io_pins.h"
#include "core/ocdbt/ocdbt.h"

/* A data file that is kept open. */
struct db_file {
	uint64_t hash;        /* of the path */
	uint64_t used;        /* tick of the last use */
	struct io_file *file; /* a reference; NULL: unused slot */
};

/* Immutable after open, except for the members that lock protects. */
struct ocdbt {
	struct io_dir *dir;  /* owned */
	struct cache *cache; /* borrowed; NULL: nodes are not cached */
	uint64_t owner;      /* of this database's nodes in the cache, and of their refusals */
	struct ocdbt_manifest manifest;
	struct buf manifest_name; /* name of the file that was read, with a NUL */

	pthread_mutex_t lock;                /* never held across I/O */
	struct db_file file[LIMIT_DB_FILES]; /* protected by lock */
	uint64_t tick;                       /* protected by lock */
	struct io_pins pins;                 /* protected by lock; data files */
};

/*
 * The work that one traversal has done. Nodes may be shared by parents with different prefixes, so
 * a file of a kilobyte can list more keys than fit in any memory; hence every traversal is limited.
 */
struct db_walk {
	uint64_t visits, keys, bytes;
};
/* Count one node or key. -EFBIG, naming the limit, when that is too many. */
int db_walk_visit(struct db_walk *w, uint64_t bytes);
int db_walk_key(struct db_walk *w, size_t key_n);
/* Whether the traversal has exceeded a limit, so that an error is due to that. */
bool db_walk_is_over(const struct db_walk *w);

/*
 * Open the file that a reference names and check that it has at least off + len bytes. -EUCLEAN
 * when it is absent, not a file, too short, or has a path that no data file can have. ret is a
 * reference.
 */
int db_file(struct ocdbt *db, const struct ocdbt_ref *ref, struct io_file **ret);
/* The file's path in the database's directory, with a NUL. */
int db_file_path(const struct ocdbt_ref *ref, struct buf *ret);
/* The bytes that ref names are broken: open the file anew next time, since it may be repaired. */
void db_file_doubt(struct ocdbt *db, const struct ocdbt_ref *ref);
/* Check that the range lies inside the file. */
int db_check_range(struct io_file *file, const struct ocdbt_ref *ref);
/*
 * Like db_file(), for many references in a row: recently used files are not looked up again. Not
 * thread-safe; zeroed it is ready.
 */
struct db_recent {
	struct io_file *file[16]; /* references, or NULL */
};
int db_file_again(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_ref *ref,
		  struct io_file **ret);
void db_recent_release(struct db_recent *recent);
/* Append the bytes that a reference names; -EFBIG when there are more than limit. */
int db_read(struct ocdbt *db, const struct ocdbt_ref *ref, uint64_t limit, struct buf *ret);

/* Prefix this thread's note with "kind:path:offset:length". Returns r. */
int db_err_at(int r, const char *kind, const struct ocdbt_ref *ref);

/*
 * A 128-bit id of a record or, with off and len 0, of a file. A cryptographic hash, because hostile
 * paths could otherwise collide on purpose.
 */
int db_ref_id(const struct ocdbt_ref *ref, uint64_t ret[2]);

/* A node in use. Zeroed it holds none. */
struct db_pin {
	const struct ocdbt_node *node;
	struct cache_entry *entry; /* NULL: the node is owned */
};
/*
 * Get a node from the cache or the disk, and count it in walk. height is what the place of the
 * reference demands.
 */
int db_pin(struct ocdbt *db, const struct ocdbt_ref *ref, unsigned height, struct db_walk *walk,
	   struct db_pin *ret);
/* Accepts a zeroed pin; leaves it zeroed. */
void db_unpin(struct ocdbt *db, struct db_pin *pin);

/* ocdbt_cursor_open() that counts in walk, which is borrowed; NULL: in a walk of its own. */
int db_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct db_walk *walk,
		   struct ocdbt_cursor **ret);

/* Read the version node that ref names, and check it against ref. */
int db_vnode(struct ocdbt *db, const struct ocdbt_version_ref *ref, struct ocdbt_vnode *ret);

/*
 * Open the database in a directory below dir, at its latest version, whose paths are allocated in
 * the arena; the version is empty if nothing was committed. The caller closes *ret, after a failure
 * as well unless that is NULL still.
 */
int db_open_latest(struct io_dir *dir, const char *name, struct cache *cache, struct arena *a,
		   struct ocdbt **ret, struct ocdbt_version *ret_version);

/* ---- values (value.c) ---- */

#define auto_recent __attribute__((cleanup(db_recent_release))) struct db_recent

/* ocdbt_value_locate(), for many values in a row. */
int value_locate(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_value *v,
		 struct kv_loc *ret);
/* Returns 1 when two located values have the same bytes, else 0, or an error. */
int value_same(const struct kv_loc *a, const struct kv_loc *b);
/* Append "inline:LEN" or "value:FILE:OFF:LEN", with FILE beneath part, which may be NULL. */
int value_where_text(struct buf *ret, const char *part, const struct ocdbt_value *v);
/*
 * Sort a batch: ret is the indices of the keys in ascending order, so that one traversal finds all.
 * The caller frees it.
 */
int kv_batch_order(const struct span *key, size_t n, size_t **ret);

/* ---- several databases as one sorted sequence (mergelist.c) ---- */

struct mergelist_part {
	struct ocdbt *db;                    /* borrowed */
	const struct ocdbt_version *version; /* borrowed */
};
/* A part that has the key. */
struct mergelist_hit {
	size_t part;
	const struct ocdbt_entry *entry; /* borrowed until the next call */
};
struct mergelist;
/* List the keys from low on, and before high unless that is empty; both are borrowed. */
int mergelist_open(const struct mergelist_part *part, size_t n, struct span low, struct span high,
		   struct mergelist **ret);
/*
 * Advance to the next key. Returns the number of parts that have it, with a hit for each in the
 * order of parts; 0 at the end.
 */
int mergelist_next(struct mergelist *m, const struct mergelist_hit **ret);
/* Accepts NULL. */
void mergelist_close(struct mergelist *m);
DEFINE_AUTO(mergelist, struct mergelist, mergelist_close);

#endif
