/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_json_print.c - tree -> `_METADATA`, byte for byte as Orbax 0.12.8 writes it.
 *
 * The output is Python's json.dumps of one entry per leaf and per empty container, in the tree's
 * order; the name of an entry is repr() of the tuple of its keys.
 */
#include "core/base/err.h"
#include "core/tree/py_repr.h"
#include "core/tree/tree_rich.h"

/* "('layers', '0')" and [{"key": "layers", "key_type": 2}, ...] for a path. */
struct path_texts {
	const struct tree_node *path[LIMIT_TREE_DEPTH];
	unsigned depth;
	struct buf label, keys;
};

static int put_path(struct path_texts *t)
{
	int r = 0;

	buf_clear(&t->label);
	buf_clear(&t->keys);
	if (buf_add_byte(&t->label, '(') < 0 || buf_add_byte(&t->keys, '[') < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < t->depth && r >= 0; i++) {
		const struct tree_node *n = t->path[i];

		if (buf_add_str(&t->label, i ? ", " : "") < 0 ||
		    buf_add_str(&t->keys, i ? ", {\"key\": " : "{\"key\": ") < 0 ||
		    json_put_str(&t->keys, n->key, JSON_PYTHON) < 0 ||
		    buf_addf(&t->keys, ", \"key_type\": %d}", n->key_is_index ? 1 : 2) < 0)
			return -ENOMEM;
		r = py_repr(&t->label, n->key);
	}
	if (r < 0)
		return r;
	r = buf_add_str(&t->label, t->depth == 1 ? ",)" : ")");
	return r < 0 ? r : buf_add_byte(&t->keys, ']');
}

static int tree_json_print_put_entry(const struct tree_node *node, bool rich, struct path_texts *t,
				     struct buf *ret)
{
	const struct tree_node *n = node;
	int r;

	t->depth = 0;
	while (n->parent) {
		n = n->parent;
		t->depth++;
	}
	n = node;
	for (unsigned i = t->depth; i > 0; i--, n = n->parent)
		t->path[i - 1] = n;
	r = put_path(t);
	if (r < 0)
		return r;
	r = json_put_str(ret, buf_span(&t->label), JSON_PYTHON);
	if (r < 0)
		return r;
	r = buf_addf(ret, ": {\"key_metadata\": %.*s, \"value_metadata\": ", SPAN_ARG(t->keys));
	if (r < 0)
		return r;
	r = tree_print_value(node, rich, ret);
	return r < 0 ? r : buf_add_byte(ret, '}');
}

static int put_entries(const struct tree *tree, bool rich, struct buf *ret)
{
	struct path_texts t = { .depth = 0 };
	bool first = true;
	int r = 0;

	for (uint32_t i = 0; i < tree->n_nodes && r >= 0; i++) {
		if (tree->nodes[i]->n_children)
			continue;
		r = buf_add_str(ret, first ? "" : ", ");
		if (r < 0)
			break;
		r = tree_json_print_put_entry(tree->nodes[i], rich, &t, ret);
		first = false;
	}
	buf_release(&t.label);
	buf_release(&t.keys);
	return r;
}

static int put_rich(const struct tree *tree, struct buf *ret)
{
	auto_buf text = { 0 };
	int r = tree_print_rich(tree, &text);

	if (r < 0)
		return r;
	r = buf_add_str(ret, ", \"value_metadata_tree\": ");
	return r < 0 ? r : json_put_str(ret, buf_span(&text), JSON_PYTHON);
}

static const char *flag_text(bool has, bool v)
{
	return !has ? "null" : v ? "true" : "false";
}

static int tree_json_print_document(const struct tree *tree, bool rich, struct buf *ret)
{
	int r = buf_add_str(ret, "{\"tree_metadata\": {");

	if (r < 0)
		return r;
	r = put_entries(tree, rich, ret);
	if (r < 0)
		return r;
	r = buf_addf(ret,
		     "}, \"use_ocdbt\": %s, \"use_zarr3\": %s, "
		     "\"store_array_data_equal_to_fill_value\": %s, \"custom_metadata\": %s",
		     flag_text(tree->has_use_ocdbt, tree->use_ocdbt),
		     flag_text(true, tree->use_zarr3), flag_text(true, tree->store_fill_value),
		     tree->custom_metadata ? tree->custom_metadata : "null");
	if (r < 0)
		return r;
	if (rich)
		r = put_rich(tree, ret);
	return r < 0 ? r : buf_add_byte(ret, '}');
}

int tree_print_metadata(const struct tree *tree, bool rich, struct buf *ret)
{
	size_t was = ret->n;
	int r = tree_json_print_document(tree, rich, ret);

	if (r < 0)
		ret->n = was;
	return r;
}
