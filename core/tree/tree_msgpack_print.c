/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_msgpack_print.c - tree -> the legacy aggregate file, through msgpack-c.
 *
 * The spelling is that of the last releases that wrote the file: maps for dicts and namedtuples,
 * arrays for lists, ext 4 for tuples, ext 1 and 3 for arrays and numpy scalars. Arrays above a GiB
 * would have to be divided into chunks, and are refused: nobody stores them in this file.
 */
#include <msgpack.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/tree/tree_msgpack.h"

#define ARRAY_BYTES_MAX (1 * GiB) /* format: numpy's msgpack form divides larger ones */

/* The target of msgpack-c, whose results do not report failures, so they are recorded here. */
struct sink {
	struct buf *out;
	int error;
};

static int sink_write(void *data, const char *p, size_t n)
{
	struct sink *s = data;

	if (!s->error && s->out->n + n > LIMIT_AGGREGATE_BYTES)
		s->error = fail(-EFBIG, "the aggregate file would exceed %llu bytes",
				(unsigned long long)LIMIT_AGGREGATE_BYTES);
	if (!s->error)
		s->error = buf_add(s->out, p, n);
	return s->error;
}

static int put_node(const struct tree_node *node, struct buf *out);

static void pack_text(msgpack_packer *pk, struct span s)
{
	msgpack_pack_str(pk, s.n);
	msgpack_pack_str_body(pk, s.p, s.n);
}

static void pack_ext(msgpack_packer *pk, enum ext_type type, struct span payload)
{
	msgpack_pack_ext(pk, payload.n, (int8_t)type);
	msgpack_pack_ext_body(pk, payload.p, payload.n);
}

/* [shape, dtype, bytes] */
static int put_array(msgpack_packer *pk, const struct aggregate *a)
{
	auto_buf payload = { 0 };
	struct sink in = { &payload, 0 };
	uint64_t bytes = 0;
	msgpack_packer inner;

	for (unsigned i = 0; i < a->n_chunks; i++)
		bytes += a->chunks[i].n;
	if (bytes > ARRAY_BYTES_MAX)
		return fail(-EFBIG, "an array of %llu bytes is too large for the aggregate file",
			    (unsigned long long)bytes);
	msgpack_packer_init(&inner, &in, sink_write);
	msgpack_pack_array(&inner, 3);
	msgpack_pack_array(&inner, a->rank);
	for (unsigned i = 0; i < a->rank; i++)
		msgpack_pack_uint64(&inner, a->shape[i]);
	pack_text(&inner, span_str(a->dtype));
	msgpack_pack_bin(&inner, bytes);
	for (unsigned i = 0; i < a->n_chunks; i++)
		msgpack_pack_bin_body(&inner, a->chunks[i].p, a->chunks[i].n);
	if (in.error)
		return in.error;
	pack_ext(pk, a->is_scalar ? EXT_SCALAR : EXT_NDARRAY, buf_span(&payload));
	return 0;
}

static int put_complex(msgpack_packer *pk, const struct aggregate *a)
{
	auto_buf payload = { 0 };
	struct sink in = { &payload, 0 };
	msgpack_packer inner;

	msgpack_packer_init(&inner, &in, sink_write);
	msgpack_pack_array(&inner, 2);
	msgpack_pack_double(&inner, a->re);
	msgpack_pack_double(&inner, a->im);
	if (in.error)
		return in.error;
	pack_ext(pk, EXT_COMPLEX, buf_span(&payload));
	return 0;
}

static int put_value(msgpack_packer *pk, const struct aggregate *a)
{
	switch (a->kind) {
	case AGGREGATE_NIL:
		msgpack_pack_nil(pk);
		return 0;
	case AGGREGATE_BOOL:
		if (a->b)
			msgpack_pack_true(pk);
		else
			msgpack_pack_false(pk);
		return 0;
	case AGGREGATE_INT:
		msgpack_pack_int64(pk, a->i);
		return 0;
	case AGGREGATE_UINT:
		msgpack_pack_uint64(pk, a->u);
		return 0;
	case AGGREGATE_FLOAT:
		msgpack_pack_double(pk, a->f);
		return 0;
	case AGGREGATE_STRING:
		pack_text(pk, a->s);
		return 0;
	case AGGREGATE_BYTES:
		msgpack_pack_bin(pk, a->s.n);
		msgpack_pack_bin_body(pk, a->s.p, a->s.n);
		return 0;
	case AGGREGATE_COMPLEX:
		return put_complex(pk, a);
	case AGGREGATE_ARRAY:
		return put_array(pk, a);
	case AGGREGATE_SPEC:
		break;
	}
	return fail(-EINVAL, "unknown kind %d of aggregate value", a->kind);
}

static int tree_msgpack_print_put_leaf(msgpack_packer *pk, const struct tree_node *leaf)
{
	auto_buf text = { 0 };
	int r;

	if (leaf->value == TREE_VALUE_NONE) {
		msgpack_pack_nil(pk);
		return 0;
	}
	if (leaf->aggregate)
		return put_value(pk, leaf->aggregate);
	if (leaf->value == TREE_VALUE_AGGREGATE)
		return fail(-EINVAL, "leaf '%.*s' has no value", SPAN_ARG(leaf->param));
	r = buf_add_str(&text, "PLACEHOLDER://");
	if (r < 0)
		return r;
	r = buf_add_span(&text, leaf->param);
	if (r < 0)
		return r;
	pack_text(pk, buf_span(&text));
	return r;
}

/* A tuple is an array inside an extension. */
static int put_tuple(msgpack_packer *pk, const struct tree_node *node)
{
	auto_buf payload = { 0 };
	struct sink in = { &payload, 0 };
	msgpack_packer inner;
	int r = 0;

	msgpack_packer_init(&inner, &in, sink_write);
	msgpack_pack_array(&inner, node->n_children);
	for (uint32_t i = 0; i < node->n_children && r >= 0; i++)
		r = put_node(node->children[i], &payload);
	if (r < 0 || in.error)
		return r < 0 ? r : in.error;
	pack_ext(pk, EXT_TUPLE, buf_span(&payload));
	return 0;
}

/* LIMIT_TREE_DEPTH bounds the recursion. */
static int put_node(const struct tree_node *node, struct buf *out)
{
	struct sink sink = { out, 0 };
	msgpack_packer pk;
	bool sequence = node->n_children ? node->children[0]->key_is_index :
					   node->kind == TREE_LIST;
	int r = 0;

	msgpack_packer_init(&pk, &sink, sink_write);
	if (node->kind == TREE_LEAF) {
		r = tree_msgpack_print_put_leaf(&pk, node);
	} else if (node->kind == TREE_TUPLE) {
		r = put_tuple(&pk, node);
	} else if (!node->n_children && node->kind != TREE_DICT && node->kind != TREE_LIST) {
		msgpack_pack_nil(&pk);
	} else {
		if (sequence)
			msgpack_pack_array(&pk, node->n_children);
		else
			msgpack_pack_map(&pk, node->n_children);
		for (uint32_t i = 0; i < node->n_children && r >= 0 && !sink.error; i++) {
			if (!sequence)
				pack_text(&pk, node->children[i]->key);
			r = put_node(node->children[i], out);
		}
	}
	return r < 0 ? r : sink.error;
}

int tree_print_aggregate(const struct tree *tree, struct buf *ret)
{
	auto_buf out = { 0 };
	int r = put_node(tree->root, &out);

	return r < 0 ? r : buf_add_span(ret, buf_span(&out));
}
