/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.c - the engine, caches and threads of an opened SOURCE.
 */
#include "core/step/ckpt.h"

#include <sched.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/bucket/bucket_write.h"
#include "core/step/item_safetensors.h"
#include "core/step/known_names.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "core/zarr/meta/meta_cache.h"
#include "core/zarr/stream.h"

#define THREADS_WAITING 32u /* the most threads that wait for a store */

static unsigned processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return MAX(1u, (unsigned)CPU_COUNT(&set));
	return (unsigned)MAX(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

/* Puts the least name in place of what arg has: directories have no order. */
static int find_safetensors(void *arg, const char *name, unsigned char type)
{
	struct buf *least = arg;

	(void)type;
	if (!item_is_safetensors(name) || (least->n && strcmp(name, (char *)least->p) >= 0))
		return 0;
	least->n = 0;
	return buf_add(least, name, strlen(name) + 1);
}

/* Say that a file beside the checkpoint is another model, which has a name of its own. */
static void warn_of_safetensors(const struct ckpt *c)
{
	const char *source = c->opts.source;
	auto_buf name = { 0 };

	if (c->opts.is_above || io_dir_in_store(c->source))
		return;
	if (io_list(c->source, ".", find_safetensors, &name) >= 0 && name.n)
		log_warn("'%s' is read as the %s in it; another model beside it is '%s/%s': "
			 "that name reads it",
			 source, shape_text(c->shape), source, (char *)name.p);
	err_clear();
}

static int ckpt_open_directory(struct ckpt *c)
{
	const char *path = c->dir ? c->dir : c->opts.source;
	int r = path_is_url(path) ? io_store_root(c->io, &c->source) :
				    io_dir_open(c->io, path, &c->source);

	return r < 0 ? r : io_stat(c->source, ".", &c->st);
}

/* Items inside an item of a step are marked as a step of a root is. */
static bool is_of_steps(const struct ckpt *c)
{
	enum shape shape = SHAPE_UNKNOWN;

	if (detect_holds_steps(c->source, ".") <= 0)
		return false;
	if (detect_shape(c->source, ".", c->opts.todelete, &shape) < 0)
		err_clear();
	return shape != SHAPE_STEP && shape != SHAPE_ITEM;
}

static int open_checkpoint(struct ckpt *c)
{
	int r = ckpt_open_directory(c);

	if (r < 0)
		return r;
	r = step_is_whole(c->source, ".");
	if (r == 0)
		return fail(-EBUSY, "'%s' is not committed: %s in it says that it is being copied",
			    c->opts.source, STEP_DRAFT);
	if (r < 0)
		return r;
	c->shape = c->opts.shape;
	if (c->shape == SHAPE_UNKNOWN) {
		r = detect_shape(c->source, ".", c->opts.todelete, &c->shape);
		/* A neighbour of the path that cannot be read says nothing about the path. */
		if (r == -EIO && c->opts.is_above && !io_dir_in_store(c->source))
			r = err_at(-EINVAL, "'%s' is not a checkpoint", c->opts.source);
		if (r >= 0)
			warn_of_safetensors(c);
	} else if (c->shape != SHAPE_ROOT && is_of_steps(c)) {
		r = fail(-EINVAL, "'%s' is a directory of steps, not a step or an item (shape=)",
			 c->opts.source);
	}
	trace(TRACE_STEP, "source '%s' is a %s", c->opts.source,
	      r < 0 ? "?" : shape_text(c->shape));
	return r;
}

/* ---- a safetensors file, or a directory of such ---- */

/* Make SOURCE a file in a directory. */
static int set_file(struct ckpt *c, const char *path)
{
	const char *slash = strrchr(path, '/');

	free(c->dir);
	free(c->file);
	free(c->only_item);
	c->file = path_is_url(path) ? NULL : strdup(path);
	c->dir = !slash        ? strdup(".") :
		 slash == path ? strdup("/") :
				 span_dup_str(span_of(path, (size_t)(slash - path)));
	c->only_item = strdup(slash ? slash + 1 : path);
	return c->dir && c->only_item && (c->file || path_is_url(path)) ?
		       0 :
		       fail(-ENOMEM, "cannot open '%s'", path);
}

/* See whether SOURCE is a file. A URL is one by its name: no server is asked. */
static int ckpt_find_file(struct ckpt *c)
{
	const char *path = c->opts.source, *host = path_is_url(path) ? strstr(path, "://") : NULL;
	struct stat st;

	if (c->opts.tensors == TENSORS_NO || !item_is_whole_file(path))
		return 0;
	if (host ? !strchr(host + 3, '/') : stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	c->is_flax = !item_is_safetensors(path);
	return set_file(c, path);
}

/* Whether a file is in the directory in which links of SOURCE may end. */
static bool is_blob(const struct ckpt *c, const char *path)
{
	auto_free char *dir = span_dup_str(span_of(path, (size_t)(strrchr(path, '/') - path)));
	const int blobs = io_dir_blobs(c->source);
	struct stat a, b;

	return dir && blobs >= 0 && fstat(blobs, &a) == 0 && stat(dir, &b) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/*
 * A file SOURCE that is a link is the file that it leads to, since the user named it. In a snapshot
 * of a hub the links of the directory are followed, and the name says what the file is.
 */
static int follow_link(struct ckpt *c)
{
	auto_free char *real = NULL;
	struct err_note why = { 0 };
	struct stat st;
	int r;

	if (!c->dir || c->source->fd < 0 || lstat(c->opts.source, &st) < 0 || !S_ISLNK(st.st_mode))
		return 0;
	r = io_dir_blobs(c->source) >= 0 ? io_stat(c->source, c->only_item, &st) : -EUCLEAN;
	if (r >= 0)
		return 0;
	err_save(r, &why);
	real = realpath(c->opts.source, NULL);
	if (!real)
		return err_sys("cannot open", c->opts.source);
	if (is_blob(c, real))
		return err_restore(&why);
	r = set_file(c, real);
	io_dir_close(take(c->source));
	return r < 0 ? r : ckpt_open_directory(c);
}

/* On a server that cannot list, the index says that there are others. */
static int check_has_tensors(struct ckpt *c)
{
	auto_buf name = { 0 };
	struct stat st;
	int r = io_list(c->source, ".", find_safetensors, &name);

	if (r < 0 || name.n)
		return r;
	if (!io_dir_can_list(c->source) && io_stat(c->source, ITEM_SHARDS_INDEX, &st) >= 0)
		return 0;
	return fail(-EINVAL, "'%s' has no .safetensors files", c->opts.source);
}

static int look_for_tensors(struct ckpt *c)
{
	struct stat st;
	int r = ckpt_open_directory(c);

	if (r < 0)
		return r;
	r = follow_link(c);
	if (r < 0)
		return r;
	return c->dir ? io_stat(c->source, c->only_item, &st) : check_has_tensors(c);
}

static int open_tensors(struct ckpt *c)
{
	int r = look_for_tensors(c);

	c->shape = SHAPE_ITEM;
	return r == -ENOENT && c->dir ? fail(r, "'%s' does not exist", c->opts.source) : r;
}

/* ---- opening ---- */

static int open_engine(struct ckpt *c)
{
	const char *path = c->dir ? c->dir : c->opts.source;
	struct io_store *store;
	int r;

	if (!path_is_url(path))
		return io_engine_open(c->opts.io, &c->io);
	/* A server that cannot list is asked by names for the contents of a directory. */
	c->opts.store.names = known_names;
	if (c->dir) {
		c->names[0] = c->only_item;
		c->opts.store.names = (struct store_names){ .name = c->names, .n_first = 1 };
	}
	/* A prefix exists only once it has an object, so that of a new root has none. */
	c->opts.store.may_be_empty = c->opts.shape == SHAPE_ROOT && store_is_bucket(path);
	r = store_open(path, &c->opts.store, &store);
	c->opts.store.search = NULL;
	if (r < 0)
		return r;
	if (store->no_rename && c->opts.atomicity == ATOMICITY_AUTO)
		c->opts.atomicity = ATOMICITY_COMMIT_FILE;
	return io_engine_open_store(c->opts.io, store, &c->io);
}

static int open_source(struct ckpt *c)
{
	/* A second attempt to open SOURCE, as something else, goes on with the engine. */
	int r = c->io ? 0 : open_engine(c);

	if (r < 0)
		return r;
	if (c->opts.keep_written)
		io_keep_written(c->io);
	/* Before anything is opened: files that are open stay so. */
	if (c->opts.for_others)
		io_follow_no_links(c->io);
	return c->only_item ? open_tensors(c) : open_checkpoint(c);
}

static int open_as_directory_of_tensors(struct ckpt *c)
{
	c->only_item = strdup(".");
	return c->only_item ? open_source(c) : fail(-ENOMEM, "cannot open '%s'", c->opts.source);
}

/* Open SOURCE for what it is. A checkpoint comes first. */
static int open_any(struct ckpt *c)
{
	struct err_note why;
	int r = ckpt_find_file(c);

	if (r < 0 || c->only_item)
		return r < 0 ? r : open_source(c);
	if (c->opts.tensors == TENSORS_ONLY)
		return open_as_directory_of_tensors(c);
	r = open_source(c);
	if (c->opts.tensors == TENSORS_NO || c->opts.shape != SHAPE_UNKNOWN ||
	    (r != -EINVAL && (r != -ENOENT || !path_is_url(c->opts.source))))
		return r;
	err_save(r, &why);
	io_dir_close(take(c->source));
	r = open_as_directory_of_tensors(c);
	return r == -EINVAL || r == -ENOENT ? err_restore(&why) : r;
}

int ckpt_open(const struct ckpt_opts *opts, struct ckpt **ret)
{
	auto_of(ckpt) struct ckpt *c = calloc(1, sizeof(*c));
	/*
	 * The window of a decoder is memory outside the cache: common frames need up to 8 MiB, the
	 * highest levels 128 MiB, which only a large cache allows. All decoders together may use
	 * half of the budget.
	 */
	struct streams_opts so = { .spill_dir = opts->spill_dir,
				   .spill_limit = opts->spill_limit,
				   .window_limit = MAX(9 * MiB, opts->cache_bytes / 2),
				   .decoder_limit = opts->read_budget / 2 };
	int r;

	if (!c)
		return fail(-ENOMEM, "cannot open '%s'", opts->source);
	c->opts = *opts;
	c->owner = cache_owner();
	budget_init(&c->read_budget, "half of read_budget", 0);
	budget_init(&c->write_budget, "write_budget", 0);
	budget_init(&c->upload_budget, "write_budget", 0);
	budget_init(&c->inner_budget, "an eighth of read_budget", 0);
	ckpt_share_memory(c, opts->read_budget, opts->write_budget);
	r = open_any(c);
	if (r < 0)
		return r;
	r = cache_new(opts->cache_bytes, &c->cache);
	if (r < 0)
		return r;
	r = streams_new(&so, &c->streams);
	if (r < 0)
		return r;
	r = meta_cache_new(&c->metas);
	if (r < 0)
		return r;
	c->env.io = c->io;
	c->env.cache = c->cache;
	c->env.budget = &c->read_budget;
	c->env.streams = c->streams;
	c->env.metas = c->metas;
	c->env.in_store = io_dir_in_store(c->source);
	c->inner_env = (struct zarr_env){
		.io = c->io, .cache = c->cache, .budget = &c->inner_budget, .streams = c->streams
	};
	write_env_init(&c->write_env, &c->env, &c->write_budget);
	*ret = take(c);
	return 0;
}

int ckpt_search(const char *url, const struct url_store_opts *opts, struct url_search *search,
		size_t *ret)
{
	struct url_store_opts so = *opts;

	so.names = known_names;
	return url_search(url, &so, search, ret);
}

unsigned ckpt_threads(const struct ckpt *c)
{
	unsigned connections = c->opts.store.connections;

	if (c->opts.threads)
		return c->opts.threads;
	/*
	 * Threads that read from a store mostly wait for answers, each for one at a time, so there
	 * may be more of them than processors.
	 */
	return io_dir_in_store(c->source) ? MAX(processors(), MIN(connections, THREADS_WAITING)) :
					    processors();
}

int ckpt_start(struct ckpt *c)
{
	int r = pool_new(ckpt_threads(c), &c->pool);

	c->env.pool = c->pool;
	return r;
}

void ckpt_share_memory(struct ckpt *c, uint64_t read_budget, uint64_t write_budget)
{
	uint64_t sent = c->sends ? MAX(write_budget / 2, PART_BYTES) : 0;

	budget_resize(&c->read_budget, read_budget / 2);
	budget_resize(&c->inner_budget, MAX(8 * MiB, read_budget / 8));
	budget_resize(&c->write_budget,
		      MAX(write_budget - MIN(write_budget, sent), write_budget / 2));
	budget_resize(&c->upload_budget, sent);
}

void ckpt_close(struct ckpt *c)
{
	if (!c)
		return;
	/* Jobs in flight hold streams and entries of the cache. */
	pool_free(c->pool);
	streams_free(c->streams);
	meta_cache_free(c->metas);
	cache_free(c->cache);
	io_dir_close(c->source);
	io_engine_close(c->io);
	if (c->write_env.env)
		write_env_release(&c->write_env);
	budget_release(&c->read_budget);
	budget_release(&c->write_budget);
	budget_release(&c->upload_budget);
	budget_release(&c->inner_budget);
	block_trim();
	free(c->only_item);
	free(c->dir);
	free(c->file);
	free(c);
}
