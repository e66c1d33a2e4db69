/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - nodes: add them, put them in order, find them by key.
 *
 * tree_json.c, tree_msgpack.c and tree_build.c create nodes; tree_name.c names them.
 *
 * While a tree is built, children are a list (first, last, next), so that adding one costs the same
 * for any number of siblings. tree_finish() turns the lists into arrays, all in one block.
 *
 * Nothing here is recursive: hostile documents nest to any depth, which is known only after they
 * have been traversed.
 *
 * Invariants after tree_finish(): siblings have different keys; they are all positions or all keys;
 * positions are 0 to n - 1 in this order; no path is longer than LIMIT_TREE_DEPTH keys.
 */
#include "core/tree/tree.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/tree/tree_build.h"

int tree_new(struct tree **ret)
{
	struct tree *tree = calloc(1, sizeof(*tree));

	if (!tree)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	*ret = tree;
	return 0;
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	tree_free(tree->made_of);
	arena_release(&tree->arena);
	free(tree);
}

int tree_node_new(struct tree *tree, struct tree_node **ret)
{
	struct tree_node *node;

	if (tree->n_nodes == LIMIT_TREE_NODES)
		return fail(-EFBIG, "the tree has more than %d nodes", LIMIT_TREE_NODES);
	node = arena_calloc(&tree->arena, 1, sizeof(*node));
	if (!node)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	tree->n_nodes++;
	*ret = node;
	return 0;
}

void tree_link(struct tree_node *parent, struct tree_node *node, struct span key, bool key_is_index)
{
	node->key = key;
	node->key_is_index = key_is_index;
	node->parent = parent;
	if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
	parent->n_children++;
}

int tree_attach(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
		struct tree_node **ret)
{
	struct tree_node *node;
	int r = tree_node_new(tree, &node);

	if (r < 0)
		return r;
	if (parent)
		tree_link(parent, node, key, key_is_index);
	else
		tree->root = node;
	*ret = node;
	return 0;
}

int tree_add(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
	     enum tree_kind kind, struct tree_node **ret)
{
	int r;

	if (!utf8_valid(key))
		return fail(-EINVAL, "key '%.*s' is not UTF-8", SPAN_ARG(key));
	if (parent ? parent->kind == TREE_LEAF : tree->root != NULL || key.n)
		return fail(-EINVAL, "key '%.*s' has no place in the tree", SPAN_ARG(key));
	if (parent && parent->last && parent->last->key_is_index != key_is_index)
		return fail(-EINVAL, "position and key under one parent: '%.*s' beside '%.*s'",
			    SPAN_ARG(key), SPAN_ARG(parent->last->key));
	r = arena_keep(&tree->arena, key, &key);
	if (r < 0)
		return r;
	r = tree_attach(tree, parent, key, key_is_index, ret);
	if (r < 0)
		return r;
	(*ret)->kind = kind;
	return r;
}

/* ---- order ---- */

int tree_cmp_index(struct span a, struct span b)
{
	return a.n != b.n ? (a.n > b.n) - (a.n < b.n) : span_cmp(a, b);
}

static int by_index(const void *a, const void *b)
{
	return tree_cmp_index((*(struct tree_node *const *)a)->key,
			      (*(struct tree_node *const *)b)->key);
}

static int by_key(const void *a, const void *b)
{
	return span_cmp((*(struct tree_node *const *)a)->key, (*(struct tree_node *const *)b)->key);
}

typedef int node_order(const void *, const void *);

static bool is_sorted(struct tree_node *const *nodes, uint32_t n, node_order *order)
{
	for (uint32_t i = 1; i < n; i++)
		if (order(&nodes[i - 1], &nodes[i]) > 0)
			return false;
	return true;
}

/* Most documents are in order, and checking is cheaper than sorting. */
static void sort_nodes(struct tree_node **nodes, uint32_t n, node_order *order)
{
	if (!is_sorted(nodes, n, order))
		qsort(nodes, n, sizeof(struct tree_node *), order);
}

/* Whether a key is the text of an integer as Python writes it: "-1", not "01" or "-0". */
static bool tree_is_integer(struct span key)
{
	bool minus = key.n && key.p[0] == '-';
	struct span digits = span_from(key, minus);

	if (digits.n == 0 || (digits.p[0] == '0' && (minus || digits.n > 1)))
		return false;
	for (size_t i = 0; i < digits.n; i++)
		if (digits.p[i] < '0' || digits.p[i] > '9')
			return false;
	return true;
}

static int by_value(const void *a, const void *b)
{
	struct span x = (*(struct tree_node *const *)a)->key,
		    y = (*(struct tree_node *const *)b)->key;
	bool below = x.p[0] == '-';

	if (below != (y.p[0] == '-'))
		return below ? -1 : 1;
	return below ? tree_cmp_index(y, x) : tree_cmp_index(x, y);
}

/*
 * Put children whose keys are integers in the order of their values, in the places that these
 * children have; others stay where they are.
 */
static int order_integers(struct tree_node **nodes, uint32_t n)
{
	auto_free struct tree_node **integer = NULL;
	struct tree_node *last = NULL;
	bool sorted = true;
	uint32_t m = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!tree_is_integer(nodes[i]->key))
			continue;
		sorted = sorted && (!last || by_value(&last, &nodes[i]) <= 0);
		last = nodes[i];
	}
	if (sorted)
		return 0;
	integer = calloc(n, sizeof(struct tree_node *));
	if (!integer)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	for (uint32_t i = 0; i < n; i++)
		if (tree_is_integer(nodes[i]->key))
			integer[m++] = nodes[i];
	qsort(integer, m, sizeof(struct tree_node *), by_value);
	for (uint32_t i = n; i-- > 0;)
		if (tree_is_integer(nodes[i]->key))
			nodes[i] = integer[--m];
	return 0;
}

static void relink(struct tree_node *parent, struct tree_node *const *order)
{
	for (uint32_t i = 0; i < parent->n_children; i++)
		order[i]->next = i + 1 < parent->n_children ? order[i + 1] : NULL;
	parent->first = order[0];
	parent->last = order[parent->n_children - 1];
}

static void collect(const struct tree_node *parent, struct tree_node **ret)
{
	uint32_t i = 0;

	for (struct tree_node *c = parent->first; c; c = c->next)
		ret[i++] = c;
}

/* The next node, depth first, following the lists; updates *depth. */
static struct tree_node *list_walk(struct tree_node *node, unsigned *depth)
{
	if (node->n_children) {
		(*depth)++;
		return node->first;
	}
	while (node && !node->next) {
		node = node->parent;
		(*depth)--;
	}
	return node ? node->next : NULL;
}

/*
 * Put sorted children in the order of the fields; children that are not fields come last. ret has
 * room for the children twice.
 */
static void order_fields(struct tree_node *const *nodes, uint32_t n, const struct tree_type *type,
			 struct tree_node **ret)
{
	struct tree_node **left = ret + n; /* those without a place; NULL: it has one */
	uint32_t at = 0;

	memcpy(left, nodes, n * sizeof(struct tree_node *));
	for (size_t i = 0; i < type->n_fields; i++) {
		uint32_t lo = 0, hi = n;

		while (lo < hi) {
			uint32_t mid = lo + (hi - lo) / 2;

			if (span_cmp(nodes[mid]->key, type->fields[i]) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo < n && left[lo] && span_eq(nodes[lo]->key, type->fields[i])) {
			ret[at++] = nodes[lo];
			left[lo] = NULL;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		if (left[i])
			ret[at++] = left[i];
}

int tree_sort(struct tree *tree)
{
	size_t n_nodes = (size_t)tree->n_nodes + 1;
	auto_free struct tree_node **order = calloc(n_nodes * 3, sizeof(*order));
	struct tree_node **by_fields = order + n_nodes;
	unsigned depth = 0;

	if (!order)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	for (struct tree_node *n = tree->root; n; n = list_walk(n, &depth)) {
		bool fields = n->type && n->type->fields;

		if ((n->kind != TREE_DICT && !fields) || !n->n_children)
			continue;
		collect(n, order);
		sort_nodes(order, n->n_children, by_key);
		if (fields)
			order_fields(order, n->n_children, n->type, by_fields);
		relink(n, fields ? by_fields : order);
		if (n->kind == TREE_DICT)
			n->type = NULL;
	}
	return 0;
}

bool tree_has_order(const struct tree_node *node)
{
	if (node->kind != TREE_DICT || !node->n_children || node->children == node->by_key)
		return false;
	/* Integers are in the order of their values in either case. */
	for (uint32_t i = 0; i < node->n_children; i++) {
		bool integer = tree_is_integer(node->children[i]->key);

		if (integer != tree_is_integer(node->by_key[i]->key) ||
		    (!integer && node->children[i] != node->by_key[i]))
			return true;
	}
	return false;
}

int tree_type_like(struct tree *tree, const struct tree_node *like, const struct tree_type **ret)
{
	bool named = like->kind == TREE_NAMEDTUPLE && like->type;
	struct tree_type *type;
	struct span *fields;

	if (!named && !tree_has_order(like))
		return 0;
	type = arena_calloc(&tree->arena, 1, sizeof(*type));
	fields = arena_calloc(&tree->arena, (size_t)like->n_children + 1, sizeof(*fields));
	if (!type || !fields)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	for (uint32_t i = 0; i < like->n_children; i++)
		fields[i] = like->children[i]->key;
	type->module = named ? like->type->module : span_str("");
	type->clazz = named ? like->type->clazz : span_str("");
	type->fields = fields;
	type->n_fields = like->n_children;
	*ret = type;
	return 1;
}

/* ---- finishing ---- */

static int check_positions(const struct tree_node *node, struct tree_node *const *children,
			   int code)
{
	char want[16];

	for (uint32_t i = 0; i < node->n_children; i++) {
		snprintf(want, sizeof(want), "%u", i);
		if (!span_eq(children[i]->key, span_str(want)))
			return fail(
				code,
				"%s%.*s%sa sequence of %u has position '%.*s' where '%s' should be",
				node->key.n ? "'" : "", SPAN_ARG(node->key),
				node->key.n ? "': " : "", node->n_children,
				SPAN_ARG(children[i]->key), want);
	}
	return 0;
}

/* Make an ordered array of a node's children; by_key is the same array if possible. */
static int finish_children(struct tree *tree, struct tree_node *node, struct tree_node **children,
			   int code)
{
	uint32_t n = node->n_children;
	struct tree_node **sorted = children;
	bool positions = node->first->key_is_index;
	int r = 0;

	collect(node, children);
	if (positions)
		sort_nodes(children, n, by_index);
	else
		r = order_integers(children, n);
	if (r < 0)
		return r;
	/* The traversal continues through the list. */
	relink(node, children);
	if (positions) {
		node->children = children;
		node->by_key = NULL;
		return check_positions(node, children, code);
	}
	if (!is_sorted(children, n, by_key)) {
		sorted = arena_calloc(&tree->arena, n, sizeof(*sorted));
		if (!sorted)
			return fail(-ENOMEM, "cannot build a tree: not enough memory");
		memcpy(sorted, children, n * sizeof(struct tree_node *));
		qsort(sorted, n, sizeof(struct tree_node *), by_key);
	}
	for (uint32_t i = 1; i < n; i++)
		if (span_eq(sorted[i - 1]->key, sorted[i]->key))
			return fail(code, "two children have the key '%.*s'",
				    SPAN_ARG(sorted[i]->key));
	node->children = children;
	node->by_key = sorted;
	return 0;
}

/* Set the parameter name to the keys joined by '.', unless it is set. */
static int finish_param(struct tree *tree, struct tree_node *leaf, uint64_t *text)
{
	size_t len = 0;
	uint8_t *p;

	if (!leaf->param.p) {
		for (const struct tree_node *n = leaf; n->parent; n = n->parent)
			len += n->key.n + (n->parent->parent != NULL);
		p = arena_alloc(&tree->arena, len + 1);
		if (!p)
			return fail(-ENOMEM, "cannot build a tree: not enough memory");
		leaf->param = span_of(p, len);
		p[len] = '\0';
		p += len;
		for (const struct tree_node *n = leaf; n->parent; n = n->parent) {
			p -= n->key.n;
			if (n->key.n)
				memcpy(p, n->key.p, n->key.n);
			if (n->parent->parent)
				*--p = '.';
		}
	}
	*text += leaf->param.n;
	if (*text > LIMIT_TREE_TEXT)
		return fail(-EFBIG, "the parameter names of the tree exceed %llu bytes",
			    (unsigned long long)LIMIT_TREE_TEXT);
	if (leaf->value == TREE_VALUE_STORED || leaf->value == TREE_VALUE_AGGREGATE)
		tree->n_leaves++;
	return 0;
}

int tree_finish_as(struct tree *tree, int code)
{
	struct tree_node **pool;
	unsigned depth = 0;
	uint64_t text = 0;
	uint32_t id = 0;
	int r = 0;

	if (!tree->root)
		return fail(code, "the tree is empty");
	tree->nodes = arena_calloc(&tree->arena, tree->n_nodes, sizeof(*tree->nodes));
	pool = arena_calloc(&tree->arena, tree->n_nodes, sizeof(*pool));
	if (!tree->nodes || !pool)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	tree->n_leaves = 0;
	for (struct tree_node *n = tree->root, *next; n; n = next) {
		if (depth > LIMIT_TREE_DEPTH)
			return fail(-EFBIG, "the tree is deeper than %d keys", LIMIT_TREE_DEPTH);
		n->id = id;
		tree->nodes[id++] = n;
		if (n->n_children) {
			struct tree_node **children = pool;

			pool += n->n_children;
			r = finish_children(tree, n, children, code);
			next = children[0];
			depth++;
		} else {
			if (n->kind == TREE_LEAF)
				r = finish_param(tree, n, &text);
			next = list_walk(n, &depth);
		}
		if (r < 0)
			return r;
	}
	/* Nodes that were created but not used are not counted. */
	tree->n_nodes = id;
	/* The lists are no longer needed; their links share memory with the names. */
	for (uint32_t i = 0; i < id; i++)
		tree->nodes[i]->name = span_of(NULL, 0);
	return 0;
}

int tree_finish(struct tree *tree)
{
	return tree_finish_as(tree, -EINVAL);
}

/* ---- look-ups ---- */

/* Convert the text of a position to its value; UINT32_MAX when it is not spelled as one. */
static uint32_t index_of(struct span key)
{
	uint32_t v = 0;

	if (key.n == 0 || key.n > 9 || (key.n > 1 && key.p[0] == '0'))
		return UINT32_MAX;
	for (size_t i = 0; i < key.n; i++) {
		if (key.p[i] < '0' || key.p[i] > '9')
			return UINT32_MAX;
		v = v * 10 + (key.p[i] - 0u - '0');
	}
	return v;
}

const struct tree_node *tree_child_by_key(const struct tree_node *dir, struct span key)
{
	uint32_t lo = 0, hi = dir->n_children;

	if (hi == 0)
		return NULL;
	if (dir->children[0]->key_is_index) {
		uint32_t i = index_of(key);

		return i < hi ? dir->children[i] : NULL;
	}
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = span_cmp(dir->by_key[mid]->key, key);

		if (c == 0)
			return dir->by_key[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* Set ret to the nodes from below the root down to node; returns their number. */
static unsigned path_of(const struct tree_node *node, const struct tree_node *ret[LIMIT_TREE_DEPTH])
{
	unsigned depth = 0;

	for (const struct tree_node *n = node; n->parent; n = n->parent)
		depth++;
	for (unsigned i = depth; i > 0; i--, node = node->parent)
		ret[i - 1] = node;
	return depth;
}

int tree_key_json(const struct tree_node *node, struct buf *ret)
{
	const struct tree_node *path[LIMIT_TREE_DEPTH];
	unsigned depth = path_of(node, path);
	size_t was = ret->n;
	int r = buf_add_byte(ret, '[');

	for (unsigned i = 0; i < depth && r >= 0; i++) {
		r = i ? buf_add_byte(ret, ',') : 0;
		if (r < 0)
			break;
		r = json_put_str(ret, path[i]->key, JSON_COMPACT);
	}
	if (r >= 0)
		r = buf_add_byte(ret, ']');
	if (r < 0)
		ret->n = was;
	return r;
}

int tree_path(const struct tree_node *node, struct buf *ret)
{
	const struct tree_node *path[LIMIT_TREE_DEPTH];
	unsigned depth = path_of(node, path);
	size_t was = ret->n;
	int r = depth ? 0 : buf_add_span(ret, node->name);

	for (unsigned i = 0; i < depth && r >= 0; i++) {
		r = i ? buf_add_byte(ret, '/') : 0;
		if (r < 0)
			break;
		r = buf_add_span(ret, path[i]->name);
	}
	if (r < 0)
		ret->n = was;
	return r;
}

const char *tree_kind_text(enum tree_kind kind)
{
	static const char *const text[] = {
		[TREE_UNKNOWN] = "unknown",
		[TREE_DICT] = "dict",
		[TREE_LIST] = "list",
		[TREE_TUPLE] = "tuple",
		[TREE_NAMEDTUPLE] = "namedtuple",
		[TREE_CUSTOM] = "custom",
		[TREE_LEAF] = "leaf",
	};

	return text[kind];
}
