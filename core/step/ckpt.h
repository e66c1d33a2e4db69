/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h - an opened SOURCE: everything that a process needs to read it. Nothing is global.
 *
 * ckpt_open() validates the SOURCE and starts no threads; ckpt_start() starts them, after any
 * fork().
 */
#ifndef PYTREEFS_CKPT_H
#define PYTREEFS_CKPT_H

#include "core/base/budget.h"
#include "core/step/detect.h"
#include "core/remote/source/url_store.h"
#include "core/tree/tree.h"
#include "core/zarr/zarr.h"
#include "core/zarr/write/zarr_write.h"

enum missing { MISSING_AUTO, MISSING_ERROR, MISSING_ZERO };
enum atomicity { ATOMICITY_AUTO, ATOMICITY_RENAME, ATOMICITY_COMMIT_FILE };
/*
 * Whether SOURCE may be a safetensors file, or a directory of such, which is read as an item: if it
 * is not a checkpoint, or whatever else it is.
 */
enum tensors { TENSORS_NO, TENSORS_ELSE, TENSORS_ONLY };

struct ckpt_opts {
	const char *source;          /* a path, or a URL (core/remote) */
	struct url_store_opts store; /* if source is a URL; `names` is set by ckpt_open() */
	const char *io;              /* engine stack: "auto", "trace:sync" */
	bool keep_written;           /* written files stay in the page cache */
	enum shape shape;            /* SHAPE_UNKNOWN: detect it */
	const char *todelete; /* where deleted steps of a root are moved, relative to it; or NULL */
	uint64_t cache_bytes, read_budget, write_budget;
	const char *spill_dir; /* directory of spill files; NULL: none are made */
	uint64_t spill_limit;
	unsigned threads; /* 0: one per processor */
	enum missing missing;
	enum atomicity atomicity;
	const char *aggregate_filename; /* of legacy items, "checkpoint" */
	enum tensors tensors;
	const char *safetensors_separator; /* NULL: "." */
	bool is_above;                     /* SOURCE was not named, but a path in it */
	/*
	 * Other users read through it, so that no symbolic links are followed
	 * (io_follow_no_links()). A user who may write in SOURCE could otherwise replace a step,
	 * after its permissions were checked, by a link to one that only the user of the mount may
	 * read.
	 */
	bool for_others;
	/* Returns the extension of a leaf's default format; set by the handlers. */
	tree_ext_fn *ext_of;
	void *ext_arg;
	/* May replace the stored tree of an item by one made from it; NULL: the tree is kept. */
	int (*retree)(void *arg, const char *path, struct tree **tree);
	void *retree_arg;
};

struct ckpt {
	struct ckpt_opts opts; /* the strings are borrowed from the caller of ckpt_open() */
	struct io_engine *io;
	struct io_dir *source; /* the directory SOURCE, or the one that the file SOURCE is in */
	enum shape shape;
	/*
	 * SOURCE is not a checkpoint: its only item is this file of safetensors or flax in
	 * `source`, or "." for all files of safetensors in it. NULL: SOURCE is a checkpoint.
	 */
	char *only_item;
	bool is_flax;         /* the only item is a file of flax */
	char *dir;            /* path or URL of `source`, if SOURCE is a file; else NULL */
	char *file;           /* path of the file SOURCE; NULL: it is not one, or a URL */
	const char *names[2]; /* of files to look for on a server that cannot list */
	struct cache *cache;
	struct pool *pool; /* NULL until ckpt_start() */
	/* set by ckpt_share_memory() */
	struct budget read_budget, write_budget;
	struct budget upload_budget; /* parts that are being sent */
	bool sends;                  /* written steps are sent, so upload_budget has a share */
	struct streams *streams;
	struct meta_cache *metas;
	uint64_t owner;      /* of errors of items and arrays (core/base/refusal.h) */
	struct zarr_env env; /* used by all arrays */
	/*
	 * Used by arrays that are read while an array computed from them is being read: the reader
	 * of the latter may hold a part of read_budget, and may be a worker of the pool.
	 */
	struct zarr_env inner_env;
	struct budget inner_budget;
	struct write_env write_env; /* used by all writers */
	struct stat st;             /* of SOURCE at ckpt_open() */
};

/*
 * Open SOURCE. The strings in opts are borrowed until ckpt_close(). -EINVAL when SOURCE is not a
 * checkpoint (see detect_shape()).
 */
int ckpt_open(const struct ckpt_opts *opts, struct ckpt **ret);
/* The length of the part of the URL that is a directory: url_search(). */
int ckpt_search(const char *url, const struct url_store_opts *opts, struct url_search *search,
		size_t *ret);
/* Whether a directory of SOURCE is a step only with commit_success.txt: need_marker of step.h. */
static inline bool ckpt_needs_marker(const struct ckpt *c)
{
	return c->opts.atomicity == ATOMICITY_COMMIT_FILE;
}
/* Whether SOURCE is a file, which is not alone in the directory `source`. */
static inline bool ckpt_is_file(const struct ckpt *c)
{
	return c->dir != NULL;
}
/* The number of threads that ckpt_start() starts. */
unsigned ckpt_threads(const struct ckpt *c);
int ckpt_start(struct ckpt *ckpt);
/*
 * Divide the values of the options among budgets: half of read_budget is for readers, the other one
 * for decoders, and an eighth beside them for arrays below computed ones, whose readers must not
 * wait for what they hold; if steps are uploaded, half of write_budget is for parts that are being
 * sent, but at least one part: they may not wait for programs that fill the other half. The share
 * of decoders stays as ckpt_open() set it. Any thread may call.
 */
void ckpt_share_memory(struct ckpt *ckpt, uint64_t read_budget, uint64_t write_budget);
/*
 * Stops the threads and frees everything. All items and files opened from it must be closed before.
 * Accepts NULL.
 */
void ckpt_close(struct ckpt *ckpt);

DEFINE_AUTO(ckpt, struct ckpt, ckpt_close);

#endif
