/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_items.c - turns the plan of one item into leaves and files of a struct commit_item. The
 * documents of a tree are made in draft_documents.c.
 */
#include "handlers/commit/draft_items.h"

#include <dirent.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/item_others.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plugin/leaf_plugin.h"

int sealing_item_add_file(struct sealing_item *it, const struct commit_file *f)
{
	if (!array_reserve(it->file, it->cap_files, it->n_files + 1))
		return fail(-ENOMEM, "cannot collect %zu files", it->n_files + 1);
	it->file[it->n_files++] = *f;
	return 0;
}

int sealing_item_add_text(struct sealing_item *it, const char *name, const struct buf *text)
{
	return sealing_item_add_file(it, &(struct commit_file){ .name = span_str(name),
								.text = buf_span(text) });
}

int sealing_item_add_leaf(struct sealing_item *it, const struct commit_leaf *l)
{
	int r = it->plan->opts.ocdbt ? 0 : item_store_leaf_check(l->param);

	if (r < 0)
		return r;
	if (!array_reserve(it->leaf, it->cap_leaves, it->n_leaves + 1))
		return fail(-ENOMEM, "cannot collect %zu leaves", it->n_leaves + 1);
	it->leaf[it->n_leaves] = *l;
	if (l->kv)
		kv_ref(l->kv);
	it->n_leaves++;
	return 0;
}

struct sealing_meta {
	struct sealing_meta *next;
	struct zarr_meta meta;
};

int sealing_item_document(struct sealing_item *it, const struct draft_array *a,
			  const struct plan_leaf *l, struct span *ret_json,
			  const struct zarr_meta **ret)
{
	struct sealing_meta *m = arena_calloc(&it->arena, 1, sizeof(*m));
	auto_buf json = { 0 };
	int r;

	if (!m)
		return -ENOMEM;
	r = array_json(&a->layout, &l->desc.array, &json);
	if (r < 0)
		return r;
	r = arena_keep(&it->arena, buf_span(&json), ret_json);
	if (r < 0)
		return r;
	r = zarr_meta_parse(*ret_json, l->source->name, &m->meta);
	if (r < 0)
		return r;
	m->next = it->metas;
	it->metas = m;
	*ret = &m->meta;
	return 0;
}

/* ---- arrays ---- */

int sealing_item_shift(struct sealing_item *it, const struct plan_leaf *l, size_t i,
		       const uint64_t **ret)
{
	uint64_t *shift = arena_calloc(&it->arena, l->desc.array.rank + 1, sizeof(*shift));
	struct draft_part p;
	int r = shift ? draft_part_of(span_str(l->part[i]->name), &p) : -ENOMEM;

	if (r < 0)
		return r;
	for (unsigned k = 0; k < l->desc.array.rank; k++)
		shift[k] = p.start[k] / l->part[i]->file->array[0].layout.chunk[k];
	*ret = shift;
	return 0;
}

/*
 * Add an array. Parts on one grid are added with their chunks renumbered, and the first of them has
 * the document of the whole array.
 */
static int items_add_array(struct sealing_item *it, struct plan_leaf *l)
{
	struct commit_leaf c = { .kv = l->kv, .param = l->node->param };
	bool shifted = false;
	int r = l->n_parts ? plan_join_parts(it->plan, l, &shifted) : 0;

	if (r < 0)
		return r;
	if (!shifted) {
		c.kv = l->kv ? l->kv : l->source->file->array[l->index].kv;
		return sealing_item_add_leaf(it, &c);
	}
	c.rank = l->desc.array.rank;
	r = sealing_item_document(it, &l->part[0]->file->array[0], l, &c.json, &c.meta);
	for (size_t i = 0; i < l->n_parts && r >= 0; i++) {
		c.kv = l->part[i]->file->array[0].kv;
		r = sealing_item_shift(it, l, i, &c.shift);
		r = r < 0 ? r : sealing_item_add_leaf(it, &c);
		c.json = span_of(NULL, 0);
	}
	return r;
}

/* Add a file of a leaf (dir: the leaf's directory) or of the item. It lives as long as the item. */
static int add_made_file(struct sealing_item *it, struct span dir, const char *name,
			 struct span bytes)
{
	struct commit_file f = { .text = bytes };
	auto_buf path = { 0 };
	int r = buf_addf(&path, "%.*s%s%s", SPAN_ARG(dir), dir.n ? "/" : "", name);

	if (r < 0)
		return r;
	r = arena_keep(&it->arena, buf_span(&path), &f.name);
	return r < 0 ? r : sealing_item_add_file(it, &f);
}

/* ---- values, as leaf types store them ---- */

struct item_sink {
	struct leaf_sink sink;
	struct sealing_item *it;
	struct plan_leaf *leaf;
};

static int items_sink_array(struct leaf_sink *to, const struct array_type *t, const void *elements)
{
	struct item_sink *s = container_of(to, struct item_sink, sink);
	int r = plan_store_array(s->leaf, t, elements);

	return r < 0 ? r :
		       sealing_item_add_leaf(
			       s->it, &(struct commit_leaf){ .kv = s->leaf->kv,
							     .param = s->leaf->node->param });
}

static int items_sink_encoded(struct leaf_sink *to)
{
	struct item_sink *s = container_of(to, struct item_sink, sink);

	return items_add_array(s->it, s->leaf);
}

/* The leaf's parameter names the file's directory: one name, whatever the keys contain. */
static int items_sink_file(struct leaf_sink *to, const char *name, struct span bytes)
{
	struct item_sink *s = container_of(to, struct item_sink, sink);
	struct span dir = s->leaf->node->param;
	int r = dir.n ? io_path_check(dir, "leaf of a plugin") : 0;

	if (r < 0)
		return r;
	if (!dir.n || memchr(dir.p, '/', dir.n))
		return fail(-EINVAL, "a leaf of a plugin needs a key without '/', which becomes a "
				     "directory");
	r = arena_keep(&s->it->arena, bytes, &bytes);
	return r < 0 ? r : add_made_file(s->it, dir, name, bytes);
}

static const struct leaf_sink_ops item_sink_ops = { .array = items_sink_array,
						    .encoded = items_sink_encoded,
						    .file = items_sink_file };

static int items_add_value(struct sealing_item *it, struct plan_leaf *l)
{
	struct item_sink s = { .sink = { &item_sink_ops }, .it = it, .leaf = l };
	struct plan_input f;
	int r;

	if (l->aggregated)
		return 0;
	plan_leaf_input(it->plan, l, &f);
	r = leaf_encode(&l->desc, &f.input, &s.sink);
	leaf_input_release(&f.input);
	/* An error of a leaf type about bytes to be stored is not damage on disk. */
	if (r == -EUCLEAN)
		return fail(-EINVAL, "leaf '%.*s': %s", SPAN_ARG(l->node->param), err_text(r));
	return r < 0 ? err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param)) : 0;
}

int sealing_item_finalize(const struct sealing_item *it)
{
	for (size_t i = 0; i < it->plan->n_leaves; i++) {
		const struct plan_leaf *l = &it->plan->leaf[i];
		int r = l->desc.type->finalize ? l->desc.type->finalize(l->desc.type) : 0;

		if (r < 0)
			return err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
	}
	return 0;
}

static int items_add_tree(struct sealing_item *it)
{
	const char *aggregate = it->plan->item->draft->env->options->aggregate_filename;
	int r = sealing_item_aggregate(it);

	for (size_t i = 0; i < it->plan->n_leaves && r >= 0; i++)
		r = items_add_value(it, &it->plan->leaf[i]);
	if (r >= 0 && it->aggregate.n)
		r = sealing_item_add_text(it, aggregate, &it->aggregate);
	return r < 0 ? r : sealing_item_describe(it);
}

/* ---- items that are not trees ---- */

static int items_read_file(void *arg, uint64_t off, size_t n, void *p)
{
	return draft_file_read_into(arg, off, n, p);
}

static int add_draft_file(struct sealing_item *it, struct span name, struct draft_node *n)
{
	struct commit_file f = { .source = items_read_file,
				 .arg = n->file,
				 .size = draft_file_size(n->file) };
	/* An item that is not a tree has no arrays: its directory is its own. */
	int r = draft_file_unstore(n->file);

	if (r < 0)
		return r;
	r = arena_keep(&it->arena, name, &f.name);
	return r < 0 ? r : sealing_item_add_file(it, &f);
}

static int add_json(struct sealing_item *it)
{
	struct draft_node *n = it->plan->item;
	/* The file of a manager's metrics has a name of its own. */
	const char *name = strcmp(it->plan->name, "metrics") ?
				   n->draft->env->options->json_filename :
				   "metrics";
	uint64_t size = draft_file_size(n->file);
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r;

	if (size > LIMIT_SMALL_FILE)
		return fail(-EINVAL, "'%s' has %llu bytes, the limit is %llu", n->name,
			    (unsigned long long)size, (unsigned long long)LIMIT_SMALL_FILE);
	r = draft_file_read_whole(n->file, size, &text);
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), n->name, &doc);
	if (r < 0)
		return r == -EUCLEAN ? fail(-EINVAL, "%s", err_text(r)) : r;
	return add_draft_file(it, span_str(name), n);
}

/* Add all files below an opaque directory. */
static int add_opaque(struct sealing_item *it, struct draft_node *dir, const char *path,
		      unsigned depth)
{
	auto_draft_list child = { 0 };
	int r = depth > LIMIT_TREE_DEPTH ? fail(-EFBIG, "directories are too deep") :
					   draft_children(dir, &child);

	if (r < 0)
		return r;
	if (child.n == 0 && depth > 0) {
		struct commit_file f = { .is_dir = true };

		r = arena_keep(&it->arena, span_str(path), &f.name);
		return r < 0 ? r : sealing_item_add_file(it, &f);
	}
	for (size_t i = 0; i < child.n && r >= 0; i++) {
		struct draft_node *n = child.node[i];
		auto_free char *at = str_fmt("%s%s%s", path, depth ? "/" : "", n->name);

		if (!at)
			return fail(-ENOMEM, "cannot list '%s'", dir->name);
		r = n->is_dir ? add_opaque(it, n, at, depth + 1) :
				add_draft_file(it, span_str(at), n);
	}
	return r;
}

/* Read all files below a directory of the draft into memory. */
static int collect_files(struct draft_node *dir, const char *path, unsigned depth,
			 struct plugin_files *ret)
{
	auto_draft_list child = { 0 };
	int r = depth > 16 ? fail(-EFBIG, "directories are too deep for a plugin") :
			     draft_children(dir, &child);

	for (size_t i = 0; i < child.n && r >= 0; i++) {
		struct draft_node *n = child.node[i];
		auto_free char *at = str_fmt("%s%s%s", path, depth ? "/" : "", n->name);
		uint64_t size = n->is_dir ? 0 : draft_file_size(n->file);
		auto_buf bytes = { 0 };

		if (!at)
			return fail(-ENOMEM, "cannot list '%s'", dir->name);
		if (n->is_dir) {
			r = collect_files(n, at, depth + 1, ret);
			continue;
		}
		if (size > 64 * MiB)
			return fail(-EFBIG, "'%s' is too large for a plugin", at);
		r = draft_file_unstore(n->file);
		r = r < 0 ? r : draft_file_read_whole(n->file, size, &bytes);
		r = r < 0 ? r : plugin_files_add(ret, at, bytes.p, size);
	}
	return r;
}

static int add_plugin_item(struct sealing_item *it)
{
	auto_plugin_files shown = { 0 };
	int r = collect_files(it->plan->item, "", 0, &shown);

	if (r < 0)
		return r;
	r = plugin_encode_item(it->plan->plugin, &shown, &it->made);
	for (size_t i = 0; i < it->made.n && r >= 0; i++)
		r = add_made_file(it, span_of(NULL, 0), it->made.file[i].name,
				  span_of(it->made.file[i].p, it->made.file[i].n));
	return r;
}

/*
 * Add the files that lie beside the arrays of a tree, or beside the items. No file or directory of
 * the stored tree or step may have their names.
 */
static int items_add_others(struct sealing_item *it)
{
	struct plan *p = it->plan;
	int r = 0;

	for (size_t i = 0; i < p->n_others && r >= 0; i++) {
		struct draft_node *n = p->other[i];
		struct span name = span_str(n->name);

		if (p->kind == PLAN_BESIDE && !step_has_other(name, n->is_dir ? DT_DIR : DT_REG))
			return fail(-EINVAL, "'%s' is a name of steps: no other file can have it",
				    n->name);
		if (p->kind != PLAN_BESIDE && item_is_own_name(name))
			return fail(-EINVAL,
				    "'%s' is a name of stored trees: no other file can have it",
				    n->name);
		for (size_t k = 0; k < it->n_leaves && !p->opts.ocdbt; k++)
			if (span_eq(path_first(it->leaf[k].param), name))
				return fail(-EINVAL, "'%s' is the directory of a leaf, too",
					    n->name);
		r = n->is_dir ? add_opaque(it, n, n->name, 1) : add_draft_file(it, name, n);
	}
	return r;
}

int sealing_item_add_stored(struct sealing_item *it)
{
	if (it->plan->kind == PLAN_STORED)
		return add_opaque(it, it->plan->item, "", 0);
	return it->plan->kind == PLAN_TREE || it->plan->kind == PLAN_BESIDE ? items_add_others(it) :
									      0;
}

int sealing_item_fill(struct sealing_item *it)
{
	struct draft_node *n = it->plan->item;
	int r = 0;

	trace(TRACE_STEP, "item '%s' is stored", it->plan->name);
	switch (it->plan->kind) {
	case PLAN_TREE:
		r = items_add_tree(it);
		break;
	case PLAN_JSON:
		r = add_json(it);
		break;
	case PLAN_PROTO:
		r = add_draft_file(it, span_str(n->draft->env->options->proto_filename), n);
		break;
	case PLAN_PLUGIN_ITEM:
		r = add_plugin_item(it);
		break;
	case PLAN_STORED:
	case PLAN_BESIDE:
		break;
	}
	r = r < 0 ? r : sealing_item_add_stored(it);
	return r < 0 ? r : sealing_item_retain(it);
}

void sealing_item_release(struct sealing_item *it)
{
	for (struct sealing_meta *m = it->metas; m; m = m->next)
		zarr_meta_release(&m->meta);
	buf_release(&it->strings);
	buf_release(&it->sharding);
	buf_release(&it->arrays);
	buf_release(&it->metadata);
	buf_release(&it->aggregate);
	plugin_files_release(&it->made);
	for (size_t i = 0; i < it->n_leaves; i++)
		kv_free(it->leaf[i].kv);
	free(it->leaf);
	free(it->retained);
	free(it->file);
	plan_free(it->plan);
	arena_release(&it->arena);
}
