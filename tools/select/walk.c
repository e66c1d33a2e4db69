/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c - assigns leaves to threads.
 *
 * A thread takes the first remaining task of the leaves in progress. If there is none, it opens the
 * next leaf; if there is no room for another leaf, it waits. So all threads share a large leaf, and
 * small leaves are spread over them.
 */
#include "tools/select/walk.h"

#include <pthread.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/wire.h"
#include "handlers/leaf/leaf.h"
#include "handlers/subtree/leaf_table.h"
#include "tools/scan/chunk_scan.h"

#define WINDOW 64          /* largest number of leaves in progress */
#define LARGE (1024 * GiB) /* a tebibyte: an hour at 300 MB/s */

struct walk_run {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Protected by lock. Leaf i is in slot i % WINDOW, from begun <= i until its end. */
	struct walk_leaf *leaf[WINDOW];
	size_t begun, ended;
	bool is_ending;         /* a thread is in ops->end */
	struct err_note failed; /* error of the walk */
};

/* ---- the list ---- */

int walk_init(struct walk *w, const struct subtree *st, const char *prefix, struct select *only)
{
	struct subtree_place at = { 0 };
	size_t cap = 0;

	*w = (struct walk){ .st = st, .prefix = prefix };
	while (subtree_next(st, &at)) {
		if (at.node->kind != TREE_LEAF || !select_leaf(only, prefix, at.part, at.node))
			continue;
		if (!array_reserve(w->place, cap, w->n + 1))
			return fail(-ENOMEM, "cannot list %zu leaves", w->n + 1);
		w->place[w->n++] = at;
	}
	return 0;
}

void walk_release(struct walk *w)
{
	free(w->place);
	*w = (struct walk){ 0 };
}

/* ---- one leaf ---- */

static void walk_leaf_free(struct walk_leaf *leaf)
{
	if (!leaf)
		return;
	value_release(&leaf->value);
	free(leaf->path);
	free(leaf);
}

static uint64_t leaf_bytes(const struct walk_leaf *leaf)
{
	const struct zarr_meta *m = leaf->value.kind == VALUE_ARRAY ? &leaf->value.array->meta :
								      NULL;

	return m ? m->n_elements * dtype_info(m->dtype)->size : 0;
}

void walk_share(const struct walk_leaf *leaf, const struct rank_group *t, int rank,
		uint64_t *ret_first, uint64_t *ret_end)
{
	uint64_t size = (uint64_t)t->peers->size, each = leaf->n_tasks / size,
		 more = leaf->n_tasks % size;
	uint64_t at = (uint64_t)rank;

	/* The first ranks have one more. */
	*ret_first = at * each + MIN(at, more);
	*ret_end = *ret_first + each + (at < more);
}

static int walk_leaf_open(const struct walk *w, struct walk_leaf *leaf)
{
	auto_buf path = { 0 };
	int r;

	if (buf_add_str(&path, w->prefix) >= 0 && subtree_path(leaf->part, leaf->node, &path) >= 0)
		leaf->path = span_dup_str(buf_span(&path));
	if (!leaf->path)
		return fail(-ENOMEM, "cannot name a leaf");
	r = leaf_open(leaf->part->item, leaf->node, &leaf->value);
	if (r < 0 || leaf->value.kind != VALUE_ARRAY)
		return r;
	return tiling_init(&leaf->tiling, leaf->value.array);
}

static int leaf_begin(const struct walk *w, struct walk_leaf *leaf)
{
	uint64_t end;
	int r = walk_leaf_open(w, leaf);

	leaf->is_shared = r >= 0 && w->group && w->ops->part &&
			  leaf_bytes(leaf) >= WALK_SPLIT_BYTES;
	/* A leaf of another rank is only opened to find out whether it is large. */
	if (leaf->is_elsewhere && !leaf->is_shared) {
		value_release(&leaf->value);
		leaf->value = (struct value){ 0 };
		err_clear();
		return leaf->path ? 0 : -ENOMEM;
	}
	leaf->per_task = div_up(MAX(leaf->tiling.n_tasks, (uint64_t)1), WALK_TASKS);
	leaf->n_tasks = div_up(leaf->tiling.n_tasks, leaf->per_task);
	if (r >= 0 && w->ops->begin)
		r = w->ops->begin(w->arg, leaf);
	end = leaf->n_tasks;
	if (leaf->is_shared)
		walk_share(leaf, w->group, w->group->peers->rank, &leaf->first, &end);
	leaf->n_own = end - leaf->first;
	return r;
}

static int report_leaf(struct walk *w, struct walk_leaf *leaf)
{
	auto_buf out = { 0 };
	int r = wire_put_u64le(&out, leaf->is_shared ?
					     leaf_bytes(leaf) / (uint64_t)w->group->peers->size :
					     leaf_bytes(leaf));

	if (r < 0)
		return r;
	r = leaf->is_shared ? w->ops->part(w->arg, leaf, &out) : w->ops->pack(w->arg, leaf, &out);
	return r < 0 ? r : group_send(w->group, leaf->path, buf_span(&out));
}

static int receive_from(struct walk *w, struct walk_leaf *leaf, int rank)
{
	auto_buf in = { 0 };
	int r = group_receive(w->group, rank, leaf->path, &in);
	struct wire wire = wire_of(buf_span(&in));
	uint64_t bytes = wire_u64le(&wire);
	struct span packed = wire_bytes(&wire, wire_left(&wire));

	if (r < 0)
		return r;
	if (w->progress)
		progress_add(w->progress, bytes);
	return (leaf->is_shared ? w->ops->join : w->ops->unpack)(w->arg, leaf, rank, packed);
}

/* Report a leaf, on the rank that reports it. */
static int end_one(struct walk *w, struct walk_leaf *leaf)
{
	bool is_others = leaf->is_elsewhere && !leaf->is_shared;

	if (!leaf->path)
		return err_restore(&leaf->failed);
	if (!group_is_lead(w->group))
		return is_others ? 0 : report_leaf(w, leaf);
	if (is_others)
		return receive_from(w, leaf, group_owner(w->group, w->first + leaf->number));
	/* Join the parts of all ranks. */
	for (int i = 1; leaf->is_shared && i < w->group->peers->size; i++) {
		int r = receive_from(w, leaf, i);

		if (r < 0)
			return r;
	}
	return w->ops->end(w->arg, leaf);
}

/* ---- the run ---- */

/* Called with the lock held, in the order of leaves. */
static void end_leaves(struct walk *w)
{
	struct walk_run *run = w->run;

	while (!run->is_ending && run->ended < run->begun) {
		struct walk_leaf *leaf = run->leaf[run->ended % WINDOW];
		int r;

		if (!leaf->is_open || leaf->ended < leaf->taken ||
		    (!leaf->failed.code && leaf->taken < leaf->n_own))
			return;
		run->is_ending = true;
		/* No other thread may access the leaf while it is freed. */
		run->leaf[run->ended % WINDOW] = NULL;
		pthread_mutex_unlock(&run->lock);
		r = end_one(w, leaf);
		if (r < 0 && !run->failed.code)
			err_save(r, &run->failed);
		walk_leaf_free(leaf);
		pthread_mutex_lock(&run->lock);
		run->ended++;
		run->is_ending = false;
		pthread_cond_broadcast(&run->changed);
	}
}

/* Called with the lock held, which is released during the work. */
static void open_next(struct walk *w, struct walk_leaf *leaf)
{
	struct walk_run *run = w->run;
	int r;

	leaf->number = run->begun;
	leaf->part = w->place[run->begun].part;
	leaf->node = w->place[run->begun].node;
	leaf->is_elsewhere = w->group && group_owner(w->group, w->first + leaf->number) !=
						 w->group->peers->rank;
	run->leaf[run->begun++ % WINDOW] = leaf;
	pthread_mutex_unlock(&run->lock);
	r = leaf_begin(w, leaf);
	pthread_mutex_lock(&run->lock);
	if (r < 0)
		err_save(r, &leaf->failed);
	leaf->is_open = true;
	pthread_cond_broadcast(&run->changed);
}

static void run_task(struct walk *w, struct walk_leaf *leaf, struct walk_worker *worker)
{
	struct walk_run *run = w->run;
	uint64_t task = leaf->first + leaf->taken++;
	int r;

	pthread_mutex_unlock(&run->lock);
	r = w->ops->task(w->arg, leaf, task, worker);
	pthread_mutex_lock(&run->lock);
	if (r < 0 && !leaf->failed.code)
		err_save(r, &leaf->failed);
	leaf->ended++;
	pthread_cond_broadcast(&run->changed);
}

static struct walk_leaf *leaf_with_tasks(const struct walk_run *run)
{
	for (size_t i = run->ended; i < run->begun; i++) {
		struct walk_leaf *leaf = run->leaf[i % WINDOW];

		if (leaf && leaf->is_open && !leaf->failed.code && leaf->taken < leaf->n_own)
			return leaf;
	}
	return NULL;
}

static int worker_run(void *arg)
{
	struct walk_worker *worker = arg;
	struct walk *w = worker->walk;
	struct walk_run *run = w->run;
	struct walk_leaf *leaf;

	pthread_mutex_lock(&run->lock);
	while (!run->failed.code && run->ended < w->n) {
		leaf = leaf_with_tasks(run);
		if (leaf) {
			run_task(w, leaf, worker);
		} else if (run->begun < w->n && run->begun - run->ended < WINDOW) {
			leaf = calloc(1, sizeof(*leaf));
			if (!leaf)
				err_save(fail(-ENOMEM, "cannot open a leaf"), &run->failed);
			else
				open_next(w, leaf);
		} else {
			/* Other threads run the last tasks, or open leaves. */
			end_leaves(w);
			if (!run->failed.code && run->ended < w->n && !leaf_with_tasks(run) &&
			    (run->begun == w->n || run->begun - run->ended == WINDOW))
				pthread_cond_wait(&run->changed, &run->lock);
		}
		end_leaves(w);
	}
	pthread_cond_broadcast(&run->changed);
	pthread_mutex_unlock(&run->lock);
	for (unsigned i = 0; i < ARRAY_LEN(worker->buf); i++)
		block_free(worker->buf[i], TILE_BYTES);
	return 0;
}

int walk_run(struct walk *w, const struct walk_ops *ops, void *arg, struct progress *progress)
{
	struct walk_run run = { .lock = PTHREAD_MUTEX_INITIALIZER,
				.changed = PTHREAD_COND_INITIALIZER };
	struct ckpt *ckpt = w->n ? w->place[0].part->item->ckpt : NULL;
	unsigned workers = ckpt ? MAX(1u, pool_threads(ckpt->pool)) : 0;
	auto_free struct walk_worker *worker = calloc(workers + 1, sizeof(*worker));
	int r = worker ? 0 : fail(-ENOMEM, "cannot start %u threads", workers);

	if (r < 0 || !ckpt)
		return r;
	w->ops = ops;
	w->arg = arg;
	w->progress = progress;
	if (progress && progress->on && !w->is_announced) {
		auto_leaf_table sizes = { 0 };

		r = leaf_table_make(w->st, 0, w->place, w->n, &sizes);
		if (r < 0)
			return r;
		for (size_t i = 0; i < sizes.n; i++)
			w->bytes += sizes.leaf[i].bytes;
		progress_expect(progress, w->bytes * MAX(w->passes, 1u));
		w->is_announced = true;
	}
	w->run = &run;
	for (unsigned i = 0; i < workers; i++)
		worker[i].walk = w;
	r = pool_run(ckpt->pool, worker_run, worker, sizeof(*worker), workers);
	/* After a failure, some leaves remain. */
	for (size_t i = 0; i < WINDOW; i++)
		walk_leaf_free(run.leaf[i]);
	w->run = NULL;
	return r < 0 ? r : run.failed.code ? err_restore(&run.failed) : 0;
}

void *walk_buf(struct walk_worker *worker, unsigned which)
{
	if (!worker->buf[which])
		worker->buf[which] = block_alloc(TILE_BYTES);
	return worker->buf[which];
}

int walk_tiles(struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker, walk_tile_fn *fn,
	       void *arg)
{
	uint64_t from = task * leaf->per_task,
		 to = MIN(from + leaf->per_task, leaf->tiling.n_tasks);
	void *buf = walk_buf(worker, 0);
	struct zarr *z = leaf->value.array;
	struct zarr_view v;
	struct tile tile;
	int r;

	if (!buf)
		return fail(-ENOMEM, "cannot read '%s'", leaf->path);
	for (; from < to; from++) {
		auto_chunk_scan chunk_scan = { 0 };

		tiling_first(&leaf->tiling, from, &tile);
		do {
			r = tile_view(z, &tile, &v);
			if (r < 0)
				return r;
			r = chunk_scan_read(&chunk_scan, z, &tile, &v, buf);
			if (r < 0)
				return r;
			r = fn(arg, leaf, &tile, buf, worker);
			if (r < 0)
				return r;
			if (worker->walk->progress)
				progress_add(worker->walk->progress, v.bytes);
		} while (tiling_next(&leaf->tiling, from, &tile));
	}
	return 0;
}

/* ---- statistics ---- */

int walk_numbers_begin(void *arg, struct walk_leaf *leaf)
{
	uint64_t bytes;

	/* Strings have no numbers. */
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	bytes = leaf->value.array->meta.bytes;
	if (bytes >= LARGE)
		log_warn("'%s' has %llu elements, %llu GiB, all of which are decoded: this takes "
			 "hours; --only chooses other leaves",
			 leaf->path, (unsigned long long)leaf->value.array->meta.n_elements,
			 (unsigned long long)(bytes / GiB));
	leaf->state = calloc(leaf->n_tasks + 1, sizeof(struct numbers));
	return leaf->state ? 0 :
			     fail(-ENOMEM, "cannot sum up an array of %llu bytes in %llu tasks",
				  (unsigned long long)bytes, (unsigned long long)leaf->n_tasks);
}

static int add_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
		    struct walk_worker *worker)
{
	numbers_add(arg, leaf->value.array->meta.dtype, bytes, tile->n);
	return 0;
}

int walk_numbers_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker)
{
	return walk_tiles(leaf, task, worker, add_tile, (struct numbers *)leaf->state + task);
}
