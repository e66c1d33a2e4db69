/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_merge.c - add the values of an aggregate file to the tree of the `_METADATA` beside it.
 *
 * tree_msgpack.c parses the file. The file may lack nodes of `_METADATA` (empty ones in old
 * releases); `_METADATA` determines the structure.
 */
#include "core/base/err.h"
#include "core/tree/tree.h"

static int out_of_memory(void)
{
	return fail(-ENOMEM, "cannot merge an aggregate file: not enough memory");
}

/* Copy a value so that it does not need the other tree. */
static int copy_aggregate(struct tree *tree, const struct aggregate *from, struct aggregate **ret)
{
	struct aggregate *a = arena_alloc(&tree->arena, sizeof(*a));

	if (!a)
		return out_of_memory();
	*a = *from;
	if (a->kind == AGGREGATE_ARRAY) {
		size_t chunks = a->n_chunks * sizeof(a->chunks[0]),
		       shape = a->rank * sizeof(a->shape[0]);

		a->dtype = arena_str(&tree->arena, from->dtype);
		a->chunks = (void *)arena_dup(&tree->arena, span_of(from->chunks, chunks));
		a->shape = (void *)arena_dup(&tree->arena, span_of(from->shape, shape));
		if (!a->dtype || !a->chunks || !a->shape)
			return out_of_memory();
	}
	*ret = a;
	return 0;
}

static bool wants_value(const struct tree_node *node)
{
	return node->kind == TREE_LEAF &&
	       (node->value == TREE_VALUE_STORED || node->value == TREE_VALUE_AGGREGATE);
}

/* Find for every node the one with the same path in the other tree, or NULL. */
static void match_nodes(const struct tree *tree, const struct tree *other,
			const struct tree_node **ret)
{
	ret[0] = other->root;
	for (uint32_t i = 1; i < tree->n_nodes; i++) {
		const struct tree_node *node = tree->nodes[i], *up = ret[node->parent->id];

		ret[i] = up ? tree_child_by_key(up, node->key) : NULL;
	}
}

static void tree_merge_set_value(struct tree *tree, struct tree_node *node,
				 const struct tree_node *from, const struct aggregate *a)
{
	if (a) {
		node->value = TREE_VALUE_AGGREGATE;
		node->aggregate = a;
	} else if (from->value == TREE_VALUE_STORED) {
		/* A placeholder: the value is stored after all. */
		node->value = TREE_VALUE_STORED;
	} else if (from->value == TREE_VALUE_NONE) {
		node->value = TREE_VALUE_NONE;
		node->value_type = span_str("None");
		tree->n_leaves--;
	}
}

int tree_merge_aggregate(struct tree *tree, struct span bytes, const char *what)
{
	auto_of(tree) struct tree *other = NULL;
	auto_free const struct tree_node **match = calloc(tree->n_nodes, sizeof(*match));
	auto_free struct aggregate **copies = calloc(tree->n_nodes, sizeof(*copies));
	int r;

	if (!match || !copies)
		return out_of_memory();
	r = tree_parse_aggregate(bytes, what, &other);
	if (r < 0)
		return r;
	match_nodes(tree, other, match);
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		if (wants_value(tree->nodes[i]) && match[i] && match[i]->kind == TREE_LEAF &&
		    match[i]->aggregate && match[i]->aggregate->kind != AGGREGATE_SPEC) {
			r = copy_aggregate(tree, match[i]->aggregate, &copies[i]);
			if (r < 0)
				return r;
		}
	/* Nothing fails from here on. */
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		if (wants_value(tree->nodes[i]) && match[i] && match[i]->kind == TREE_LEAF)
			tree_merge_set_value(tree, tree->nodes[i], match[i], copies[i]);
	return 0;
}
