/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contribution.c - packs plans into bytes, and parses them into struct contribution.
 *
 * collective_plan.c merges the contributions of all ranks. Ranks run the same program, so the
 * format has no version.
 */
#include "handlers/job/contribution.h"

#include "core/base/err.h"
#include "handlers/commit/draft_digests.h"

int pack_text(struct buf *b, struct span s)
{
	int r = wire_put_u32le(b, s.p ? (uint32_t)s.n + 1 : 0);

	if (s.n >= UINT32_MAX - 1)
		return fail(-EFBIG, "a text of %zu bytes", s.n);
	return r < 0 || !s.n ? r : buf_add_span(b, s);
}

struct span parse_text(struct wire *w)
{
	uint32_t n = wire_u32le(w);
	static const uint8_t none;

	if (n == 0)
		return span_of(NULL, 0);
	return n == 1 ? span_of(&none, 0) : wire_bytes(w, n - 1);
}

static int pack_numbers(struct buf *b, const uint64_t *v, unsigned n)
{
	int r = 0;

	for (unsigned i = 0; i < n && r >= 0; i++)
		r = wire_put_u64le(b, v[i]);
	return r;
}

static void parse_numbers(struct wire *w, uint64_t *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		v[i] = wire_u64le(w);
}

/* Parse a number of elements, none of which is empty, and allocate an array for them. */
static int parse_count(struct wire *w, struct arena *a, size_t element_bytes, size_t *ret_n,
		       void *ret)
{
	size_t n = wire_u32le(w);
	void *array = n > wire_left(w) ? NULL : arena_calloc(a, n + 1, element_bytes);

	if (!array)
		return n > wire_left(w) ? -EIO : -ENOMEM;
	*ret_n = n;
	*(void **)ret = array;
	return 0;
}

static int pack_flags(struct buf *b, const bool *flag, unsigned n)
{
	uint8_t bits = 0;

	for (unsigned i = 0; i < n; i++)
		bits |= (uint8_t)(flag[i] << i);
	return wire_put_u8(b, bits);
}

/* ---- leaves ---- */

static int pack_layout(struct buf *b, const struct array_layout *l, unsigned rank)
{
	const struct compression *c = &l->compression;
	const uint64_t sizes[] = { c->block, c->typesize, c->summed };
	int r = pack_flags(b, &l->omit_fill, 1);

	r |= wire_put_u32le(b, l->format);
	r |= wire_put_u32le(b, l->item);
	r |= wire_put_u8(b, (uint8_t)c->kind);
	r |= wire_put_u32le(b, (uint32_t)c->level);
	r |= wire_put_u8(b, (uint8_t)c->cname);
	r |= wire_put_u8(b, (uint8_t)c->shuffle);
	r |= pack_numbers(b, sizes, 3);
	return r < 0 ? r : pack_numbers(b, l->chunk, rank);
}

static void parse_layout(struct wire *w, unsigned rank, struct array_layout *ret)
{
	struct compression *c = &ret->compression;
	uint8_t bits = wire_u8(w);

	memset(ret, 0, sizeof(*ret)); /* also clears padding, since layouts are compared as bytes */
	ret->omit_fill = bits & 1;
	ret->format = wire_u32le(w);
	ret->item = wire_u32le(w);
	c->kind = wire_u8(w);
	c->level = (int)wire_u32le(w);
	c->cname = wire_u8(w);
	c->shuffle = (int8_t)wire_u8(w);
	c->block = wire_u64le(w);
	c->typesize = wire_u64le(w);
	c->summed = wire_u64le(w);
	if (!compression_is_sound(c))
		w->bad = true;
	ret->asked = *c;
	parse_numbers(w, ret->chunk, rank);
}

static int pack_box(struct buf *b, const struct plan_leaf *l, size_t i)
{
	struct draft_part p = { 0 };
	const struct draft_array *a = l->n_parts ? &l->part[i]->file->array[0] :
						   &l->source->file->array[l->index];
	unsigned rank = l->desc.array.rank;
	int r = l->n_parts ? draft_part_of(span_str(l->part[i]->name), &p) : 0;

	if (r < 0)
		return r;
	r = pack_numbers(b, p.start, rank);
	r |= pack_numbers(b, l->n_parts ? p.extent : l->desc.array.shape, rank);
	return r < 0 ? r : pack_layout(b, &a->layout, rank);
}

bool plan_leaf_is_replicas(const struct plan_leaf *l)
{
	return l->desc.type->in_boxes && !l->n_parts &&
	       draft_is_replicas(l->source, l->source->file->array[l->index].store);
}

static int pack_leaf(struct buf *b, const struct plan_leaf *l)
{
	const struct leaf_desc *d = &l->desc;
	size_t n = l->n_parts ? l->n_parts : 1;
	int r = wire_put_u8(b, (uint8_t)leaf_type_number(d->type));

	r |= pack_flags(b, (const bool[]){ d->has_shape, d->is_jax }, 2);
	r |= wire_put_u32le(b, d->array.dtype);
	r |= wire_put_u32le(b, d->array.rank);
	r |= pack_numbers(b, d->array.shape, d->array.rank);
	r |= pack_text(b, d->sharding);
	r |= pack_text(b, d->key_impl);
	/* The primary needs only the values that it writes into documents. */
	r |= pack_text(b, leaf_describe(d).text);
	r |= pack_flags(b, (const bool[]){ l->n_parts > 0, plan_leaf_is_replicas(l) }, 2);
	if (r < 0 || !d->type->in_boxes)
		return r;
	r = wire_put_u32le(b, (uint32_t)n);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = pack_box(b, l, i);
	return r;
}

static int parse_desc(struct wire *w, struct arena *a, struct leaf_desc *ret)
{
	unsigned type = wire_u8(w), bits = wire_u8(w), i = 0;
	struct array_type *t = &ret->array;
	uint64_t *shape;

	while (leaf_types[i] && i < type)
		i++;
	ret->type = leaf_types[i];
	ret->has_shape = bits & 1;
	ret->is_jax = bits & 2;
	t->dtype = (enum dtype)wire_u32le(w);
	t->rank = wire_u32le(w);
	if (!ret->type || t->rank > LIMIT_RANK || t->dtype < DTYPE_UNKNOWN ||
	    t->dtype >= DTYPE_COUNT || (ret->type->in_store && t->dtype == DTYPE_UNKNOWN))
		return -EIO;
	shape = arena_calloc(a, t->rank + 1, sizeof(*shape));
	if (!shape)
		return -ENOMEM;
	parse_numbers(w, shape, t->rank);
	t->shape = shape;
	ret->sharding = parse_text(w);
	ret->key_impl = parse_text(w);
	ret->value = parse_text(w);
	return 0;
}

static int parse_leaf(struct wire *w, struct arena *a, struct contribution_leaf *ret)
{
	unsigned rank, bits;
	int r = parse_desc(w, a, &ret->desc);

	if (r < 0)
		return r;
	rank = ret->desc.array.rank;
	bits = wire_u8(w);
	ret->in_parts = bits & 1;
	ret->replicas = bits & 2;
	if (!ret->desc.type->in_boxes)
		return ret->in_parts ? -EIO : 0;
	r = parse_count(w, a, sizeof(*ret->box), &ret->n_boxes, &ret->box);
	if (r < 0 || !ret->n_boxes)
		return r < 0 ? r : -EIO;
	for (size_t i = 0; i < ret->n_boxes; i++) {
		parse_numbers(w, ret->box[i].box.start, rank);
		parse_numbers(w, ret->box[i].box.extent, rank);
		parse_layout(w, rank, &ret->box[i].layout);
	}
	return 0;
}

/* ---- nodes ---- */

static int pack_type(struct buf *b, const struct tree_type *t)
{
	int r = pack_text(b, t->module);

	r |= pack_text(b, t->clazz);
	r |= wire_put_u32le(b, (uint32_t)t->n_fields);
	for (size_t i = 0; i < t->n_fields && r >= 0; i++)
		r = pack_text(b, t->fields[i]);
	return r;
}

/* Until tree_finish(), children are a linked list. */
static int pack_node(struct buf *b, const struct tree_node *n, size_t *count)
{
	size_t children = 0;
	int r;

	for (const struct tree_node *c = n->kind == TREE_LEAF ? NULL : n->first; c; c = c->next)
		children++;
	(*count)++;
	r = pack_flags(b, (const bool[]){ n->key_is_index, n->type }, 2);
	r |= wire_put_u8(b, (uint8_t)n->kind);
	r |= pack_text(b, n->key);
	if (n->type)
		r |= pack_type(b, n->type);
	r |= wire_put_u32le(b, n->kind == TREE_LEAF ? n->id : 0);
	r |= wire_put_u32le(b, (uint32_t)children);
	/* The recursion is as deep as the directories, whose depth the plan has checked. */
	for (const struct tree_node *c = n->kind == TREE_LEAF ? NULL : n->first; c && r >= 0;
	     c = c->next)
		r = pack_node(b, c, count);
	return r;
}

static int parse_type(struct wire *w, struct arena *a, const struct tree_type **ret)
{
	struct tree_type *t = arena_calloc(a, 1, sizeof(*t));
	struct span *fields;
	int r;

	if (!t)
		return -ENOMEM;
	t->module = parse_text(w);
	t->clazz = parse_text(w);
	r = parse_count(w, a, sizeof(*fields), &t->n_fields, &fields);
	if (r < 0)
		return r;
	if (!t->module.p || !t->clazz.p || t->n_fields == 0)
		return -EIO;
	for (size_t i = 0; i < t->n_fields; i++) {
		fields[i] = parse_text(w);
		if (!fields[i].p)
			return -EIO;
	}
	t->fields = fields;
	*ret = t;
	return 0;
}

static int parse_node(struct wire *w, struct arena *a, size_t n_leaves,
		      struct contribution_node *ret)
{
	uint8_t bits = wire_u8(w);
	int r = 0;

	ret->key_is_index = bits & 1;
	ret->kind = (enum tree_kind)wire_u8(w);
	ret->key = parse_text(w);
	if (bits & 2)
		r = ret->kind == TREE_DICT ? parse_type(w, a, &ret->type) : -EIO;
	if (r < 0)
		return r;
	ret->leaf = wire_u32le(w);
	ret->n_children = wire_u32le(w);
	return ret->leaf > n_leaves || ret->kind > TREE_LEAF ||
			       (ret->kind == TREE_LEAF && ret->n_children) ?
		       -EIO :
		       0;
}

/* ---- items ---- */

static int pack_tree(struct buf *b, struct plan *p)
{
	const char *custom = p->tree->custom_metadata;
	auto_buf nodes = { 0 };
	size_t count = 0;
	int r = pack_text(b, custom ? span_str(custom) : span_of(NULL, 0));

	r |= wire_put_u32le(b, (uint32_t)p->n_leaves);
	for (size_t i = 0; i < p->n_leaves && r >= 0; i++) {
		int aggregates = plan_leaf_aggregates(&p->leaf[i]);

		if (aggregates < 0)
			return aggregates;
		if (leaf_type_number(p->leaf[i].desc.type) < 0 || aggregates)
			return fail(
				-EOPNOTSUPP,
				"'%s': leaves of plugins and of legacy files cannot be shared by "
				"ranks",
				p->leaf[i].source->name);
		p->leaf[i].node->id = (uint32_t)i + 1;
		r = pack_leaf(b, &p->leaf[i]);
	}
	if (r < 0)
		return r;
	r = pack_node(&nodes, p->tree->root, &count);
	r |= wire_put_u32le(b, (uint32_t)count);
	return r < 0 ? r : buf_add_span(b, buf_span(&nodes));
}

static int pack_files(struct buf *b, struct sealing_item *it)
{
	int r;

	it->n_files = 0;
	r = sealing_item_add_stored(it);
	r = r < 0 ? r : wire_put_u32le(b, (uint32_t)it->n_files);
	for (size_t i = 0; i < it->n_files && r >= 0; i++) {
		r = wire_put_u8(b, it->file[i].is_dir);
		if (r < 0)
			break;
		r = pack_text(b, it->file[i].name);
	}
	return r < 0 && *it->plan->name ? err_at(r, "item '%s'", it->plan->name) : r;
}

static int pack_item(struct buf *b, struct sealing_item *it)
{
	struct plan *p = it->plan;
	const struct save_opts *o = &p->opts;
	int r = pack_text(b, span_str(p->name));

	r |= pack_text(b, plan_handler(p));
	r |= wire_put_u8(b, (uint8_t)p->kind);
	r |= pack_flags(b,
			(const bool[]){ o->ocdbt, o->rich_types, o->sharding_file,
					o->array_metadata, o->store_fill_value,
					o->zarr == SAVE_ZARR3, plan_rich_off(p),
					draft_digests_wanted(p) },
			8);
	if (r < 0)
		return r;
	r = pack_files(b, it);
	return r < 0 || p->kind != PLAN_TREE ? r : pack_tree(b, p);
}

int contribution_pack(const char *final, struct span custom, struct sealing_item *item, size_t n,
		      struct buf *ret)
{
	int r = pack_text(ret, span_str(final));

	r |= pack_text(ret, custom);
	r |= wire_put_u32le(ret, (uint32_t)n);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = pack_item(ret, &item[i]);
	return r;
}

static int parse_tree(struct wire *w, struct arena *a, struct contribution_item *ret)
{
	int r;

	ret->custom = parse_text(w);
	r = parse_count(w, a, sizeof(*ret->leaf), &ret->n_leaves, &ret->leaf);
	for (size_t i = 0; i < ret->n_leaves && r >= 0; i++)
		r = parse_leaf(w, a, &ret->leaf[i]);
	if (r < 0)
		return r;
	r = parse_count(w, a, sizeof(*ret->node), &ret->n_nodes, &ret->node);
	if (r < 0 || !ret->n_nodes)
		return r < 0 ? r : -EIO;
	for (size_t i = 0; i < ret->n_nodes && r >= 0; i++)
		r = parse_node(w, a, ret->n_leaves, &ret->node[i]);
	return r;
}

static int parse_files(struct wire *w, struct arena *a, struct contribution_item *ret)
{
	int r = parse_count(w, a, sizeof(*ret->file), &ret->n_files, &ret->file);

	for (size_t i = 0; i < ret->n_files && r >= 0; i++) {
		ret->file[i].is_dir = wire_u8(w);
		ret->file[i].name = parse_text(w);
		r = ret->file[i].name.p ? 0 : -EIO;
	}
	return r;
}

static int parse_item(struct wire *w, struct arena *a, struct contribution_item *ret)
{
	uint8_t bits;
	int r;

	ret->name = parse_text(w);
	ret->handler = parse_text(w);
	ret->kind = (enum plan_item)wire_u8(w);
	bits = wire_u8(w);
	ret->ocdbt = bits & 1;
	ret->rich_types = bits & 2;
	ret->sharding_file = bits & 4;
	ret->array_metadata = bits & 8;
	ret->store_fill_value = bits & 16;
	ret->zarr = bits & 32 ? SAVE_ZARR3 : SAVE_ZARR2;
	ret->rich_off = bits & 64;
	ret->manifest = bits & 128;
	if (ret->kind > PLAN_BESIDE)
		return -EIO;
	r = parse_files(w, a, ret);
	return r < 0 || ret->kind != PLAN_TREE ? r : parse_tree(w, a, ret);
}

int contribution_parse(struct span bytes, struct contribution *ret)
{
	struct wire w = wire_of(bytes);
	struct contribution s = { 0 };
	int r;

	s.final = parse_text(&w);
	s.custom = parse_text(&w);
	r = parse_count(&w, &s.arena, sizeof(*s.item), &s.n_items, &s.item);
	for (size_t i = 0; i < s.n_items && r >= 0; i++)
		r = parse_item(&w, &s.arena, &s.item[i]);
	if (r >= 0 && !wire_ok(&w))
		r = -EIO;
	if (r < 0) {
		arena_release(&s.arena);
		return fail(r, "a rank's share of the draft cannot be understood");
	}
	*ret = s;
	return 0;
}

void contribution_release(struct contribution *s)
{
	arena_release(&s->arena);
	*s = (struct contribution){ 0 };
}

/* ---- assignments ---- */

int assignment_pack(const struct assignment *e, struct buf *ret)
{
	int r = wire_put_u8(ret, e->take);

	r |= wire_put_u8(ret, e->document);
	r |= wire_put_u8(ret, (uint8_t)e->axis);
	r |= wire_put_u64le(ret, e->from);
	return r < 0 ? r : wire_put_u64le(ret, e->to);
}

void assignment_parse(struct wire *w, struct assignment *ret)
{
	ret->take = wire_u8(w);
	ret->document = wire_u8(w);
	ret->axis = wire_u8(w);
	ret->from = wire_u64le(w);
	ret->to = wire_u64le(w);
}
