/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_items.c - the primary's work on the directories of a shared draft.
 *
 * Before the ranks seal their values, it removes files of failed attempts. Afterwards, it joins
 * parts that fit no grid, and moves files that no item refers to (replicas, copies of parts) out of
 * the draft, so that they can be moved back after a failure.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/commit/seal.h"
#include "core/remote/upload/step_upload.h"
#include "handlers/job/draft_collective.h"

/* Names in a buffer are NUL-terminated, one after another. */
static int job_items_add_name(void *arg, const char *name, unsigned char type)
{
	return buf_add(arg, name, strlen(name) + 1);
}

static int job_items_list_dir(struct io_dir *dir, const char *path, struct buf *ret)
{
	int r = io_list(dir, path, job_items_add_name, ret);

	return err_except(r, -ENOENT);
}

#define each_name(names, name)                           \
	for (const char *name = (const char *)(names).p; \
	     name && name < (const char *)(names).p + (names).n; name += strlen(name) + 1)

static bool job_items_is_database(const char *name)
{
	return !strncmp(name, "ocdbt.process_", 14);
}

/* ---- before ---- */

/* The draft's lock, and what ranks have not placed in it yet. */
static bool job_items_is_of_draft(const char *name)
{
	return !strncmp(name, ".pytreefs", strlen(".pytreefs"));
}

static bool is_of_ranks(void *arg, const char *name)
{
	return job_items_is_of_draft(name) || job_items_is_database(name);
}

static int job_items_clean_item(struct io_dir *dir, const char *name)
{
	int r = io_remove_entries(dir, *name ? name : ".", is_of_ranks, NULL);

	return err_except(r, -ENOENT);
}

int collective_items_clean(struct collective_plan *jp)
{
	struct io_dir *dir = jp->draft->dir->dir;
	int r = 0;

	for (size_t i = 0; i < jp->n_items && r >= 0; i++) {
		const struct collective_item *it = &jp->item[i];

		if (it->plan->kind != PLAN_BESIDE) {
			r = job_items_clean_item(dir, it->plan->name);
			continue;
		}
		/* Files beside the items that the ranks are about to write. */
		for (size_t k = 0; k < it->n_files && r >= 0; k++) {
			auto_free char *top = span_dup_str(path_first(it->file[k].file->name));

			r = top ? io_remove_tree(dir, top) : -ENOMEM;
		}
	}
	return r;
}

struct own_draft {
	const struct draft *d;
	const struct sealing_item *item;
	size_t n;
};

/* Stores that are not placed, and the lock, have names of ours. */
static bool job_items_is_own(void *arg, const char *name)
{
	const struct own_draft *o = arg;

	if (!strncmp(name, PART_PREFIX, strlen(PART_PREFIX)))
		return false;
	for (size_t i = 0; i < o->n; i++)
		if (!strcmp(o->item[i].plan->name, name))
			return true;
	return o->d->is_item || job_items_is_of_draft(name);
}

int collective_clean_own(struct draft *d, const struct sealing_item *item, size_t n)
{
	struct io_dir *dir = d->dir->dir;
	struct own_draft own = { d, item, n };
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = item[i].plan->kind == PLAN_BESIDE ?
			    0 :
			    job_items_clean_item(dir, item[i].plan->name);
	return r < 0 ? r : io_remove_entries(dir, ".", job_items_is_own, &own);
}

/* ---- parts that fit no grid ---- */

static int job_items_open_part(struct collective_plan *jp, size_t item, const struct contributor *c,
			       size_t box, struct zarr **ret)
{
	/* Indices are those of the rank's own contribution. */
	const struct contribution *s = &jp->contribution[c->rank];
	const struct contribution_item *si = NULL;
	auto_of(kv) struct kv *kv = NULL;
	auto_buf path = { 0 };
	size_t i = 0;
	int r;

	while (i < s->n_items && !span_eq(s->item[i].name, span_str(jp->item[item].plan->name)))
		i++;
	si = &s->item[i];
	r = collective_export_path(c->rank, i, (size_t)(c->contribution - si->leaf), box, &path);
	if (r < 0)
		return r;
	r = buf_add_str(&path, "/part");
	if (r < 0)
		return r;
	if (!buf_str(&path))
		r = -ENOMEM;
	if (r < 0)
		return r;
	r = kv_dir_open_in(jp->parts_in ? jp->parts_in : jp->draft->dir->dir, buf_str(&path), &kv);
	return r < 0 ? r :
		       zarr_open(&jp->draft->env->ckpt->env, kv, span_of(NULL, 0), cache_owner(), 0,
				 ret);
}

/* Open the boxes that the ranks were assigned to export. */
static int open_boxes(struct collective_plan *jp, size_t item, const struct collective_leaf *l,
		      struct box **ret_box, struct zarr ***ret, size_t *ret_n)
{
	size_t max = 0, n = 0;
	int r = 0;

	for (const struct contributor *c = l->contributors; c; c = c->next)
		max += c->contribution->n_boxes;
	*ret_box = calloc(max, sizeof(**ret_box));
	*ret = calloc(max, sizeof(**ret));
	if (!*ret_box || !*ret)
		return fail(-ENOMEM, "cannot open %zu parts", max);
	for (const struct contributor *c = l->contributors; c; c = c->next)
		for (size_t i = 0; i < c->contribution->n_boxes && r >= 0; i++) {
			if (c->assignment[i].take != TAKE_EXPORT)
				continue;
			(*ret_box)[n] = c->contribution->box[i].box;
			r = job_items_open_part(jp, item, c, i, &(*ret)[n]);
			*ret_n = ++n;
		}
	return r;
}

/* Join the parts of a leaf in a new leaf of the store. */
static int join_leaf(struct collective_plan *jp, size_t item, struct collective_leaf *l,
		     struct item_store *store, struct commit_leaf *ret)
{
	auto_free struct box *box = NULL;
	auto_free struct zarr **part = NULL;
	size_t n = 0;
	struct box_reader reader = { .array = l->contributors->contribution->desc.array,
				     .read = box_read_zarr };
	const struct array_type *t = &reader.array;
	int r = item_store_leaf(store, &ret->kv);

	ret->param = l->node->param;
	r = r < 0 ? r : open_boxes(jp, item, l, &box, &part, &n);
	reader.box = box;
	reader.n = n;
	reader.arg = part;
	/* The grid is the one for an array that is not written in parts. */
	array_default_chunk(t->rank, t->shape, t->shape, l->layout.item, false, l->layout.chunk);
	if (r >= 0)
		r = array_write(jp->draft->env, &l->layout, t, ret->kv, boxes_read, &reader);
	for (size_t i = 0; i < n; i++)
		zarr_unref(part[i]);
	return r < 0 ? err_at(r, "leaf '%.*s'", SPAN_ARG(ret->param)) : 0;
}

int collective_store_new(struct io_dir *dir, const char *path, const struct item_store_opts *opts,
			 struct item_store **ret)
{
	auto_of(io_dir) struct io_dir *sub = NULL;
	int r = io_remove_tree(dir, path);

	if (r < 0)
		return r;
	r = io_dirop(dir, IO_MKDIR, path, NULL, opts->dir_mode);
	if (r < 0)
		return r;
	r = io_dir_sub(dir, path, &sub);
	if (r < 0)
		return r;
	r = item_store_new(sub, opts, ret);
	if (r >= 0)
		take(sub);
	return r;
}

/*
 * Open the directory for joined arrays: a separate database of the item, or a directory from which
 * the values are linked into the item, and which does not enter the step.
 */
static int open_joined(struct collective_plan *jp, size_t item, struct item_store **ret)
{
	const struct collective_item *it = &jp->item[item];
	struct io_dir *top = jp->draft->dir->dir;
	struct item_store_opts opts = {
		.ocdbt = it->plan->opts.ocdbt,
		.dir_mode = jp->draft->dir->mode,
		.target_size = jp->draft->env->options->save.target_data_file_size
	};
	const char *name = it->plan->name, *slash = *name ? "/" : "";
	auto_free char *path = NULL;
	int r = *name ? io_mkdir(top, name, opts.dir_mode) : 0;

	if (r < 0)
		return r;
	path = opts.ocdbt ? str_fmt("%s%s" RANK_PREFIX "joined", name, slash) :
			    str_fmt(".pytreefs-item-joined-%zu", item);
	return path ? collective_store_new(top, path, &opts, ret) :
		      fail(-ENOMEM, "cannot join parts of item '%s'", name);
}

static int join_item(struct collective_plan *jp, size_t item)
{
	struct collective_item *it = &jp->item[item];
	struct commit c = { .ckpt = jp->draft->env->ckpt,
			    .draft = jp->draft->dir,
			    .dir_mode = jp->draft->dir->mode };
	auto_free struct commit_leaf *leaf = calloc(it->n_leaves + 1, sizeof(*leaf));
	struct commit_item ci = { .name = span_str(it->plan->name), .leaves = leaf };
	auto_of(item_store) struct item_store *store = NULL;
	int r = leaf ? open_joined(jp, item, &store) : -ENOMEM;

	for (size_t i = 0; i < it->n_leaves && r >= 0; i++)
		if (it->leaf[i].exported)
			r = join_leaf(jp, item, &it->leaf[i], store, &leaf[ci.n_leaves++]);
	ci.store = store;
	r = r < 0 ? r : seal_shared_item(&c, &ci);
	for (size_t i = 0; i < ci.n_leaves; i++)
		kv_free(leaf[i].kv);
	return r;
}

int collective_items_join(struct collective_plan *jp)
{
	int r = 0;

	for (size_t i = 0; i < jp->n_items && r >= 0; i++)
		if (jp->item[i].any_exported)
			r = join_item(jp, i);
	return r;
}

/* ---- files that no item refers to ---- */

/* List databases in the directory of an item that this commit does not merge. */
static int job_items_add_databases(struct collective_plan *jp, const struct collective_item *it,
				   struct buf *ret)
{
	const char *name = it->plan->name;
	auto_buf inside = { 0 };
	int r = job_items_list_dir(jp->draft->dir->dir, *name ? name : ".", &inside);

	if (r < 0)
		return r;
	each_name(inside, at)
	{
		int rank = -1, replicas = -1;

		if (!job_items_is_database(at) ||
		    (!strcmp(at, "ocdbt.process_joined") && it->any_exported))
			continue;
		if (sscanf(at, "ocdbt.process_%d", &rank) == 1 && rank >= 0 && rank < jp->n_ranks &&
		    it->stores[rank] & BRINGS_OWN)
			continue;
		if (sscanf(at, "ocdbt.process_replica_%d", &replicas) == 1 && replicas >= 0 &&
		    replicas < jp->n_ranks && it->stores[replicas] & BRINGS_REPLICAS)
			continue;
		r = buf_addf(ret, "%s%s%s%c", name, *name ? "/" : "", at, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int job_items_add_others(struct collective_plan *jp, struct buf *ret)
{
	auto_buf top = { 0 };
	int r = job_items_list_dir(jp->draft->dir->dir, ".", &top);

	if (r < 0)
		return r;
	each_name(top, at)
	{
		bool is_item = false;

		for (size_t i = 0; i < jp->n_items && !is_item; i++)
			is_item = !strcmp(jp->item[i].plan->name, at);
		if (is_item || !strcmp(at, DRAFT_LOCK_FILE) || collective_files_has(jp, at) ||
		    (jp->draft->is_item && strncmp(at, ".pytreefs-", 10)))
			continue;
		r = buf_add(ret, at, strlen(at) + 1);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < jp->n_items && r >= 0; i++)
		r = job_items_add_databases(jp, &jp->item[i], ret);
	return r;
}

/*
 * Move the names before `end` between the draft and the directory beside it, where the n-th name is
 * called "n".
 */
static int move_all(struct collective_plan *jp, struct leftovers_dir *l, size_t end, bool back)
{
	const struct draft_dir *d = jp->draft->dir;
	const char *names = (const char *)l->names.p;
	unsigned n = 0;
	int r = 0;

	for (size_t at = 0; at < end && r >= 0; at += strlen(names + at) + 1) {
		auto_free char *in = str_fmt("%s/%s", d->name, names + at);
		auto_free char *out = str_fmt("%s/%u", l->dir->name, n++);

		r = in && out ? io_dirop(d->parent, IO_RENAME_NEW, back ? out : in, back ? in : out,
					 0) :
				fail(-ENOMEM, "cannot move '%s'", names + at);
		/* After a failure, only names that have been moved are moved back. */
		if (r < 0 && !back)
			l->names.n = at;
	}
	return r;
}

int collective_leftovers_move(struct collective_plan *jp, struct leftovers_dir *ret)
{
	struct draft_dir *d = jp->draft->dir;
	auto_free char *name = NULL;
	int r = job_items_add_others(jp, &ret->names);

	if (r < 0 || !ret->names.n)
		return r;
	name = str_fmt("%s-leftovers", d->base_name);
	if (!name)
		return fail(-ENOMEM, "cannot move what is left over");
	r = draft_dir_begin(d->parent, name, d->final, d->mode, false, &ret->dir);
	r = r < 0 ? r : move_all(jp, ret, ret->names.n, false);
	if (r == -ENOENT)
		r = fail(-ETIMEDOUT, "another rank gave up waiting for '%s'", d->final);
	return r;
}

void collective_leftovers_end(struct collective_plan *jp, struct leftovers_dir *l, bool committed)
{
	struct err_note note = { 0 };

	/* Another process may have renamed the draft meanwhile. */
	if (l->dir && !committed &&
	    (draft_dir_find(jp->draft->dir, (unsigned)jp->draft->member.attempt + 1) != 0 ||
	     move_all(jp, l, l->names.n, true) < 0)) {
		err_save(-EIO, &note);
		log_warn("parts of draft '%s' stay in '%s'", jp->draft->name, l->dir->name);
	} else if (l->dir && draft_dir_remove(l->dir) < 0) {
		log_warn("'%s' could not be removed", l->dir->name);
	}
	draft_dir_free(l->dir);
	buf_release(&l->names);
	*l = (struct leftovers_dir){ 0 };
}
