/*
 * survey.c - describe all leaves of a subtree, in parallel.
 *
 * What they are printed as is survey_json.c's and survey_html.c's.
 */
#include "handlers/survey.h"

#include "core/base/err.h"

#define SLICE 128			/* leaves that one task describes */

struct survey_slice {
	struct arena arena;
	const struct subtree *subtree;
	unsigned flags;
	struct leaf_facts *leaf;
	size_t n;
	const char *codecs;		/* of the leaf before: mostly the same again */
};

void survey_release(struct survey *s)
{
	for (size_t i = 0; i < s->n_slices; i++)
		arena_release(&s->slice[i].arena);
	free(s->slice);
	free(s->leaf);
	*s = (struct survey){ 0 };
}

static const uint64_t *keep_sizes(struct arena *a, const uint64_t *sizes, unsigned n)
{
	uint64_t *p = arena_calloc(a, n, sizeof(*p));

	if (p && n)
		memcpy(p, sizes, n * sizeof(*p));
	return p;
}

static int keep_codecs(struct survey_slice *s, const struct codec_chain *c, struct leaf_facts *f)
{
	auto_buf text = { 0 };
	int r = buf_add_byte(&text, '[');

	for (unsigned i = 0; i < c->n && r >= 0; i++) {
		if (i)
			r = buf_add_str(&text, ", ");
		if (r >= 0)
			r = codec_print(c->codec[i], c->dialect, &text);
	}
	if (r >= 0)
		r = buf_add_byte(&text, ']');
	if (r < 0)
		return r;
	if (!s->codecs || !span_eq(span_str(s->codecs), buf_span(&text)))
		s->codecs = (const char *)arena_dup(&s->arena, buf_span(&text));
	f->codecs = s->codecs;
	return f->codecs ? 0 : -ENOMEM;
}

static int describe_array(struct survey_slice *s, struct zarr *z, struct leaf_facts *f)
{
	uint64_t objects;
	int r;

	f->dtype = z->meta.dtype;
	f->rank = (uint8_t)z->meta.rank;
	f->shape = keep_sizes(&s->arena, z->meta.shape, z->meta.rank);
	f->chunk = keep_sizes(&s->arena, z->leaf_chunk, z->meta.rank);
	f->bytes = z->meta.bytes;
	if (!f->shape || !f->chunk)
		return fail(-ENOMEM, "cannot describe the leaves");
	r = keep_codecs(s, &z->leaf->codecs, f);
	return r >= 0 && s->flags & SURVEY_STORED ? zarr_stored(z, &f->stored, &objects) : r;
}

static int describe_value(struct survey_slice *s, struct item *item, struct leaf_facts *f)
{
	auto_value v = { 0 };
	int r = leaf_open(item, f->leaf, &v);

	if (r < 0)
		return r;
	f->is_scalar = v.is_scalar;
	if (v.kind == VALUE_ARRAY)
		r = describe_array(s, v.array, f);
	if (v.kind == VALUE_TEXT || v.kind == VALUE_FILE) {
		f->bytes = f->stored = v.text.n;
		if (s->flags & SURVEY_TEXTS) {
			f->text = span_of(arena_dup(&s->arena, buf_span(&v.text)), v.text.n);
			if (!f->text.p)
				r = fail(-ENOMEM, "cannot describe the leaves");
		}
	}
	if (r >= 0)
		f->kind = v.kind;
	return r;
}

static int describe(struct survey_slice *s, struct leaf_facts *f)
{
	int r;

	if (!leaf_handler_of(f->leaf)) {
		f->why = "a type that no handler knows";
		return 0;
	}
	r = describe_value(s, s->subtree->part[f->part].item, f);
	if (r >= 0 || r == -ENOMEM)
		return r;
	/* Its neighbours can still be described. */
	f->error = r;
	f->why = arena_str(&s->arena, err_text(r));
	err_clear();
	return f->why ? 0 : fail(-ENOMEM, "cannot describe the leaves");
}

static int describe_slice(void *arg)
{
	struct survey_slice *s = arg;
	int r = 0;

	for (size_t i = 0; i < s->n && r >= 0; i++)
		r = describe(s, &s->leaf[i]);
	return r;
}

static size_t count_leaves(const struct subtree_part *p)
{
	size_t n = 0;

	if (p->kind == PART_TREE)
		for (uint32_t i = p->tree->id; i < subtree_end(p->tree); i++)
			n += p->item->tree->nodes[i]->kind == TREE_LEAF;
	return n;
}

static void list_leaves(const struct subtree *st, struct leaf_facts *at)
{
	for (size_t k = 0; k < st->n; k++) {
		const struct subtree_part *p = &st->part[k];
		uint32_t end = p->kind == PART_TREE ? subtree_end(p->tree) : 0;

		for (uint32_t i = end ? p->tree->id : 0; i < end; i++)
			if (p->item->tree->nodes[i]->kind == TREE_LEAF)
				*at++ = (struct leaf_facts){ .leaf = p->item->tree->nodes[i], .part = (uint32_t)k };
	}
}

int survey_make(const struct subtree *st, unsigned flags, struct survey *ret)
{
	auto_survey s = { .subtree = st };
	struct pool *pool = NULL;
	int r;

	for (size_t i = 0; i < st->n; i++) {
		s.n += count_leaves(&st->part[i]);
		if (st->part[i].kind == PART_TREE)
			pool = st->part[i].item->ckpt->pool;
	}
	s.leaf = calloc(s.n + 1, sizeof(*s.leaf));
	s.slice = calloc(div_up(s.n, SLICE) + 1, sizeof(*s.slice));
	if (!s.leaf || !s.slice)
		return fail(-ENOMEM, "cannot describe %zu leaves", s.n);
	list_leaves(st, s.leaf);
	s.n_slices = div_up(s.n, SLICE);
	for (size_t i = 0; i < s.n_slices; i++)
		s.slice[i] = (struct survey_slice){ .subtree = st, .flags = flags, .leaf = s.leaf + i * SLICE,
						    .n = MIN((size_t)SLICE, s.n - i * SLICE) };
	r = pool_run(pool, describe_slice, s.slice, sizeof(*s.slice), s.n_slices);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct survey){ 0 };
	return 0;
}
