/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_values.c - makes one rank's values of a shared draft durable, as the primary assigned.
 *
 * In the database layout, the values of a rank are a database of its own, `ocdbt.process_<rank>`;
 * in the directory layout, each chunk is linked into the leaf's directory. Values that are not
 * assigned remain where they are and do not enter the step.
 *
 * Invariants: everything can be repeated by a later attempt with other assignments.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/commit/seal.h"
#include "core/remote/upload/step_upload.h"
#include "core/zarr/write/zarr_copy.h"
#include "handlers/job/draft_collective.h"
#include "handlers/draft/kv_slice.h"

struct doing {
	struct draft *d;
	struct wire w; /* the assignments that have not been parsed yet */
	struct sealing_item *it;
	size_t item;
};

int collective_export_path(int rank, size_t item, size_t leaf, size_t box, struct buf *ret)
{
	return buf_addf(ret, PART_PREFIX "%d-%zu-%zu-%zu", rank, item, leaf, box);
}

/* ---- parts that the primary joins ---- */

/* Copy the encoded part into an array of its own. */
static int export_box(struct doing *x, const struct plan_leaf *l, size_t leaf, size_t i)
{
	struct draft_node *n = l->part[i];
	struct draft_array *a = &n->file->array[0];
	struct ckpt *ckpt = x->d->env->ckpt;
	struct item_store_opts opts = { .dir_mode = x->d->dir->mode };
	auto_of(item_store) struct item_store *store = NULL;
	auto_of(kv) struct kv *to = NULL;
	auto_buf path = { 0 }, json = { 0 };
	auto_of(zarr) struct zarr *z = NULL;
	struct array_type t;
	int r = collective_export_path(x->d->env->collective->peers->rank, x->item, leaf, i, &path);

	if (r < 0 || !buf_str(&path))
		return r < 0 ? r : -ENOMEM;
	r = collective_store_new(x->d->dir->dir, buf_str(&path), &opts, &store);
	if (r < 0)
		return r;
	r = item_store_leaf(store, &to);
	if (r < 0)
		return r;
	t = array_stored_type(a);
	r = array_json(&a->layout, &t, &json);
	if (r < 0)
		return r;
	r = zarr_open(&ckpt->env, a->kv, span_of(NULL, 0), cache_owner(), 0, &z);
	if (r < 0)
		return r;
	r = zarr_copy(&ckpt->write_env, z, to, buf_span(&json),
		      a->layout.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE);
	if (r == 0)
		r = fail(-EIO, "'%s' cannot be copied as it is encoded", n->name);
	return r < 0 ? r : item_store_leaf_place(to, span_str("part"));
}

/* ---- values that enter the step unchanged ---- */

static int add_box(struct doing *x, struct plan_leaf *l, size_t i, const struct assignment *e)
{
	const struct draft_array *a = &l->part[i]->file->array[0];
	struct commit_leaf c = { .kv = a->kv,
				 .param = l->node->param,
				 .rank = l->desc.array.rank,
				 .no_document = !e->document };
	struct span json;
	int r = sealing_item_document(x->it, a, l, &json, &c.meta);

	if (r < 0)
		return r;
	if (e->document)
		c.json = json;
	r = sealing_item_shift(x->it, l, i, &c.shift);
	return r < 0 ? r : sealing_item_add_leaf(x->it, &c);
}

/* Stores a whole leaf, or some of its chunks, as its leaf type does. */
struct rank_sink {
	struct leaf_sink sink;
	struct doing *x;
	struct plan_leaf *leaf;
	const struct assignment *e;
};

static struct commit_leaf leaf_for(const struct rank_sink *s)
{
	return (struct commit_leaf){ .kv = s->leaf->kv,
				     .param = s->leaf->node->param,
				     .no_document = !s->e->document,
				     .replicas = plan_leaf_is_replicas(s->leaf),
				     .keep_axis = s->e->axis,
				     .keep_from = s->e->from,
				     .keep_to = s->e->to };
}

static int job_values_sink_array(struct leaf_sink *to, const struct array_type *t,
				 const void *elements)
{
	struct rank_sink *s = container_of(to, struct rank_sink, sink);
	int r = plan_store_array(s->leaf, t, elements);
	struct commit_leaf c = leaf_for(s);

	return r < 0 ? r : sealing_item_add_leaf(s->x->it, &c);
}

static int job_values_sink_encoded(struct leaf_sink *to)
{
	struct rank_sink *s = container_of(to, struct rank_sink, sink);
	const struct assignment *e = s->e;
	const struct draft_array *a = &s->leaf->source->file->array[s->leaf->index];
	const struct slice slice = { e->axis, e->from, e->to };
	struct commit_leaf c = leaf_for(s);
	struct span json;
	int r = kv_slice_give(a->kv, e->to ? &slice : NULL, &c.kv);

	if (r < 0 || !e->to)
		return r < 0 ? r : sealing_item_add_leaf(s->x->it, &c);
	/* The keys of the chunks give their places in the array. */
	r = sealing_item_document(s->x->it, a, s->leaf, &json, &c.meta);
	return r < 0 ? r : sealing_item_add_leaf(s->x->it, &c);
}

static int job_values_sink_file(struct leaf_sink *to, const char *name, struct span bytes)
{
	return fail(-EOPNOTSUPP, "leaves that are files cannot be shared by ranks");
}

static const struct leaf_sink_ops rank_sink_ops = { .array = job_values_sink_array,
						    .encoded = job_values_sink_encoded,
						    .file = job_values_sink_file };

static int do_leaf(struct doing *x, size_t leaf)
{
	struct plan_leaf *l = &x->it->plan->leaf[leaf];
	struct span param = parse_text(&x->w);
	size_t n = MAX(l->n_parts, (size_t)1);
	int r = arena_keep(&x->it->arena, param, &l->node->param);

	for (size_t i = 0; i < n && r >= 0; i++) {
		struct assignment e;
		struct rank_sink s = { .sink = { &rank_sink_ops }, .x = x, .leaf = l, .e = &e };
		struct plan_input f;

		assignment_parse(&x->w, &e);
		if (e.take == TAKE_WHOLE) {
			plan_leaf_input(x->it->plan, l, &f);
			r = leaf_encode(&l->desc, &f.input, &s.sink);
			leaf_input_release(&f.input);
		} else if (e.take == TAKE_CHUNKS) {
			r = add_box(x, l, i, &e);
		} else if (e.take == TAKE_EXPORT) {
			r = export_box(x, l, leaf, i);
		}
	}
	return r < 0 ? err_at(r, "leaf '%.*s'", SPAN_ARG(param)) : 0;
}

/* ---- the place of the store ---- */

/*
 * Move the store to its place beside those of the other ranks, or out of the item when nothing in
 * it is assigned.
 */
static int place_store(struct doing *x, struct draft_store *s, const char *kind, bool wanted)
{
	const char *name = x->it->plan->name;
	int rank = x->d->env->collective->peers->rank, r;
	auto_free char *to = NULL;

	if (!s->dir)
		return 0;
	if (!wanted || !item_store_is_ocdbt(s->store)) {
		if (s->dir[0] == '.')
			return 0;
		to = str_fmt(".pytreefs-item-%d-%u", rank, x->d->n_stores++);
	} else {
		to = str_fmt("%s%socdbt.process_%s%d", name, *name ? "/" : "", kind, rank);
	}
	if (!to)
		return fail(-ENOMEM, "cannot place item '%s'", name);
	r = *name ? io_mkdir(x->d->dir->dir, name, x->d->dir->mode) : 0;
	return r < 0 ? r : draft_move_store(x->d, s, to);
}

/* ---- items ---- */

/* Seal the leaves of one of the item's two stores. Files are added with the first store. */
static int seal_store(struct doing *x, struct commit *c, bool replicas)
{
	const struct draft_node *n = x->it->plan->item;
	auto_free struct commit_leaf *leaf = calloc(x->it->n_leaves + 1, sizeof(*leaf));
	struct commit_item item = { .name = span_str(x->it->plan->name), .leaves = leaf };

	if (!leaf)
		return fail(-ENOMEM, "cannot seal %zu leaves", x->it->n_leaves);
	for (size_t i = 0; i < x->it->n_leaves; i++)
		if (x->it->leaf[i].replicas == replicas)
			leaf[item.n_leaves++] = x->it->leaf[i];
	item.store = replicas ? n->replicas.store : n->item.store;
	return seal_shared_item(c, &item);
}

static int seal_files(struct doing *x, struct commit *c)
{
	struct commit_item item = { .name = span_str(x->it->plan->name),
				    .files = x->it->file,
				    .n_files = x->it->n_files };

	return seal_item(c, &item);
}

static int do_item(struct doing *x, struct commit *c)
{
	struct sealing_item *it = x->it;
	struct plan *p = it->plan;
	unsigned wanted = wire_u8(&x->w);
	size_t n = 0;
	int r = 0;

	it->n_leaves = 0;
	/* Only the files that the primary chose remain. */
	for (size_t i = 0; i < it->n_files; i++)
		if (wire_u8(&x->w))
			it->file[n++] = it->file[i];
	it->n_files = n;
	/* One rank has all of the item, or it is one of files, of which each may have some. */
	if (p->kind != PLAN_TREE) {
		if (wanted && p->kind != PLAN_STORED && p->kind != PLAN_BESIDE)
			r = sealing_item_fill(it);
		return r < 0 || (!wanted && !it->n_files) ? r : seal_files(x, c);
	}
	for (size_t i = 0; i < p->n_leaves && r >= 0; i++)
		r = do_leaf(x, i);
	if (r < 0)
		return r;
	r = place_store(x, &p->item->item, "", wanted & BRINGS_OWN);
	if (r < 0)
		return r;
	r = place_store(x, &p->item->replicas, "replica_", wanted & BRINGS_REPLICAS);
	if (r < 0)
		return r;
	r = wanted & BRINGS_OWN ? seal_store(x, c, false) : 0;
	if (r < 0)
		return r;
	r = wanted & BRINGS_REPLICAS ? seal_store(x, c, true) : 0;
	return r < 0 || !it->n_files ? r : seal_files(x, c);
}

int contribution_seal(struct draft *d, struct sealing_item *item, size_t n, struct span assignments)
{
	struct commit c = { .ckpt = d->env->ckpt,
			    .draft = d->dir,
			    .dir_mode = (unsigned)d->env->options->mode };
	struct doing x = { .d = d, .w = wire_of(assignments) };
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		x.it = &item[i];
		x.item = i;
		r = do_item(&x, &c);
		if (r < 0 && *item[i].plan->name)
			err_at(r, "item '%s'", item[i].plan->name);
	}
	if (r < 0)
		return r;
	if (!wire_ok(&x.w))
		return fail(-EIO, "the primary's assignments are truncated");
	/* The parent of items' directories that were made here, and of stores that were moved. */
	return io_dirop(d->dir->dir, IO_SYNC_DIR, ".", NULL, 0);
}
