/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_store.h - the interface of a source that is not in a file system: a bucket, a web server.
 *
 * A store looks up paths, lists directories and reads ranges of objects, in batches. It has no
 * descriptors, so operations that need one (splice, mmap, locks) are not possible, and their
 * callers have an alternative. A store is only read, never written.
 *
 * Paths are relative to the store's root and already checked: no "..", no empty component; "" is
 * the root. Messages of a store name the whole URL, but no secret.
 */
#ifndef PYTREEFS_IO_STORE_H
#define PYTREEFS_IO_STORE_H

#include "core/io/io.h"

#define IO_TAG_MAX 256

struct io_store;

/* An object, or a directory: a common prefix of objects. */
struct io_object {
	bool is_dir;
	uint64_t size;
	struct timespec mtime; /* of a directory: the newest of its objects, or 0 */
	char tag[IO_TAG_MAX];  /* changes when the bytes change; "" when the store has no tags */
};

/* The range of an object that the opener reads next. */
struct io_want {
	uint64_t off;
	size_t n; /* the object may end earlier */
};

/* A non-zero result ends the listing. */
typedef int io_store_fn(void *arg, const char *name, const struct io_object *object);

/* Counts of reads. */
struct io_store_stats {
	uint64_t requests, retries, received_bytes;
	int64_t date;                      /* the server's clock, by its answers; 0: unknown */
	bool has_cache;                    /* on disk */
	uint64_t cache_hits, cache_misses; /* pieces: read from the cache; fetched */
	uint64_t cache_hit_bytes, fetched_bytes;
	uint64_t cache_stored, cache_evicted, cache_damaged; /* pieces */
};

struct io_store_ops {
	const char *name;
	/*
	 * Passes the top of the engine stack that the store is a part of, for the store's own files
	 * on this machine. Called once, before anything else. NULL: the store has no such files.
	 */
	int (*begin)(struct io_store *store, struct io_engine *io);
	/*
	 * -ENOENT with a note when path is neither an object nor a directory. A store that has to
	 * ask its server may ask for the range `want` of the object, and answer the next read from
	 * that. want is NULL when no read follows.
	 */
	int (*lookup)(struct io_store *store, const char *path, const struct io_want *want,
		      struct io_object *ret);
	int (*list)(struct io_store *store, const char *path, io_store_fn *each, void *arg);
	/*
	 * As of an engine: reads of files of this store, starting at `done`. A file has its path
	 * (`key`), tag and size; if the path has another object by now, the read fails with
	 * -ESTALE.
	 */
	int (*submit)(struct io_store *store, struct io_req *req, size_t n);
	int (*wait)(struct io_store *store, struct io_req *req, size_t n);
	/* io_store_refresh() */
	void (*refresh)(struct io_store *store);
	/* io_quiesce() */
	void (*quiesce)(struct io_store *store);
	/*
	 * The i-th file or directory of this machine that the store will read; NULL after the last.
	 */
	const char *(*file)(struct io_store *store, size_t i);
	void (*stats)(struct io_store *store,
		      struct io_store_stats *ret); /* NULL: the store counts nothing */
	void (*free)(struct io_store *store);
};

struct io_store {
	const struct io_store_ops *ops;
	char *url; /* of the root, without credentials; owned by the store */
	char *top; /* the directory that was opened, below the root; NULL: the root */
	/* directories appear file by file, so a step is complete when it has its marker file */
	bool no_rename;
	bool no_list; /* the server cannot list: a listing has those names that could be guessed */
};

/*
 * Like io_engine_open(), with this store as a part of the stack. The engine owns the store, even on
 * failure.
 */
int io_engine_open_store(const char *stack, struct io_store *store, struct io_engine **ret);
/* Open the directory that the store was opened for. -ENOENT when nothing is there. */
int io_store_root(struct io_engine *io, struct io_dir **ret);
/* The member `file` of the engine's store; NULL when it has no store. */
const char *io_store_file(struct io_engine *io, size_t i);
/* The statistics of the engine's store; false when it has no store, or one that counts nothing. */
bool io_store_stats(struct io_engine *io, struct io_store_stats *ret);
/*
 * This process has written to the source that the engine's store reads: later look-ups and listings
 * must ask the server again.
 */
void io_store_refresh(struct io_engine *io);
/* Whether a listing of dir has all of its names: false on a server that cannot list. */
bool io_dir_can_list(const struct io_dir *dir);
/* Whether dir is a directory of a store. */
static inline bool io_dir_in_store(const struct io_dir *dir)
{
	return dir->prefix != NULL;
}

#endif
