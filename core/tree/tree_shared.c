/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_shared.c - find leaves of a stored tree that have one stored name, so that one value is that
 * of another leaf.
 */
#include "core/base/err.h"
#include "core/tree/tree.h"

#define MAX_SHOWN 4 /* leaves in a message */

/* Keys of arrays begin with the name and a slash, which is not added to a name that ends in one. */
static struct span stored_name(const struct tree_node *leaf)
{
	struct span name = leaf->param;

	name.n -= name.n && name.p[name.n - 1] == '/';
	return name;
}

/* Texts are stored in another file than arrays. */
static bool is_string(const struct tree_node *leaf)
{
	return span_eq(leaf->value_type, span_str("string"));
}

static int by_stored_name(const void *a, const void *b)
{
	const struct tree_node *x = *(struct tree_node *const *)a,
			       *y = *(struct tree_node *const *)b;
	int c = is_string(x) - is_string(y);

	return c ? c : span_cmp(stored_name(x), stored_name(y));
}

/* Make a ring of each run of equal names. */
static void link_shared(struct tree_node **leaf, uint32_t n)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i <= n; i++) {
		if (i < n && !by_stored_name(&leaf[first], &leaf[i])) {
			leaf[i - 1]->shared = leaf[i];
			continue;
		}
		if (i - 1 > first)
			leaf[i - 1]->shared = leaf[first];
		first = i;
	}
}

int tree_find_shared(struct tree *tree)
{
	auto_arena memory = { .metered = true };
	struct tree_node **leaf;
	bool ambiguous = false;
	uint32_t n = 0;

	/* Only such keys can make the names of different leaves equal. */
	for (uint32_t i = 0; i < tree->n_nodes && !ambiguous; i++) {
		struct span key = tree->nodes[i]->key;

		ambiguous = key.n && (memchr(key.p, '.', key.n) || key.p[key.n - 1] == '/');
	}
	if (!ambiguous)
		return 0;
	leaf = arena_calloc(&memory, tree->n_nodes, sizeof(*leaf));
	if (!leaf)
		return fail(-ENOMEM, "cannot compare the names of %u nodes", tree->n_nodes);
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		if (tree->nodes[i]->kind == TREE_LEAF && tree->nodes[i]->value == TREE_VALUE_STORED)
			leaf[n++] = tree->nodes[i];
	if (n)
		qsort(leaf, n, sizeof(*leaf), by_stored_name);
	link_shared(leaf, n);
	return 0;
}

int tree_fail_shared(const struct tree_node *leaf)
{
	const struct tree_node *at = leaf->shared;
	auto_buf keys = { 0 };
	int r = tree_key_json(leaf, &keys);

	for (unsigned i = 0; at != leaf && i < MAX_SHOWN && r >= 0; i++, at = at->shared) {
		r = buf_add_str(&keys, at->shared == leaf ? " and " : ", ");
		if (r < 0)
			return r;
		r = tree_key_json(at, &keys);
	}
	if (r < 0)
		return r;
	if (at != leaf)
		r = buf_add_str(&keys, " and others");
	return r < 0 ? r :
		       fail(-EUCLEAN,
			    "'%.*s' is the stored name of the leaves %.*s: it cannot be told "
			    "whose value this is",
			    SPAN_ARG(stored_name(leaf)), SPAN_ARG(buf_span(&keys)));
}
