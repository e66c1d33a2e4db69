/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_table.c - makes the table of the leaves of a subtree, in parallel.
 *
 * leaf_table_json.c and leaf_table_html.c print it.
 */
#include "handlers/format/format.h"
#include "handlers/leaf/leaf.h"
#include "handlers/subtree/leaf_table.h"

#include "core/base/err.h"

#define SLICE_MAX 128 /* leaves per task */
/* Small tasks, since opening a leaf in a store takes a round trip, which other threads share. */
#define TASKS_PER_THREAD 8

struct leaf_table_slice {
	struct arena arena;
	unsigned flags;
	struct leaf_info *leaf;
	size_t n;
	const char *codecs; /* of the previous leaf, since leaves mostly have the same codecs */
};

void leaf_table_sums(const struct leaf_table *s, struct leaf_table_sums *ret)
{
	*ret = (struct leaf_table_sums){ 0 };
	for (size_t i = 0; i < s->n; i++) {
		const struct leaf_info *f = &s->leaf[i];
		bool bare = f->unsummed > 0 || f->kind == VALUE_TEXT || f->kind == VALUE_FILE;

		if (f->kind == VALUE_UNKNOWN) {
			ret->unopened_leaves++;
			continue;
		}
		ret->leaves += !bare;
		ret->bare_leaves += bare;
		ret->bytes += f->stored - MIN(f->stored, f->unsummed);
		ret->bare_bytes += f->unsummed;
	}
}

void leaf_table_release(struct leaf_table *s)
{
	for (size_t i = 0; i < s->n_slices; i++)
		arena_release(&s->slice[i].arena);
	arena_release(&s->arena);
	*s = (struct leaf_table){ 0 };
}

static const uint64_t *keep_sizes(struct arena *a, const uint64_t *sizes, unsigned n)
{
	uint64_t *p = arena_calloc(a, n, sizeof(*p));

	if (p && n)
		memcpy(p, sizes, n * sizeof(*p));
	return p;
}

static int describe_array(struct leaf_table_slice *s, struct item *item, struct zarr *z,
			  struct leaf_info *f)
{
	bool has_nodes = item_has_nodes(item, z->kv);
	auto_buf codecs = { 0 };
	uint64_t objects;
	int r;

	f->array = zarr_meta_type(&z->meta);
	f->array.shape = keep_sizes(&s->arena, z->meta.shape, z->meta.rank);
	f->chunk = keep_sizes(&s->arena, z->leaf_chunk, z->meta.rank);
	f->bytes = z->meta.bytes;
	if (!f->array.shape || !f->chunk)
		return fail(-ENOMEM, "cannot describe the leaves");
	r = codec_print_chain(&z->leaf->codecs, ", ", &codecs);
	if (r < 0)
		return r;
	if (!s->codecs || !span_eq(span_str(s->codecs), buf_span(&codecs)))
		s->codecs = (const char *)arena_dup(&s->arena, buf_span(&codecs));
	f->codecs = s->codecs;
	if (!f->codecs)
		return -ENOMEM;
	if (s->flags & LEAF_TABLE_STORED)
		r = zarr_stored(z, &f->stored, &objects);
	return r >= 0 && s->flags & LEAF_TABLE_SUMS ? zarr_unsummed(z, has_nodes, &f->unsummed) : r;
}

static int leaf_table_keep_text(struct leaf_table_slice *s, struct span text, struct leaf_info *f)
{
	f->text = span_of(arena_dup(&s->arena, text), text.n);
	return f->text.p ? 0 : fail(-ENOMEM, "cannot describe the leaves");
}

static int describe_value(struct leaf_table_slice *s, struct item *item, struct leaf_info *f)
{
	auto_format json = { 0 };
	auto_value v = { 0 };
	enum value_kind kind;
	int r = leaf_open(item, f->leaf, &v);

	if (r < 0)
		return r;
	f->is_scalar = v.is_scalar;
	if (v.kind == VALUE_ARRAY)
		r = describe_array(s, item, v.array, f);
	if (v.kind == VALUE_TEXT || v.kind == VALUE_FILE) {
		/* Texts are stored in a file without a checksum. */
		f->bytes = f->stored = f->unsummed = v.text.n;
		if (s->flags & LEAF_TABLE_TEXTS)
			r = leaf_table_keep_text(s, buf_span(&v.text), f);
	}
	if (r < 0)
		return r;
	/* The format takes the value. */
	kind = v.kind;
	if (kind == VALUE_ARRAY && f->is_scalar && s->flags & LEAF_TABLE_SCALARS) {
		r = format_open(NAME_EXT_JSON, &v, NULL, &json);
		/* A JSON file ends with a line break, which is not part of the value. */
		while (r >= 0 && json.head.n && json.head.p[json.head.n - 1] == '\n')
			json.head.n--;
		r = r < 0 ? r : leaf_table_keep_text(s, buf_span(&json.head), f);
	}
	if (r < 0)
		return r;
	f->kind = kind;
	return r;
}

static int describe(struct leaf_table_slice *s, struct leaf_info *f)
{
	int r;

	if (!leaf_type_of(f->leaf)) {
		f->why = "no leaf type takes its type string";
		return 0;
	}
	r = describe_value(s, f->part->item, f);
	if (r >= 0 || r == -ENOMEM)
		return r;
	/* One broken leaf does not prevent a description of the others. */
	f->error = r;
	f->why = arena_str(&s->arena, err_text(r));
	err_clear();
	return f->why ? 0 : fail(-ENOMEM, "cannot describe the leaves");
}

static int describe_slice(void *arg)
{
	struct leaf_table_slice *s = arg;
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = describe(s, &s->leaf[i]);
	return r;
}

int leaf_table_make(const struct subtree *st, unsigned flags, const struct subtree_place *place,
		    size_t n, struct leaf_table *ret)
{
	bool is_all = n == LEAF_TABLE_ALL;
	auto_leaf_table s = { .subtree = st, .n = is_all ? 0 : n };
	struct subtree_place at = { 0 };
	struct pool *pool = NULL;
	struct leaf_info *all;
	size_t per_task;
	int r;

	for (size_t i = 0; i < st->n; i++) {
		if (st->part[i].kind != PART_TREE)
			continue;
		if (is_all)
			s.n += subtree_leaves(st->part[i].item->tree, st->part[i].tree);
		pool = st->part[i].item->ckpt->pool;
	}
	s.arena.metered = true;
	s.leaf = arena_calloc(&s.arena, s.n + 1, sizeof(*s.leaf));
	if (!s.leaf)
		return fail(-ENOMEM, "cannot describe %zu leaves", s.n);
	all = s.leaf;
	while (is_all && subtree_next(st, &at))
		if (at.node->kind == TREE_LEAF)
			*all++ = (struct leaf_info){ .part = at.part, .leaf = at.node };
	for (size_t i = 0; !is_all && i < n; i++)
		s.leaf[i] = (struct leaf_info){ .part = place[i].part, .leaf = place[i].node };
	per_task = div_up(s.n, TASKS_PER_THREAD * (size_t)(pool ? pool_threads(pool) : 1));
	per_task = MAX(MIN(per_task, (size_t)SLICE_MAX), (size_t)1);
	s.n_slices = div_up(s.n, per_task);
	s.slice = arena_calloc(&s.arena, s.n_slices + 1, sizeof(*s.slice));
	if (!s.slice)
		return fail(-ENOMEM, "cannot describe %zu leaves", s.n);
	for (size_t i = 0; i < s.n_slices; i++)
		s.slice[i] = (struct leaf_table_slice){ .arena.metered = true,
							.flags = flags,
							.leaf = s.leaf + i * per_task,
							.n = MIN(per_task, s.n - i * per_task) };
	r = pool_run(pool, describe_slice, s.slice, sizeof(*s.slice), s.n_slices);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct leaf_table){ 0 };
	return 0;
}
