/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_parse.c - parse the header: a length, and a JSON object of tensors that must cover
 * the data without gaps.
 */
#include "core/tree/safetensors_header.h"

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/meter.h"
#include "core/base/wire.h"

struct parsing {
	struct json_pull pull;
	struct safetensors st;
	bool has_metadata;
};

static int add_tensor(struct parsing *p, struct safetensor **ret)
{
	int r;

	if (p->st.n == LIMIT_TREE_NODES)
		return fail(-EFBIG, "more than %d tensors", LIMIT_TREE_NODES);
	r = array_reserve_charged(p->st.tensor, p->st.cap, p->st.n + 1, sizeof(*p->st.tensor));
	if (r < 0)
		return r;
	*ret = &p->st.tensor[p->st.n];
	**ret = (struct safetensor){ 0 };
	return 0;
}

/* The types whose elements have less than a byte, which follow each other without gaps. */
static const struct packed_type {
	const char *name;
	unsigned bits;
} packed[] = { { "F4", 4 }, { "F6_E2M3", 6 }, { "F6_E3M2", 6 } };

/* Parse a list of at most max non-negative integers. */
static int take_numbers(struct parsing *p, uint64_t *out, unsigned max, unsigned *ret_n)
{
	int r = json_pull_enter(&p->pull, JSON_ARRAY);

	*ret_n = 0;
	while (r >= 0 && (r = json_pull_next(&p->pull, NULL)) > 0) {
		uint64_t v;

		r = json_pull_uint(&p->pull, &v);
		if (r < 0)
			return r;
		if (*ret_n == max)
			return fail(-EUCLEAN, "safetensors header: a list of more than %u sizes",
				    max);
		out[(*ret_n)++] = v;
	}
	return r;
}

static int safetensors_parse_take_shape(struct parsing *p, struct safetensor *t)
{
	uint64_t shape[LIMIT_RANK];
	int r = take_numbers(p, shape, LIMIT_RANK, &t->array.rank);

	if (r < 0)
		return r;
	t->array.shape = (const uint64_t *)(void *)arena_dup(
		&p->st.arena, span_of(shape, t->array.rank * sizeof(*shape)));
	return t->array.shape ? 0 : -ENOMEM;
}

static unsigned packed_bits(struct span type)
{
	for (unsigned i = 0; i < ARRAY_LEN(packed); i++)
		if (span_eq(type, span_str(packed[i].name)))
			return packed[i].bits;
	return 0;
}

static int take_type(struct parsing *p, struct safetensor *t)
{
	struct span type;
	int r = json_pull_str(&p->pull, &type);

	if (r < 0)
		return r;
	r = arena_keep(&p->st.arena, type, &t->type);
	if (r < 0)
		return r;
	t->array.dtype = dtype_by_safetensors(t->type);
	return t->array.dtype != DTYPE_UNKNOWN || packed_bits(t->type) ?
		       0 :
		       fail(-EOPNOTSUPP, "tensor '%.*s': dtype '%.*s'", SPAN_ARG(t->name),
			    SPAN_ARG(t->type));
}

/* Set the bytes of a tensor, whose type and shape are known. */
static int set_bytes(struct safetensor *t, const uint64_t offsets[2])
{
	uint64_t bits = packed_bits(t->type);

	if (!bits)
		bits = 8 * (uint64_t)dtype_info(t->array.dtype)->size;
	for (unsigned i = 0; i < t->array.rank; i++)
		if (!mul_fits(bits, t->array.shape[i], &bits))
			return fail(-EUCLEAN, "tensor '%.*s': the shape overflows",
				    SPAN_ARG(t->name));
	if (bits % 8)
		return fail(-EUCLEAN, "tensor '%.*s': %llu bits, which are not whole bytes",
			    SPAN_ARG(t->name), (unsigned long long)bits);
	if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != bits / 8)
		return fail(-EUCLEAN, "tensor '%.*s': %llu bytes by its offsets, %llu by its shape",
			    SPAN_ARG(t->name), (unsigned long long)(offsets[1] - offsets[0]),
			    (unsigned long long)(bits / 8));
	t->begin = offsets[0];
	t->bytes = bits / 8;
	return 0;
}

static int take_tensor(struct parsing *p, struct span name)
{
	struct safetensor *t = NULL;
	uint64_t offsets[2] = { 0 };
	unsigned n, seen = 0;
	struct span member;
	int r = add_tensor(p, &t);

	if (r < 0)
		return r;
	t->name = span_of(arena_dup(&p->st.arena, name), name.n);
	r = t->name.p ? json_pull_enter(&p->pull, JSON_OBJECT) : -ENOMEM;
	while (r >= 0 && (r = json_pull_next(&p->pull, &member)) > 0) {
		unsigned bit = span_eq(member, span_str("dtype"))        ? 1 :
			       span_eq(member, span_str("shape"))        ? 2 :
			       span_eq(member, span_str("data_offsets")) ? 4 :
									   0;
		if (seen & bit)
			return fail(-EUCLEAN, "tensor '%.*s': a member twice", SPAN_ARG(t->name));
		seen |= bit;
		if (bit == 1) {
			r = take_type(p, t);
		} else if (bit == 2) {
			r = safetensors_parse_take_shape(p, t);
		} else if (bit == 4) {
			r = take_numbers(p, offsets, 2, &n);
			if (r < 0)
				return r;
			if (n != 2)
				return fail(-EUCLEAN, "tensor '%.*s': data_offsets",
					    SPAN_ARG(t->name));
		} else {
			r = json_pull_skip(&p->pull);
		}
	}
	if (r < 0)
		return r;
	if (seen != 7)
		return fail(-EUCLEAN, "tensor '%.*s' lacks dtype, shape or data_offsets",
			    SPAN_ARG(t->name));
	r = set_bytes(t, offsets);
	if (r < 0)
		return r;
	p->st.n++;
	return r;
}

/* Null, or an object of texts. */
static int take_metadata(struct parsing *p)
{
	auto_buf text = { .metered = true };
	auto_json doc = { 0 };
	int r;

	if (p->has_metadata)
		return fail(-EUCLEAN, "safetensors header: __metadata__ twice");
	p->has_metadata = true;
	r = json_pull_respell(&p->pull, &text);
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), "__metadata__", &doc);
	if (r < 0 || json_is(doc.root, JSON_NULL))
		return r;
	if (!json_is(doc.root, JSON_OBJECT))
		return fail(-EUCLEAN, "safetensors header: __metadata__ is not an object");
	for (size_t i = 0; i < doc.root->n; i++)
		if (!json_is(&doc.root->items[i], JSON_STRING))
			return fail(-EUCLEAN,
				    "safetensors header: __metadata__: '%.*s' is not a text",
				    SPAN_ARG(doc.root->items[i].name));
	p->st.metadata = (const char *)arena_dup(&p->st.arena, buf_span(&text));
	return p->st.metadata ? 0 : -ENOMEM;
}

static int by_place(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	if (x->begin != y->begin)
		return (x->begin > y->begin) - (x->begin < y->begin);
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int safetensors_parse_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

/* Check that tensors follow each other without gap or overlap, and have different names. */
static int check_tiling(struct safetensors *st)
{
	if (st->n)
		qsort(st->tensor, st->n, sizeof(*st->tensor), safetensors_parse_by_name);
	for (size_t i = 1; i < st->n; i++)
		if (span_eq(st->tensor[i - 1].name, st->tensor[i].name))
			return fail(-EUCLEAN, "tensor '%.*s' occurs twice",
				    SPAN_ARG(st->tensor[i].name));
	if (st->n)
		qsort(st->tensor, st->n, sizeof(*st->tensor), by_place);
	for (size_t i = 0; i < st->n; i++) {
		if (st->tensor[i].begin != st->bytes)
			return fail(
				-EUCLEAN,
				"tensor '%.*s' begins at byte %llu of the data, %llu was expected",
				SPAN_ARG(st->tensor[i].name),
				(unsigned long long)st->tensor[i].begin,
				(unsigned long long)st->bytes);
		if (!add_fits(st->bytes, st->tensor[i].bytes, &st->bytes))
			return fail(-EUCLEAN, "safetensors header: sizes overflow");
	}
	return 0;
}

int safetensors_parse(struct span head, struct safetensors *ret)
{
	struct parsing p = { .st.arena.metered = true };
	struct span name;
	uint64_t n;
	int r;

	if (head.n < 8)
		return 0;
	n = get_u64le(head.p);
	if (n > SAFETENSORS_HEADER_MAX)
		return fail(-EFBIG, "safetensors header of %llu bytes, the limit is %d",
			    (unsigned long long)n, SAFETENSORS_HEADER_MAX);
	if (head.n - 8 < n)
		return 0;
	if (n && head.p[8] >= 0x80)
		return fail(-EUCLEAN,
			    "safetensors header: it begins with byte %#x, which is not JSON",
			    head.p[8]);
	json_pull_init(&p.pull, span_of(head.p + 8, n), "safetensors header");
	r = json_pull_enter(&p.pull, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p.pull, &name)) > 0)
		r = span_eq(name, span_str("__metadata__")) ? take_metadata(&p) :
							      take_tensor(&p, name);
	if (r >= 0)
		r = json_pull_end(&p.pull);
	json_pull_release(&p.pull);
	if (r >= 0)
		r = check_tiling(&p.st);
	if (r < 0) {
		safetensors_release(&p.st);
		return r;
	}
	p.st.data = 8 + n;
	*ret = p.st;
	return 1;
}

void safetensors_release(struct safetensors *st)
{
	free(st->tensor);
	meter_release(st->cap * sizeof(*st->tensor));
	arena_release(&st->arena);
	*st = (struct safetensors){ 0 };
}
