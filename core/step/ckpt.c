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
#include "core/step/known_names.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "core/zarr/meta/meta_cache.h"
#include "core/zarr/stream.h"

#define REFUSED_MAX 256 /* arrays whose errors are remembered */

#define THREADS_WAITING 32u /* the most threads that wait for a store */

static unsigned processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return MAX(1u, (unsigned)CPU_COUNT(&set));
	return (unsigned)MAX(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

static int find_safetensors(void *arg, const char *name, unsigned char type)
{
	(void)type;
	return name[0] != '.' && span_ends(span_str(name), span_str(".safetensors")) ?
		       buf_add_str(arg, name) < 0 ? -ENOMEM : 1 :
		       0;
}

/* Say that a file beside the checkpoint is another model, which has a name of its own. */
static void warn_of_safetensors(const struct ckpt *c)
{
	const char *source = c->opts.source;
	auto_buf name = { 0 };

	if (c->opts.safetensors || c->opts.is_above || io_dir_in_store(c->source))
		return;
	if (io_list(c->source, ".", find_safetensors, &name) > 0)
		log_warn("'%s' is read as the %s in it; another model beside it is '%s/%.*s': "
			 "that name reads it",
			 source, shape_text(c->shape), source, SPAN_ARG(buf_span(&name)));
	err_clear();
}

static int open_source(struct ckpt *c)
{
	int r = path_is_url(c->opts.source) ? io_store_root(c->io, &c->source) :
					      io_dir_open(c->io, c->opts.source, &c->source);

	if (r >= 0)
		r = io_stat(c->source, ".", &c->st);
	if (r >= 0)
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
	} else if (c->shape != SHAPE_ROOT && !c->opts.safetensors &&
		   detect_holds_steps(c->source, ".") > 0) {
		r = fail(-EINVAL, "'%s' is a directory of steps, not a step or an item (shape=)",
			 c->opts.source);
	}
	trace(TRACE_STEP, "source '%s' is a %s", c->opts.source,
	      r < 0 ? "?" : shape_text(c->shape));
	return r;
}

static int open_engine(struct ckpt *c)
{
	struct io_store *store;
	int r;

	if (!path_is_url(c->opts.source))
		return io_engine_open(c->opts.io, &c->io);
	c->opts.store.names = known_names;
	/* A prefix exists only once it has an object, so that of a new root has none. */
	c->opts.store.may_be_empty = c->opts.shape == SHAPE_ROOT && store_is_bucket(c->opts.source);
	r = store_open(c->opts.source, &c->opts.store, &store);
	if (r < 0)
		return r;
	if (store->no_rename && c->opts.atomicity == ATOMICITY_AUTO)
		c->opts.atomicity = ATOMICITY_COMMIT_FILE;
	return io_engine_open_store(c->opts.io, store, &c->io);
}

int ckpt_open(const struct ckpt_opts *opts, struct ckpt **ret)
{
	struct ckpt *c = calloc(1, sizeof(*c));
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
	refusals_init(&c->refused_arrays, REFUSED_MAX);
	budget_init(&c->read_budget, "half of read_budget", opts->read_budget / 2);
	budget_init(&c->write_budget, "write_budget", opts->write_budget);
	budget_init(&c->inner_budget, "an eighth of read_budget",
		    MAX(8 * MiB, opts->read_budget / 8));
	r = open_engine(c);
	if (r >= 0 && opts->keep_written)
		io_keep_written(c->io);
	if (r >= 0)
		r = open_source(c);
	if (r >= 0)
		r = cache_new(opts->cache_bytes, &c->cache);
	if (r >= 0)
		cache_give_way(c->cache);
	if (r >= 0)
		r = streams_new(&so, &c->streams);
	if (r >= 0)
		r = meta_cache_new(&c->metas);
	if (r < 0) {
		ckpt_close(c);
		return r;
	}
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
	*ret = c;
	return 0;
}

int ckpt_reach(const char *url, const struct url_store_opts *opts, size_t *ret)
{
	struct url_store_opts so = *opts;

	so.names = known_names;
	return store_reach(url, &so, ret);
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
	refusals_release(&c->refused_arrays);
	budget_release(&c->read_budget);
	budget_release(&c->write_budget);
	budget_release(&c->inner_budget);
	block_trim();
	free(c);
}
