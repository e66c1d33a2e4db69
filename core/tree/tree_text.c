/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_text.c - a tree as text for people, `dump` and tests.
 *
 * One line per node, indented by depth: the key, the kind, and the place of a leaf's value. Values
 * of an aggregate file are shown; arrays by the first half of the SHA-256 of their bytes.
 */
#include <inttypes.h>

#include "core/base/digest.h"
#include "core/tree/tree.h"

static int tree_text_put_array(struct buf *out, const struct aggregate *a)
{
	uint8_t digest[32];
	int r = buf_addf(out, "%s %s ", a->is_scalar ? "np-scalar" : "array", a->dtype);

	sha256_parts(a->chunks, a->n_chunks, digest);
	if (r < 0)
		return r;
	r = json_put_uints(out, a->shape, a->rank, JSON_COMPACT);
	if (r < 0)
		return r;
	r = buf_addf(out, " item %" PRIu64 " sha256 ", a->item_size);
	return r < 0 ? r : buf_add_hex(out, span_of(digest, sizeof(digest) / 2));
}

static int put_aggregate(struct buf *out, const struct aggregate *a)
{
	int r;

	switch (a->kind) {
	case AGGREGATE_NIL:
		return buf_add_str(out, "nil");
	case AGGREGATE_BOOL:
		return buf_add_str(out, a->b ? "true" : "false");
	case AGGREGATE_INT:
		return buf_addf(out, "int %" PRId64, a->i);
	case AGGREGATE_UINT:
		return buf_addf(out, "int %" PRIu64, a->u);
	case AGGREGATE_FLOAT:
		r = buf_add_str(out, "float ");
		return r < 0 ? r : json_put_double(out, a->f, JSON_PYTHON);
	case AGGREGATE_STRING:
		r = buf_add_str(out, "string ");
		return r < 0 ? r : json_put_str(out, a->s, JSON_PYTHON);
	case AGGREGATE_BYTES:
		r = buf_add_str(out, "bytes ");
		return r < 0 ? r : buf_add_hex(out, a->s);
	case AGGREGATE_COMPLEX:
		r = buf_add_str(out, "complex ");
		if (r < 0)
			return r;
		r = json_put_double(out, a->re, JSON_PYTHON);
		if (r < 0)
			return r;
		r = buf_add_byte(out, ' ');
		return r < 0 ? r : json_put_double(out, a->im, JSON_PYTHON);
	case AGGREGATE_ARRAY:
		return tree_text_put_array(out, a);
	case AGGREGATE_SPEC:
		return buf_addf(out, "spec%s%s", a->unreadable ? " " : "",
				a->unreadable ? a->unreadable : "");
	}
	return buf_add_str(out, "unknown");
}

static int tree_text_put_leaf(struct buf *out, const struct tree_node *leaf)
{
	static const char *const values[] = {
		[TREE_VALUE_STORED] = "stored",
		[TREE_VALUE_NONE] = "none",
		[TREE_VALUE_PLACEHOLDER] = "placeholder",
		[TREE_VALUE_AGGREGATE] = "aggregate",
	};
	auto_buf type = { 0 }, param = { 0 }, shape = { 0 };
	int r;

	if (json_put_str(&type, leaf->value_type, JSON_PYTHON) < 0 ||
	    json_put_str(&param, leaf->param, JSON_PYTHON) < 0 ||
	    (leaf->has_write_shape &&
	     json_put_uints(&shape, leaf->write_shape, leaf->write_rank, JSON_COMPACT) < 0))
		return -ENOMEM;
	r = buf_addf(out, " %s %.*s param %.*s%s%.*s", values[leaf->value], SPAN_ARG(type),
		     SPAN_ARG(param), leaf->has_write_shape ? " write_shape " : "",
		     SPAN_ARG(shape));
	if (r < 0 || !leaf->aggregate)
		return r;
	r = buf_add_str(out, ": ");
	return r < 0 ? r : put_aggregate(out, leaf->aggregate);
}

static int tree_text_put_node(struct buf *out, const struct tree_node *node)
{
	int depth = 0, r;

	for (const struct tree_node *n = node; n->parent; n = n->parent)
		depth++;
	r = buf_addf(out, "%*s", 2 * depth, "");
	if (r < 0)
		return r;
	r = !node->parent      ? buf_add_str(out, ".") :
	    node->key_is_index ? buf_add_span(out, node->key) :
				 json_put_str(out, node->key, JSON_PYTHON);
	if (r < 0)
		return r;
	r = buf_addf(out, " %s", tree_kind_text(node->kind));
	if (r < 0)
		return r;
	if (node->kind == TREE_LEAF)
		r = tree_text_put_leaf(out, node);
	if (r < 0)
		return r;
	if (node->type) {
		auto_buf module = { 0 }, clazz = { 0 };

		if (json_put_str(&module, node->type->module, JSON_PYTHON) < 0 ||
		    json_put_str(&clazz, node->type->clazz, JSON_PYTHON) < 0)
			return -ENOMEM;
		r = buf_addf(out, " %.*s %.*s", SPAN_ARG(module), SPAN_ARG(clazz));
	}
	return r < 0 ? r : buf_add_byte(out, '\n');
}

int tree_text(struct buf *out, const struct tree *tree)
{
	size_t was = out->n;
	int r = buf_addf(out,
			 "use_ocdbt %s use_zarr3 %s store_fill_value %s rich %s custom_metadata "
			 "%s\n",
			 !tree->has_use_ocdbt ? "unknown" :
			 tree->use_ocdbt      ? "true" :
						"false",
			 tree->use_zarr3 ? "true" : "false",
			 tree->store_fill_value ? "true" : "false", tree->rich ? "true" : "false",
			 tree->custom_metadata ? tree->custom_metadata : "null");

	for (uint32_t i = 0; i < tree->n_nodes && r >= 0; i++)
		r = tree_text_put_node(out, tree->nodes[i]);
	if (r < 0)
		out->n = was;
	return r;
}
