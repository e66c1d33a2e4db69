/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_store.h - what a source that is not in a file system implements: a bucket, a web server.
 *
 * A store looks up a path, lists a directory and reads ranges of objects, in batches. It gives no
 * descriptors: what needs one (splice, a map, a lock) gets none, and has another way. A store is
 * read, and never written.
 *
 * Paths are relative to the store's root, already checked: no "..", no empty part; "" is the root.
 * Messages of a store name the whole URL, and no secret.
 */
#ifndef PYTREEFS_IO_STORE_H
#define PYTREEFS_IO_STORE_H

#include "core/io/io.h"

#define IO_TAG_MAX 256

struct io_store;

/* An object, or a directory: what paths below it begin with. */
struct io_object {
	bool is_dir;
	uint64_t size;
	struct timespec mtime; /* of a directory: of the newest of what is in it, or 0 */
	char tag[IO_TAG_MAX];  /* changes with the bytes; "" when the store has none */
};

/* A range of an object that its opener reads next. */
struct io_want {
	uint64_t off;
	size_t n; /* the object may end before */
};

/* Stops early with a non-zero return. */
typedef int io_store_fn(void *arg, const char *name, const struct io_object *object);

/* Of what was read; a store without a cache on disk has none. */
struct io_store_stats {
	uint64_t cache_hits, cache_misses; /* pieces: read from disk, and fetched */
	uint64_t cache_hit_bytes, fetched_bytes;
	uint64_t cache_stored, cache_evicted, cache_damaged; /* pieces */
};

struct io_store_ops {
	const char *name;
	/*
	 * The top of the stack that the store is a part of, for files of its own on this machine.
	 * Called once, before anything else; NULL: it has none.
	 */
	int (*begin)(struct io_store *store, struct io_engine *io);
	/*
	 * -ENOENT with a note when it is neither an object nor a directory. A store that has to ask
	 * for an object may ask for `want` of it, so that the read of that is answered, too. NULL:
	 * nothing is read next.
	 */
	int (*lookup)(struct io_store *store, const char *path, const struct io_want *want,
		      struct io_object *ret);
	int (*list)(struct io_store *store, const char *path, io_store_fn *each, void *arg);
	/*
	 * As of an engine: reads of files of this store, from `done` on. What a file has are its
	 * path
	 * (`key`), tag and size; another object of that path is -ESTALE.
	 */
	int (*submit)(struct io_store *store, struct io_req *req, size_t n);
	int (*wait)(struct io_store *store, struct io_req *req, size_t n);
	/* io_store_refresh() */
	void (*refresh)(struct io_store *store);
	/* io_quiesce() */
	void (*quiesce)(struct io_store *store);
	/* The i-th file or directory of this machine that it will read; NULL after the last. */
	const char *(*file)(struct io_store *store, size_t i);
	void (*stats)(struct io_store *store,
		      struct io_store_stats *ret); /* NULL: it counts nothing */
	void (*free)(struct io_store *store);
};

struct io_store {
	const struct io_store_ops *ops;
	char *url;      /* of the root, without credentials; the store's own */
	bool no_rename; /* a directory appears file by file: a step in it is one with its marker */
};

/*
 * io_engine_open() of an engine that reads this store, too, as a part of the stack; the store is
 * the engine's then, also on failure.
 */
int io_engine_open_store(const char *stack, struct io_store *store, struct io_engine **ret);
/* The store's root. -ENOENT when nothing is there. */
int io_store_root(struct io_engine *io, struct io_dir **ret);
/* `file` of the store that this engine reads; NULL when it has none. */
const char *io_store_file(struct io_engine *io, size_t i);
/* Of the store that this engine reads; false when it has none, or that counts nothing. */
bool io_store_stats(struct io_engine *io, struct io_store_stats *ret);
/* This process wrote to what the engine's store reads: look-ups and listings ask the server again.
 */
void io_store_refresh(struct io_engine *io);
/* Whether paths beneath dir are a store's. */
static inline bool io_dir_in_store(const struct io_dir *dir)
{
	return dir->prefix != NULL;
}

#endif
