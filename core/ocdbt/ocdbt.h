/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ocdbt.h - databases in the OCDBT format: read as a kv, written, merged, checked.
 *
 * A database is a directory with a manifest, which names a root for each version, B+tree nodes
 * below the roots, and data files that hold nodes and long values. README.md has the bytes;
 * record.h the records as structs.
 *
 * Reading. ocdbt_open() opens one version as a kv. Everything that a manifest refers to is
 * immutable, so nothing needs invalidation, and several threads may call all reading functions at
 * once unless stated otherwise.
 *
 * Writing takes three steps; the caller makes each durable before the next:
 *
 *     values     ocdbt_data_put() and streams, from any thread; ocdbt_data_sync()
 *     nodes      ocdbt_build() or ocdbt_merge() into another struct ocdbt_data
 *                (or the same); ocdbt_data_sync()
 *     manifest   ocdbt_manifest_first() and ocdbt_manifest_write()
 *
 * Errors: -ENOENT for a database, version or key that does not exist; -EUCLEAN and -EBADMSG for
 * damage, which includes data files that are absent or too short.
 */
#ifndef PYTREEFS_OCDBT_H
#define PYTREEFS_OCDBT_H

#include "core/kv/kv.h"
#include "core/ocdbt/record.h"

struct cache;

/* ---- reading: the kv ---- */

/* Selects a version; with both members 0, the latest. */
struct ocdbt_when {
	uint64_t generation; /* exactly this one */
	uint64_t time;       /* the last one not later than this; nanoseconds since 1970 */
};

struct ocdbt_open_opts {
	struct ocdbt_when when;
	const char *name; /* name of the kv in messages; NULL: the path of the directory */
};

/*
 * Open the database in dir as a read-only kv, which takes dir on success. cache may be NULL; each
 * traversal then decodes its nodes anew. cache is borrowed and must outlive the kv, as must dir's
 * engine. opts may be NULL. -ENOENT when manifest.ocdbt or the version does not exist.
 *
 * locate() returns values of a leaf as KV_INLINE, and others as KV_FILE after checking that their
 * file contains them; a value of length 0 is always inline. A batch reads each node once, so
 * batches are better than single keys. The files of a batch stay open with its kv_locs.
 */
int ocdbt_open(struct io_dir *dir, struct cache *cache, const struct ocdbt_open_opts *opts,
	       struct kv **ret);

/*
 * The directories `ocdbt.process_*` beneath dir that have a manifest, in the order of their
 * numbers. n_bare counts those without one: their process wrote something and never committed it.
 */
struct ocdbt_parts {
	char **name; /* owned */
	size_t n, cap;
	size_t n_bare;
};
int ocdbt_parts_find(struct io_dir *dir, struct ocdbt_parts *ret);
void ocdbt_parts_release(struct ocdbt_parts *parts);
#define auto_ocdbt_parts __attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts
/* Append their names, of many the first ones: "ocdbt.process_0, ocdbt.process_2". */
int ocdbt_parts_text(const struct ocdbt_parts *parts, struct buf *ret);
/*
 * The length of the directory to which a database at this path belongs: that around a part, else
 * the path itself.
 */
size_t ocdbt_part_parent(const char *path);

/*
 * Open several databases as one kv: an item that was never merged. parts are directories beneath
 * dir (usually from ocdbt_parts_find()), each opened at its latest version. The kv takes dir on
 * success.
 *
 * The kv has the union of all keys. If several parts have a key, all its values must be equal byte
 * for byte: locate() compares them, which reads values that are not inline, and returns that of the
 * first part. Otherwise it fails with -EUCLEAN and names the key and both parts, because either
 * could be right. A listing returns such a key once, with the length in the first part.
 */
int ocdbt_open_union(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_open_opts *opts, struct kv **ret);

/* ---- reading: versions and keys ---- */

struct ocdbt;

/* Open a database with all its versions; otherwise as ocdbt_open(). */
int ocdbt_db_open(struct io_dir *dir, struct cache *cache, struct ocdbt **ret);
/* No cursor may be open. Accepts NULL. */
void ocdbt_db_close(struct ocdbt *db);
/* Close the data files that are kept open for later references. */
void ocdbt_db_close_files(struct ocdbt *db);
/* The newest manifest. Immutable; lives as long as db. */
const struct ocdbt_manifest *ocdbt_db_manifest(const struct ocdbt *db);
/* The name of its file: "manifest.ocdbt" or a numbered one. */
const char *ocdbt_db_manifest_name(const struct ocdbt *db);

/*
 * Find a version. Returns 1 and the version, whose paths are copied into a; 0 when it does not
 * exist.
 */
int ocdbt_find_version(struct ocdbt *db, const struct ocdbt_when *when, struct arena *a,
		       struct ocdbt_version *ret);
/* Call each() for all versions, oldest first. A non-zero result ends that and is returned. */
typedef int ocdbt_version_fn(void *arg, const struct ocdbt_version *v);
int ocdbt_each_version(struct ocdbt *db, ocdbt_version_fn *each, void *arg);

/*
 * A position in the keys of one version. Not thread-safe. Keys and values that it returns are
 * borrowed from nodes that it pins, until it is moved or closed.
 */
struct ocdbt_cursor;
/* db and v are borrowed. */
int ocdbt_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct ocdbt_cursor **ret);
/* Accepts NULL. */
void ocdbt_cursor_close(struct ocdbt_cursor *cur);
/*
 * Find a key. Returns 1 and the value, or 0 when the key does not exist. Keys may be in any order;
 * ascending order is fast.
 */
int ocdbt_cursor_find(struct ocdbt_cursor *cur, struct span key, struct ocdbt_value *ret);
/*
 * Set the range: from the first key >= low, up to but not including high, unless high is empty.
 * Both are borrowed until the range has ended.
 */
int ocdbt_cursor_range(struct ocdbt_cursor *cur, struct span low, struct span high);
/* Get the next entry of the range. Returns 1, or 0 at its end. */
int ocdbt_cursor_next(struct ocdbt_cursor *cur, struct ocdbt_entry *ret);
/*
 * Append the smallest key that is greater than all keys with this prefix; ret stays empty when no
 * key is.
 */
int ocdbt_prefix_end(struct span prefix, struct buf *ret);

/* Locate a value, as locate() of the kv does. -EUCLEAN when its file does not contain it. */
int ocdbt_value_locate(struct ocdbt *db, const struct ocdbt_value *v, struct kv_loc *ret);
/*
 * Returns 1 when two values have the same bytes, else 0, or an error. Reads them unless one is
 * inline.
 */
int ocdbt_value_equal(struct ocdbt *a, const struct ocdbt_value *va, struct ocdbt *b,
		      const struct ocdbt_value *vb);

/* ---- writing: data files ---- */

/*
 * Appends values or nodes to data files `<prefix><32 hex digits>`, in large writes. Any number of
 * threads may add at once; each then uses a file of its own. So there are as many files as threads
 * that ever added at the same time, or as target_size requires.
 *
 * A reference stays valid until the writer is freed. Its bytes are on disk after the next
 * ocdbt_data_sync(), and not before. A call that fails (-ENOSPC) has added nothing and may be
 * repeated. After a failed sync, the next call reads back what was written and writes it again; it
 * fails with -EIO if bytes were lost (R15).
 */
struct ocdbt_data;
/*
 * Callbacks about data files. The calls for one file come from one thread at a time. *mine belongs
 * to the watcher; there is one for each file, NULL at first.
 */
struct ocdbt_data_watcher {
	/*
	 * The bytes below `end` are written, and will not change until cut() is called. A NULL
	 * grew means that there is no watcher.
	 */
	void (*grew)(void *arg, void **mine, const char *path, struct io_file *file, uint64_t end);
	/* The bytes from `end` on were dropped. */
	void (*cut)(void *arg, void *mine, uint64_t end);
	/* The file is full, and will not change any more. */
	void (*closed)(void *arg, void *mine);
	void *arg;
};
struct ocdbt_data_opts {
	const char *prefix;   /* NULL: "d/"; its directories are created when needed */
	uint64_t target_size; /* a file of this size is full; 0: no limit */
	unsigned dir_mode;    /* mode of new directories, before the umask; 0: IO_DIR_MODE */
	int (*name)(void *arg, uint8_t ret[16]); /* name of each new file; NULL: random */
	void *name_arg;
	bool sums; /* a checksum follows each value (kv_sum.h) */
	struct ocdbt_data_watcher watcher;
};
/* dir is borrowed. opts may be NULL. Nothing is created on disk before the first value. */
int ocdbt_data_new(struct io_dir *dir, const struct ocdbt_data_opts *opts, struct ocdbt_data **ret);
/* Values that are not synced may be lost. No call may be in progress. Accepts NULL. */
void ocdbt_data_free(struct ocdbt_data *data);
/* Add one value. An empty one is not stored; its reference has no path and no length. */
int ocdbt_data_put(struct ocdbt_data *data, struct span value, struct ocdbt_ref *ret);
/*
 * Add a value of elements as they are in memory, which programs may map: it begins at a multiple of
 * 8; of 64, and of 4096 if it has 64 KiB or more, as long as padding is at most 1 % of its file.
 */
#define OCDBT_PAGE_FROM (64 << 10)
int ocdbt_data_put_raw(struct ocdbt_data *data, struct span value, struct ocdbt_ref *ret);
/* The length of the paths of this writer's files. */
size_t ocdbt_data_path_len(const struct ocdbt_data *data);
/*
 * Make everything durable: files, and their names below dir. A file that reached target_size was
 * synced and closed before its successor began, so little is left to sync. -EBUSY while a value is
 * being added.
 */
int ocdbt_data_sync(struct ocdbt_data *data);
/*
 * Remove all files of the writer, which is then as new. -EBUSY while a value is being added; no
 * other thread may add one meanwhile.
 */
int ocdbt_data_discard(struct ocdbt_data *data);
/* Call each() with the path of each file. A non-zero result ends that and is returned. */
typedef int ocdbt_data_fn(void *arg, const char *path);
int ocdbt_data_each(struct ocdbt_data *data, ocdbt_data_fn *each, void *arg);
/* Locate a value to read it back before it is durable; it is inline while it is not written. */
int ocdbt_data_locate(struct ocdbt_data *data, const struct ocdbt_ref *ref, struct kv_loc *ret);

struct ocdbt_data_stats {
	uint64_t values, bytes, files; /* since the start or the last discard */
};
void ocdbt_data_stats(struct ocdbt_data *data, struct ocdbt_data_stats *ret);

/*
 * A value that is added piece by piece, and need not fit in memory. For one thread at a time. A
 * piece that fails is not added; it may be tried again, or the stream aborted.
 */
struct ocdbt_stream;
/* raw_bytes: about the size of a value as of ocdbt_data_put_raw(); 0: it is not one. */
int ocdbt_stream_open(struct ocdbt_data *data, uint64_t raw_bytes, struct ocdbt_stream **ret);
int ocdbt_stream_add(struct ocdbt_stream *s, struct span piece);
/*
 * Complete the value; no checksum follows one that is unchecked. On success s is freed; on failure
 * it is unchanged.
 */
int ocdbt_stream_close(struct ocdbt_stream *s, bool unchecked, struct ocdbt_ref *ret);
/* Drop the value and reuse its space. Accepts NULL. */
void ocdbt_stream_abort(struct ocdbt_stream *s);

/* ---- writing: trees ---- */

/* The configuration that Orbax uses, with a random uuid. */
int ocdbt_config_init(struct ocdbt_config *config);

/*
 * A sequence of entries in ascending order of their keys. It is read twice, because the shape of
 * the tree depends on the total size.
 */
struct ocdbt_source {
	/* Returns 1 and the next entry, borrowed until the next call; 0 at the end. */
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
 * Write the nodes of a tree with the entries of the source, shaped as TensorStore would, and set
 * root, height and statistics of *ret, with paths borrowed from data; the rest of *ret is 0.
 * Without entries, *ret is an empty version. Inline values that are longer than the configuration
 * allows are added to data. Memory: about one encoded node, and some 200 bytes and a key for each
 * node.
 *
 * -EINVAL when keys do not ascend. After an error, what was written is useless; data may be
 * discarded.
 */
int ocdbt_build(struct ocdbt_source *src, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret);

/* ---- writing: merging ---- */

struct ocdbt_merge_part {
	struct ocdbt *db;                    /* borrowed; opened in its own directory */
	const struct ocdbt_version *version; /* borrowed */
	const char *base; /* its directory, with a slash; "" for the directory of the result */
};
struct ocdbt_merge_stats {
	uint64_t keys;     /* in the result */
	uint64_t repeated; /* keys that an earlier part has, too, with the same value */
};
/*
 * Build a tree with the keys of all parts, as ocdbt_build() does. Values stay where they are and
 * are referred to; inline ones are copied. If several parts have a key, its values must be equal
 * byte for byte; otherwise -EUCLEAN, naming the key and two parts. Memory: 32 MiB of keys in
 * addition to that of ocdbt_build(), whatever the size of the parts. ocdbt_data_stats() counts what
 * was written.
 */
int ocdbt_merge(const struct ocdbt_merge_part *part, size_t n, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret,
		struct ocdbt_merge_stats *ret_stats);
/*
 * Merge the latest versions of the databases in these directories beneath dir, which is the
 * directory of data, too.
 */
int ocdbt_merge_dirs(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_config *config, struct ocdbt_data *data,
		     struct ocdbt_version *ret, struct ocdbt_merge_stats *ret_stats);

/* ---- writing: manifests ---- */

/*
 * Make a manifest with one version, of generation 1. time is in nanoseconds since 1970; 0: now. Of
 * root, only the members that ocdbt_build() sets are used, and copied. *ret needs
 * ocdbt_manifest_release().
 */
int ocdbt_manifest_first(const struct ocdbt_config *config, const struct ocdbt_version *root,
			 uint64_t time, struct ocdbt_manifest *ret);
/*
 * Make a manifest with db's versions and one more, committed at time, or 1 ns after the last
 * version if that is later. Version nodes that become necessary are added to data, which must be
 * below the same directory as db and be synced before the manifest is written. For databases of the
 * single kind only.
 */
int ocdbt_manifest_next(struct ocdbt *db, const struct ocdbt_version *root, uint64_t time,
			struct ocdbt_data *data, struct ocdbt_manifest *ret);
/*
 * Write a manifest to a file beneath dir and sync the file; its name is durable after IO_SYNC_DIR.
 * With name NULL, it is written in place to "manifest.ocdbt", for a directory that nobody reads
 * yet. Otherwise write it under another name and rename it, which is the commit. Do not use
 * "manifest.ocdbt.__lock", which is TensorStore's lock.
 */
int ocdbt_manifest_write(struct io_dir *dir, const struct ocdbt_manifest *m, const char *name);
/*
 * Write a new database: the nodes that build() makes, in data files of their own, then a manifest
 * of that name as by ocdbt_manifest_write(), each durable before the next. After a failure the data
 * files are removed; *ret is for a caller who may have to discard them later.
 */
typedef int ocdbt_build_fn(void *arg, const struct ocdbt_config *config, struct ocdbt_data *nodes,
			   struct ocdbt_version *ret);
int ocdbt_database_write(struct io_dir *dir, unsigned dir_mode, const char *name,
			 ocdbt_build_fn *build, void *arg, struct ocdbt_data **ret);

/* ---- checking ---- */

enum ocdbt_severity { OCDBT_INFO, OCDBT_WARN, OCDBT_ERROR };

struct ocdbt_finding {
	enum ocdbt_severity severity;
	const char *where; /* "btreenode:PATH:OFF:LEN", "file:PATH", "version:N" */
	const char *text;  /* description of the fault */
	int code;          /* errno of a failed read or parse; 0: records do not agree */
};
/* A non-zero result ends the check and is returned. */
typedef int ocdbt_finding_fn(void *arg, const struct ocdbt_finding *f);

struct ocdbt_check_opts {
	/* check all versions and the version nodes, instead of the current version */
	bool all_versions;
	/* report unreferenced data files, which is not a fault; needs all_versions */
	bool unused_files;
	ocdbt_finding_fn *found;
	void *arg;
};
struct ocdbt_check_stats {
	uint64_t versions, version_nodes, nodes, keys, value_bytes, files;
	uint64_t errors, warnings;
};
/*
 * Check everything about a database that does not depend on the meaning of values: each node by
 * itself, each reference against its target (height, bounds of keys, statistics), the claims of
 * version nodes, and that every value lies inside an existing file. Returns 0 when the check was
 * complete, whatever it found; -EFBIG when the database exceeds the limits of one traversal.
 */
int ocdbt_check(struct ocdbt *db, const struct ocdbt_check_opts *opts,
		struct ocdbt_check_stats *ret);

DEFINE_AUTO(ocdbt_data, struct ocdbt_data, ocdbt_data_free);
DEFINE_AUTO(ocdbt_stream, struct ocdbt_stream, ocdbt_stream_abort);
DEFINE_AUTO(ocdbt, struct ocdbt, ocdbt_db_close);
DEFINE_AUTO(ocdbt_cursor, struct ocdbt_cursor, ocdbt_cursor_close);

#endif
