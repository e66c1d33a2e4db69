/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ocdbt.h - databases in the OCDBT format: read as a kv, written, merged, checked.
 *
 * A database is a directory with a manifest, which names a root for each version,
 * B+tree nodes below the roots, and data files that hold nodes and long values.
 * README.md has the bytes; record.h the records as structs.
 *
 * Reading. ocdbt_open() gives a kv of one version. Everything that a manifest
 * refers to is immutable, so there is nothing to invalidate, and all reading
 * functions may be called by several threads at once unless said otherwise.
 *
 * Writing is three steps, each made durable before the next by the caller:
 *
 *     values     ocdbt_data_put() and streams, from any thread; ocdbt_data_sync()
 *     nodes      ocdbt_build() or ocdbt_merge() into another struct ocdbt_data
 *                (or the same); ocdbt_data_sync()
 *     manifest   ocdbt_manifest_first() and ocdbt_manifest_write()
 *
 * Errors: -ENOENT for a database, version or key that is not there; -EUCLEAN and
 * -EBADMSG for what is broken, data files that are absent or short among it.
 */
#ifndef PYTREEFS_OCDBT_H
#define PYTREEFS_OCDBT_H

#include "core/kv/kv.h"
#include "core/ocdbt/record.h"

struct cache;

/* ---- reading: the kv ---- */

/* Which version; both 0: the latest. */
struct ocdbt_when {
	uint64_t generation; /* this one exactly */
	uint64_t time;       /* the last one not later, nanoseconds since 1970 */
};

struct ocdbt_open_opts {
	struct ocdbt_when when;
	const char *name; /* of the kv, for messages; NULL: the directory's path */
};

/*
 * The database in dir as a read-only kv; dir is taken on success. cache may be NULL: then each
 * walk decodes its nodes anew. It is borrowed and outlives the kv, as does dir's engine. opts may
 * be NULL. -ENOENT when manifest.ocdbt or the version does not exist.
 *
 * locate gives values of the leaf as KV_INLINE and others as KV_FILE, once their file is known to
 * hold them; a value of length 0 is always inline. A batch costs each node once, so batches are
 * better than single keys. The files of a batch stay open with its kv_locs.
 */
int ocdbt_open(struct io_dir *dir, struct cache *cache, const struct ocdbt_open_opts *opts,
	       struct kv **ret);

/*
 * Directories `ocdbt.process_*` beneath dir that hold a manifest, in the order of their numbers.
 * n_bare others hold none: a process that wrote something and never committed it.
 */
struct ocdbt_parts {
	char **name; /* owned */
	size_t n, cap;
	size_t n_bare;
};
int ocdbt_parts_find(struct io_dir *dir, struct ocdbt_parts *ret);
void ocdbt_parts_release(struct ocdbt_parts *parts);

/*
 * Several databases as one kv: an item that was never merged. parts are directories beneath dir
 * (usually from ocdbt_parts_find()), each opened at its latest version; dir is taken on success.
 *
 * Keys are the union. Of a key that several parts hold, all values must be equal byte for byte:
 * locate compares them, reading what is not inline, and gives the first part's; otherwise it fails
 * with -EUCLEAN and names the key and both parts, because either could be the right one. A listing
 * gives such a key once, with the length that the first part has.
 */
int ocdbt_open_union(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_open_opts *opts, struct kv **ret);

/* ---- reading: versions and keys ---- */

struct ocdbt;

/* The database itself, with all its versions; as ocdbt_open() otherwise. */
int ocdbt_db_open(struct io_dir *dir, struct cache *cache, struct ocdbt **ret);
/* No cursor may be left. Accepts NULL. */
void ocdbt_db_close(struct ocdbt *db);
/* Close the data files that are kept open for the next reference to them. */
void ocdbt_db_close_files(struct ocdbt *db);
/* Of the newest manifest. Immutable; lives as long as db. */
const struct ocdbt_manifest *ocdbt_db_manifest(const struct ocdbt *db);
/* The file that it was read from: "manifest.ocdbt" or a numbered one. */
const char *ocdbt_db_manifest_name(const struct ocdbt *db);

/* 1 and the version, whose paths are copied into a; 0 when it does not exist. */
int ocdbt_find_version(struct ocdbt *db, const struct ocdbt_when *when, struct arena *a,
		       struct ocdbt_version *ret);
/* All versions, the oldest first. A non-zero return ends the walk and is its result. */
typedef int ocdbt_version_fn(void *arg, const struct ocdbt_version *v);
int ocdbt_each_version(struct ocdbt *db, ocdbt_version_fn *each, void *arg);

/*
 * A place in the keys of one version: not thread-safe. What it gives is borrowed from nodes that it
 * pins, until it is moved or closed.
 */
struct ocdbt_cursor;
/* db and v are borrowed. */
int ocdbt_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct ocdbt_cursor **ret);
/* Accepts NULL. */
void ocdbt_cursor_close(struct ocdbt_cursor *cur);
/*
 * The value of a key: 1, or 0 when it does not exist. Fast for keys in ascending order, right in
 * any.
 */
int ocdbt_cursor_find(struct ocdbt_cursor *cur, struct span key, struct ocdbt_value *ret);
/*
 * Begin with the first key >= low; stop before high, when it is not empty. Both are borrowed until
 * the range is done.
 */
int ocdbt_cursor_range(struct ocdbt_cursor *cur, struct span low, struct span high);
/* The next entry of the range: 1, or 0 at its end. */
int ocdbt_cursor_next(struct ocdbt_cursor *cur, struct ocdbt_entry *ret);
/*
 * The end of the keys that begin with prefix; appended to ret, which stays empty when there is
 * none.
 */
int ocdbt_prefix_end(struct span prefix, struct buf *ret);

/*
 * A value as a kv_loc, as locate gives it. -EUCLEAN when its file does not hold it.
 */
int ocdbt_value_locate(struct ocdbt *db, const struct ocdbt_value *v, struct kv_loc *ret);
/* Whether two values have the same bytes: 1 or 0. Reads them when neither is inline. */
int ocdbt_value_equal(struct ocdbt *a, const struct ocdbt_value *va, struct ocdbt *b,
		      const struct ocdbt_value *vb);

/* ---- writing: data files ---- */

/*
 * Appends values, or nodes, to data files `<prefix><32 hex digits>`, gathered into large writes.
 * Any number of threads may add at once: each gets a file of its own for the time, so there are as
 * many files as threads were at it together, or as target_size asks for.
 *
 * A reference that was given stays true, and its path stays valid, until the writer is freed; the
 * bytes that it names are on the disk after ocdbt_data_sync(), and not sooner. A call that fails
 * (-ENOSPC) has added nothing and may be made again, with one exception: after a failed sync nobody
 * knows what is on the disk, so everything fails from then on but discard and free.
 */
struct ocdbt_data;
struct ocdbt_data_opts {
	const char *prefix;   /* NULL: "d/"; its directories are made when needed */
	uint64_t target_size; /* a file that has reached it is full; 0: no limit */
	unsigned dir_mode;    /* of new directories, under the umask; 0: 0777 */
	int (*name)(void *arg, uint8_t ret[16]); /* of each new file; NULL: random */
	void *name_arg;
	bool sums; /* each value is followed by its checksum (kv_sum.h) */
};
/* dir is borrowed. opts may be NULL. Nothing is made on the disk before the first value. */
int ocdbt_data_new(struct io_dir *dir, const struct ocdbt_data_opts *opts, struct ocdbt_data **ret);
/* What is not synced may be lost. Nothing may be under way. Accepts NULL. */
void ocdbt_data_free(struct ocdbt_data *data);
/* One value. An empty one is not stored: it has no path and no length. */
int ocdbt_data_put(struct ocdbt_data *data, struct span value, struct ocdbt_ref *ret);
/* How long the paths of this writer are. */
size_t ocdbt_data_path_len(const struct ocdbt_data *data);
/*
 * Everything durable, files and their names below dir. A file that reached target_size was synced
 * and closed when its successor was begun, so this waits for few. -EBUSY while a value is under
 * way.
 */
int ocdbt_data_sync(struct ocdbt_data *data);
/*
 * Remove all files that were made; the writer is as new. -EBUSY while a value is under way; no
 * other thread may add one meanwhile.
 */
int ocdbt_data_discard(struct ocdbt_data *data);
/* The path of each file that was made; a non-zero return ends it and is its result. */
typedef int ocdbt_data_fn(void *arg, const char *path);
int ocdbt_data_each(struct ocdbt_data *data, ocdbt_data_fn *each, void *arg);
/* Where a value is now, for reading back before it is durable: inline while it is not written. */
int ocdbt_data_locate(struct ocdbt_data *data, const struct ocdbt_ref *ref, struct kv_loc *ret);

struct ocdbt_data_stats {
	uint64_t values, bytes, files; /* added so far; discard sets them to 0 */
};
void ocdbt_data_stats(struct ocdbt_data *data, struct ocdbt_data_stats *ret);

/*
 * A value in pieces, so that it need not be in memory. For one thread at a time. A piece that fails
 * is not added; the stream may go on with it again, or be aborted.
 */
struct ocdbt_stream;
int ocdbt_stream_open(struct ocdbt_data *data, struct ocdbt_stream **ret);
int ocdbt_stream_add(struct ocdbt_stream *s, struct span piece);
/* A range of another file; all of it or nothing. -EUCLEAN when the file is shorter. */
int ocdbt_stream_copy(struct ocdbt_stream *s, struct io_file *from, uint64_t off, uint64_t len);
/* On success s is gone and the value is one; on failure it is as before. */
int ocdbt_stream_close(struct ocdbt_stream *s, struct ocdbt_ref *ret);
/* Drop the value; its place is used again. Accepts NULL. */
void ocdbt_stream_abort(struct ocdbt_stream *s);

/* ---- writing: trees ---- */

/* As Orbax sets it, with a random uuid. */
int ocdbt_config_init(struct ocdbt_config *config);

/*
 * Entries in ascending order of their keys, which can be gone through twice: the shape of the tree
 * depends on their sum.
 */
struct ocdbt_source {
	/* 1 and the next entry, borrowed until the next call; 0 at the end. */
	int (*next)(struct ocdbt_source *src, struct ocdbt_entry *ret);
	int (*rewind)(struct ocdbt_source *src);
};
/* A source of n entries in memory, which are borrowed. */
struct ocdbt_array_source {
	struct ocdbt_source base;
	const struct ocdbt_entry *entry;
	size_t n, at;
};
void ocdbt_array_source_init(struct ocdbt_array_source *src, const struct ocdbt_entry *entry,
			     size_t n);

/*
 * Write the nodes of a tree that holds what the source gives, in the shape that TensorStore would
 * give it, and set root, height and statistics of *ret, paths borrowed from data; the rest of *ret
 * is 0. No entries: an empty version. Inline values longer than the configuration allows are put
 * into data too. Memory: about one encoded node, and some 200 bytes and a key for each node.
 *
 * -EINVAL when keys do not ascend. After an error what was written is waste: discard data, or
 * leave it.
 */
int ocdbt_build(struct ocdbt_source *src, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret);

/* ---- writing: merging ---- */

struct ocdbt_merge_part {
	struct ocdbt *db;                    /* borrowed; opened beneath its own directory */
	const struct ocdbt_version *version; /* borrowed */
	const char *base; /* that directory, with a slash; "" for the result's own */
};
struct ocdbt_merge_stats {
	uint64_t keys;     /* of the result */
	uint64_t repeated; /* that an earlier part held with the same value */
};
/*
 * Build a tree with the keys of all parts, as ocdbt_build(). Values stay where they are and are
 * referred to; inline ones are copied. A key in several parts must have equal values, byte for
 * byte: -EUCLEAN names the key and two parts otherwise. Memory: 32 MiB of keys besides what
 * ocdbt_build() takes, whatever the size of the parts; what it wrote is counted by
 * ocdbt_data_stats().
 */
int ocdbt_merge(const struct ocdbt_merge_part *part, size_t n, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret,
		struct ocdbt_merge_stats *ret_stats);
/* The latest versions of the databases in these directories beneath dir, which is data's too. */
int ocdbt_merge_dirs(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_config *config, struct ocdbt_data *data,
		     struct ocdbt_version *ret, struct ocdbt_merge_stats *ret_stats);

/* ---- writing: manifests ---- */

/*
 * A manifest with one version, generation 1. time: nanoseconds since 1970; 0: now. Of root only
 * what ocdbt_build() sets is used, and copied. *ret needs ocdbt_manifest_release().
 */
int ocdbt_manifest_first(const struct ocdbt_config *config, const struct ocdbt_version *root,
			 uint64_t time, struct ocdbt_manifest *ret);
/*
 * The manifest after db's with one version more, committed at time, or 1 ns after the version
 * before if that is later. Version nodes that this calls for are put into data, which is below the
 * same directory as db and synced before the manifest is written. For databases of the single
 * kind.
 */
int ocdbt_manifest_next(struct ocdbt *db, const struct ocdbt_version *root, uint64_t time,
			struct ocdbt_data *data, struct ocdbt_manifest *ret);
/*
 * Write it to a file beneath dir and sync the file; its name is durable after IO_SYNC_DIR. name
 * NULL: "manifest.ocdbt", in place, for a directory that nobody reads yet. Elsewhere write another
 * name and rename it: that is the commit. Not "manifest.ocdbt.__lock", which is TensorStore's
 * lock.
 */
int ocdbt_manifest_write(struct io_dir *dir, const struct ocdbt_manifest *m, const char *name);

/* ---- checking ---- */

enum ocdbt_severity { OCDBT_INFO, OCDBT_WARN, OCDBT_ERROR };

struct ocdbt_finding {
	enum ocdbt_severity severity;
	const char *where; /* "btreenode:PATH:OFF:LEN", "file:PATH", "version:N" */
	const char *text;  /* what is wrong there */
};
/* A non-zero return ends the check and is its result. */
typedef int ocdbt_finding_fn(void *arg, const struct ocdbt_finding *f);

struct ocdbt_check_opts {
	bool all_versions; /* and the version nodes; else the current version */
	bool unused_files; /* report data files that nothing refers to, which is not a fault; with
			      all_versions */
	ocdbt_finding_fn *found;
	void *arg;
};
struct ocdbt_check_stats {
	uint64_t versions, version_nodes, nodes, keys, value_bytes, files;
	uint64_t errors, warnings;
};
/*
 * Everything that can be known of a database without understanding its values: each node for
 * itself, each reference against what it leads to (height, keys within bounds, statistics), each
 * version node's claims, and that every value lies inside an existing file. 0 when it came to its
 * end, however much was found; -EFBIG when there is more than the limits of one walk.
 */
int ocdbt_check(struct ocdbt *db, const struct ocdbt_check_opts *opts,
		struct ocdbt_check_stats *ret);

DEFINE_AUTO(ocdbt_data, struct ocdbt_data, ocdbt_data_free);
DEFINE_AUTO(ocdbt_stream, struct ocdbt_stream, ocdbt_stream_abort);
DEFINE_AUTO(ocdbt, struct ocdbt, ocdbt_db_close);
DEFINE_AUTO(ocdbt_cursor, struct ocdbt_cursor, ocdbt_cursor_close);

#endif
