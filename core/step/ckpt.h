/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h - an opened SOURCE: everything that a process needs of it, passed in, nothing global.
 *
 * ckpt_open() validates and may print through the caller; it makes no thread.
 * ckpt_start() makes threads: after any fork.
 */
#ifndef PYTREEFS_CKPT_H
#define PYTREEFS_CKPT_H

#include "core/base/budget.h"
#include "core/base/refusal.h"
#include "core/step/detect.h"
#include "core/store/url_store.h"
#include "core/tree/tree.h"
#include "core/zarr/zarr.h"
#include "core/zarr/zarr_write.h"

enum missing { MISSING_AUTO, MISSING_ERROR, MISSING_ZERO };
enum atomicity { ATOMICITY_AUTO, ATOMICITY_RENAME, ATOMICITY_COMMIT_FILE };

struct ckpt_opts {
	const char *source;          /* a path, or a URL (core/store) */
	struct url_store_opts store; /* of a URL; its names are ours */
	const char *io;              /* engine stack: "auto", "trace:sync" */
	bool keep_written;           /* what is saved stays in the page cache */
	enum shape shape;            /* SHAPE_UNKNOWN: recognise it */
	const char *todelete; /* where deleted steps of a root are moved, below it; or NULL */
	uint64_t cache_bytes, read_budget, write_budget;
	const char *spill_dir; /* NULL: no spill files */
	uint64_t spill_limit;
	unsigned threads; /* 0: one per processor */
	enum missing missing;
	enum atomicity atomicity;
	const char *aggregate_filename; /* of legacy items: "checkpoint" */
	/* SOURCE is not a checkpoint: its one item is this safetensors file in it, or "." for the
	 * shards in it. NULL: it is one. */
	const char *safetensors;
	const char *safetensors_separator; /* NULL: "." */
	/* Which extension a leaf's default format has; from the handlers. */
	tree_ext_fn *ext_of;
	void *ext_arg;
	/* May put another tree, made of it, in the place of an item's stored one; or NULL. */
	int (*retree)(void *arg, const char *path, struct tree **tree);
	void *retree_arg;
};

struct ckpt {
	struct ckpt_opts opts; /* strings are borrowed from who opened it */
	struct io_engine *io;
	struct io_dir *source;
	enum shape shape;
	struct cache *cache;
	struct pool *pool; /* NULL until ckpt_start() */
	struct budget read_budget, write_budget;
	struct streams *streams;
	struct meta_cache *metas;
	struct refusals refused_arrays; /* by item and leaf */
	struct zarr_env env;            /* of all arrays */
	/*
	 * Of arrays that are read while another one, made of them, is being read: that one's reader
	 * may hold some of the budget, and it may be a worker of the pool.
	 */
	struct zarr_env inner_env;
	struct budget inner_budget;
	struct write_env write_env; /* of all that are written */
	struct stat st;             /* of SOURCE, when it was opened */
};

/* -EINVAL when SOURCE is nothing of ours (see detect_shape()). */
int ckpt_open(const struct ckpt_opts *opts, struct ckpt **ret);
/* How much of a path of a URL is a directory there, as store_reach(). */
int ckpt_reach(const char *url, const struct url_store_opts *opts, size_t *ret);
/* How many threads ckpt_start() starts. */
unsigned ckpt_threads(const struct ckpt *c);
int ckpt_start(struct ckpt *ckpt);
/* Everything that was opened through it must be closed. Accepts NULL. */
void ckpt_close(struct ckpt *ckpt);

DEFINE_AUTO(ckpt, struct ckpt, ckpt_close);

#endif
