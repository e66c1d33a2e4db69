/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_scalar.c - numbers of Python and numpy, stored as arrays of rank 0.
 */
#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "scalar", NULL };

static bool scalar_recorded(const struct tree_node *leaf)
{
	const struct aggregate *a = leaf->aggregate;

	if (leaf->value != TREE_VALUE_AGGREGATE || !a)
		return false;
	switch (a->kind) {
	case AGGREGATE_BOOL:
	case AGGREGATE_INT:
	case AGGREGATE_UINT:
	case AGGREGATE_FLOAT:
	case AGGREGATE_COMPLEX:
		return true;
	case AGGREGATE_ARRAY:
		return a->is_scalar;
	default:
		return false;
	}
}

static int scalar_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		       struct value *ret)
{
	int r = leaf_open_array(t, item, leaf, ret);

	if (r < 0)
		return r;
	ret->is_scalar = true;
	return ret->array->meta.rank == 0 ?
		       0 :
		       fail(-EUCLEAN, "the array of a scalar has rank %u, not 0",
			    ret->array->meta.rank);
}

static bool is_number_word(const struct json *j)
{
	double d;

	return j->kind == JSON_STRING && dtype_value_number(j, &d);
}

/* The dtype that Orbax gives a Python value. */
static enum dtype natural_dtype(const struct json *j)
{
	switch (j->kind) {
	case JSON_BOOL:
		return DTYPE_BOOL;
	case JSON_INT:
		return DTYPE_INT64;
	case JSON_UINT:
		return DTYPE_UINT64;
	case JSON_FLOAT:
		return DTYPE_FLOAT64;
	case JSON_STRING:
		return is_number_word(j) ? DTYPE_FLOAT64 : DTYPE_UNKNOWN;
	case JSON_ARRAY:
		return j->n == 2 ? DTYPE_COMPLEX128 : DTYPE_UNKNOWN;
	default:
		return DTYPE_UNKNOWN;
	}
}

/*
 * Whether a number fits none of the dtypes that Orbax gives Python values, so that storing it would
 * change it.
 */
static bool is_beyond(const struct json *j)
{
	bool is = j->kind == JSON_FLOAT && j->is_beyond;

	for (size_t i = 0; j->kind == JSON_ARRAY && i < j->n; i++)
		is |= j->items[i].kind == JSON_FLOAT && j->items[i].is_beyond;
	return is;
}

static int leaf_scalar_take_number(struct leaf_input *f, const struct json *j,
				   struct leaf_desc *ret)
{
	enum dtype natural = natural_dtype(j), named, copied;
	uint8_t element[LIMIT_ITEM_BYTES], *value = arena_alloc(f->arena, LIMIT_ITEM_BYTES);
	int r = value ? 0 : fail(-ENOMEM, "cannot keep a number");

	if (r < 0)
		return r;
	if (natural == DTYPE_UNKNOWN)
		return fail(-EINVAL,
			    "a .json leaf is a number, true, false, a text, null or [re, im]");
	r = f->ops->dtype(f, natural, &named, &copied);
	if (r < 0)
		return r;
	/* A copy keeps the dtype of its original as long as that can hold the present value. */
	if (copied != DTYPE_UNKNOWN && dtype_value_parse(copied, j, element) >= 0)
		named = copied;
	else
		r = dtype_value_parse(named, j, element);
	if (r < 0)
		return r;
	ret->array.dtype = f->ops->stored_dtype(f, named);
	cast(ret->array.dtype, value, named, element, 1);
	ret->value = span_of(value, dtype_info(ret->array.dtype)->size);
	ret->has_shape = true;
	return 1;
}

/* Takes all JSON except null and texts that are not number words ("NaN", "Infinity"). */
static int scalar_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	const struct json *j = NULL;
	const uint8_t *end;
	struct span text;
	int r = f->ext == NAME_EXT_JSON ? leaf_input_json(f, &j) : 0;

	if (r < 0 || !j || j->kind == JSON_NULL || (j->kind == JSON_STRING && !is_number_word(j)))
		return r;
	if (!is_beyond(j))
		return leaf_scalar_take_number(f, j, ret);
	r = leaf_input_text(f, &text);
	if (r < 0)
		return r;
	end = memchr(text.p, '\n', text.n);
	text.n = MIN(end ? (size_t)(end - text.p) : text.n, (size_t)100);
	return fail(-EINVAL, "'%.*s' exceeds the range of 64-bit integers and of float64",
		    SPAN_ARG(text));
}

static int scalar_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to)
{
	return to->ops->array(to, &d->array, d->value.p);
}

/* Python numbers are stored as numbers of msgpack, others as numpy scalars. */
static int scalar_aggregate(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret)
{
	const uint8_t *element = d->value.p;
	struct span *chunk;

	switch (d->array.dtype) {
	case DTYPE_BOOL:
		ret->kind = AGGREGATE_BOOL;
		ret->b = element[0];
		return 0;
	case DTYPE_INT64:
		ret->kind = AGGREGATE_INT;
		memcpy(&ret->i, element, 8);
		return 0;
	case DTYPE_FLOAT64:
		ret->kind = AGGREGATE_FLOAT;
		memcpy(&ret->f, element, 8);
		return 0;
	case DTYPE_COMPLEX128:
		ret->kind = AGGREGATE_COMPLEX;
		memcpy(&ret->re, element, 8);
		memcpy(&ret->im, element + 8, 8);
		return 0;
	default:
		break;
	}
	chunk = arena_calloc(f->arena, 1, sizeof(*chunk));
	if (!chunk)
		return fail(-ENOMEM, "cannot aggregate a number");
	*chunk = d->value;
	*ret = (struct aggregate){ .kind = AGGREGATE_ARRAY,
				   .is_scalar = true,
				   .n_chunks = 1,
				   .chunks = chunk,
				   .dtype = dtype_info(d->array.dtype)->name,
				   .item_size = chunk->n };
	return 0;
}

const struct leaf_type leaf_scalar = {
	.name = "scalar",
	.noun = "a number",
	.typestr = typestr,
	.summary = "Python and numpy numbers, stored as arrays of rank 0: .json",
	.ext = NAME_EXT_JSON,
	.in_store = true,
	.recorded = scalar_recorded,
	.open = scalar_open,
	.classify = scalar_classify,
	.encode = scalar_encode,
	.aggregate = scalar_aggregate,
};
