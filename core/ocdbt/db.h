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
#include "core/base/refusal.h"
#include "core/io/io.h"
#include "core/ocdbt/ocdbt.h"

/* A data file that is kept open. */
struct db_file {
	uint64_t hash;        /* of the path */
	uint64_t used;        /* tick of the last use */
	struct io_file *file; /* counted; NULL: free place */
};

/* Immutable after open but for what lock protects. */
struct ocdbt {
	struct io_dir *dir;  /* owned */
	struct cache *cache; /* borrowed; NULL: nodes are not kept */
	uint64_t owner;      /* of its nodes in the cache */
	struct ocdbt_manifest manifest;
	struct buf manifest_name; /* of the file that was read, with a NUL */

	pthread_mutex_t lock;                /* never held across I/O */
	struct db_file file[LIMIT_DB_FILES]; /* protected by lock */
	uint64_t tick;                       /* protected by lock */
	struct refusals refusals;            /* nodes that were refused */
};

/*
 * What one walk may still do. Nodes may be shared by parents with other prefixes, so a file of a
 * kilobyte can hold more keys than fit in any memory, and every walk counts.
 */
struct db_walk {
	uint64_t visits, keys, bytes;
};
/* -EFBIG, naming the limit, once more was done than is allowed. */
int db_walk_visit(struct db_walk *w, uint64_t bytes);
int db_walk_key(struct db_walk *w, size_t key_n);
/* Whether it was the walk that failed, and not what it met. */
bool db_walk_is_over(const struct db_walk *w);

/*
 * The file that a reference names, counted, and at least off + len bytes long. -EUCLEAN when it is
 * absent, not a file, too short, or has a path that no data file can have.
 */
int db_file(struct ocdbt *db, const struct ocdbt_ref *ref, struct io_file **ret);
/* Its path in the database's directory, with a NUL. */
int db_file_path(const struct ocdbt_ref *ref, struct buf *ret);
/* What a reference names was read, and is broken: the file may be repaired, and is opened anew. */
void db_file_doubt(struct ocdbt *db, const struct ocdbt_ref *ref);
/* That off + len lies inside the file. */
int db_check_range(const struct io_file *file, const struct ocdbt_ref *ref);
/*
 * The same as db_file() for many references in a row: what the last ones named is not looked up
 * again. Not thread-safe; zeroed it is ready.
 */
struct db_recent {
	struct io_file *file[16]; /* counted, or NULL */
};
int db_file_again(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_ref *ref,
		  struct io_file **ret);
void db_recent_release(struct db_recent *recent);
/* The bytes that a reference names, appended; -EFBIG when there are more than limit. */
int db_read(struct ocdbt *db, const struct ocdbt_ref *ref, uint64_t limit, struct buf *ret);

/* Put "kind:path:offset:length" in front of this thread's note. Returns r. */
int db_err_at(int r, const char *kind, const struct ocdbt_ref *ref);

/*
 * 128 bits that stand for a record or, with off and len 0, for a file. Hostile paths are as long as
 * they like, so this hash cannot be aimed at.
 */
int db_ref_id(const struct ocdbt_ref *ref, uint64_t ret[2]);

/* A node in use. Zeroed it holds none. */
struct db_pin {
	const struct ocdbt_node *node;
	struct cache_entry *entry; /* NULL: the node is owned */
};
/* From the cache or the disk. height is what the reference's place says. Counted in walk. */
int db_pin(struct ocdbt *db, const struct ocdbt_ref *ref, unsigned height, struct db_walk *walk,
	   struct db_pin *ret);
/* Accepts a zeroed one, and leaves it so. */
void db_unpin(struct ocdbt *db, struct db_pin *pin);

/* As ocdbt_cursor_open(), counting in walk, which is borrowed; NULL: in one of its own. */
int db_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct db_walk *walk,
		   struct ocdbt_cursor **ret);

/* The version node that ref names, checked against what ref says of it. */
int db_vnode(struct ocdbt *db, const struct ocdbt_version_ref *ref, struct ocdbt_vnode *ret);

/* ---- values (value.c) ---- */

#define auto_recent __attribute__((cleanup(db_recent_release))) struct db_recent

/* ocdbt_value_locate() for many values in a row. */
int value_locate(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_value *v,
		 struct kv_loc *ret);
/* Whether two located values have the same bytes: 1 or 0. */
int value_same(const struct kv_loc *a, const struct kv_loc *b);
/* "inline:LEN" or "value:FILE:OFF:LEN", FILE beneath part, which may be NULL. */
int value_where_text(struct buf *ret, const char *part, const struct ocdbt_value *v);
/* The order in which the keys ascend, so that a batch walks the tree once. *ret is the caller's. */
int kv_batch_order(const struct span *key, size_t n, size_t **ret);

/* ---- several databases as one sorted sequence (mergelist.c) ---- */

struct mergelist_part {
	struct ocdbt *db;                    /* borrowed */
	const struct ocdbt_version *version; /* borrowed */
};
/* One part that holds a key. */
struct mergelist_hit {
	size_t part;
	const struct ocdbt_entry *entry; /* borrowed until the next call */
};
struct mergelist;
/* Keys from low on, before high when it is not empty; both are borrowed. */
int mergelist_open(const struct mergelist_part *part, size_t n, struct span low, struct span high,
		   struct mergelist **ret);
/* The next key: how many parts hold it, which are given in their order; 0 at the end. */
int mergelist_next(struct mergelist *m, const struct mergelist_hit **ret);
/* Accepts NULL. */
void mergelist_close(struct mergelist *m);
DEFINE_AUTO(mergelist, struct mergelist, mergelist_close);

#endif
