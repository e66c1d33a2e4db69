/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_build.c - find children while a tree is being built; build trees from names alone.
 *
 * The table uses open addressing and is at most half full. A node has the low bits of its hash in
 * `id`, which has no other meaning before tree_finish().
 */
#include "core/tree/tree_build.h"

#include "core/base/digest.h"
#include "core/base/err.h"

static int tree_build_out_of_memory(void)
{
	return fail(-ENOMEM, "cannot build a tree: not enough memory");
}

void tree_build_release(struct tree_build *b)
{
	arena_release(&b->table);
	interner_release(&b->texts);
	*b = (struct tree_build){ 0 };
}

int tree_build_text(struct tree_build *b, struct span text, struct span *ret)
{
	return interner_add(&b->texts, &b->tree->arena, text, ret);
}

static int grow_slots(struct tree_build *b)
{
	size_t n = b->n_slots ? b->n_slots * 2 : 256;
	struct arena table = { .metered = b->tree->arena.metered };
	struct tree_node **t = arena_calloc(&table, n, sizeof(*t));

	if (!t)
		return tree_build_out_of_memory();
	for (size_t i = 0; i < b->n_slots; i++) {
		size_t at = b->slots[i] ? b->slots[i]->id & (n - 1) : 0;

		if (!b->slots[i])
			continue;
		while (t[at])
			at = (at + 1) & (n - 1);
		t[at] = b->slots[i];
	}
	arena_release(&b->table);
	b->table = table;
	b->slots = t;
	b->n_slots = n;
	return 0;
}

int tree_build_child(struct tree_build *b, struct tree_node *parent, struct span key,
		     bool key_is_index, struct tree_node **ret)
{
	struct tree_node *node = parent->last;
	struct span copy;
	uint32_t hash;
	size_t at;
	int r;

	/* Entries come depth first: a path usually begins like the previous one. */
	if (node && node->key_is_index == key_is_index && span_eq(node->key, key)) {
		*ret = node;
		return 0;
	}
	if (b->used * 2 >= b->n_slots) {
		r = grow_slots(b);
		if (r < 0)
			return r;
	}
	hash = (uint32_t)hash64(key, (uintptr_t)parent);
	for (at = hash & (b->n_slots - 1); b->slots[at]; at = (at + 1) & (b->n_slots - 1)) {
		node = b->slots[at];
		if (node->id == hash && node->parent == parent &&
		    node->key_is_index == key_is_index && span_eq(node->key, key)) {
			*ret = node;
			return 0;
		}
	}
	r = tree_build_text(b, key, &copy);
	if (r < 0)
		return r;
	r = tree_attach(b->tree, parent, copy, key_is_index, &node);
	if (r < 0)
		return r;
	node->id = hash;
	b->slots[at] = node;
	b->used++;
	*ret = node;
	return 1;
}

/* ---- trees from names ---- */

/* A set of names: a hash table of indices in names[], plus one; 0 is unused. */
struct name_set {
	const struct span *names;
	uint32_t *slots;
	size_t n_slots;
};

#define HASH_START 0xcbf29ce484222325

/* FNV, so that the hash of a prefix can be continued. */
static uint64_t hash_more(uint64_t h, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

/* The slot of the name, or the unused one where it would be. */
static uint32_t *name_slot(const struct name_set *set, struct span name, uint64_t hash)
{
	size_t at = (hash ^ hash >> 32) & (set->n_slots - 1);

	while (set->slots[at] && !span_eq(set->names[set->slots[at] - 1], name))
		at = (at + 1) & (set->n_slots - 1);
	return &set->slots[at];
}

static int name_set_init(struct name_set *set, const struct span *names, size_t n)
{
	size_t n_slots = 16;

	while (n_slots < n * 2)
		n_slots *= 2;
	*set = (struct name_set){ names, calloc(n_slots, sizeof(*set->slots)), n_slots };
	if (!set->slots)
		return tree_build_out_of_memory();
	for (size_t i = 0; i < n; i++)
		*name_slot(set, names[i], hash_more(HASH_START, names[i].p, names[i].n)) =
			(uint32_t)i + 1;
	return 0;
}

static void name_set_release(struct name_set *set)
{
	free(set->slots);
}

/*
 * Put one name into the tree. A key ends at a separator (a dot; empty: nowhere), unless the name up
 * to there is a leaf of its own. After LIMIT_TREE_DEPTH separators the rest is one key, so every
 * name has a place.
 */
static int tree_build_add_name(struct tree_build *b, const struct name_set *set, struct span name,
			       struct span by, struct tree_node **ret)
{
	struct tree_node *node = b->tree->root;
	uint64_t hash = HASH_START;
	size_t from = 0, at = 0;

	for (unsigned keys = 0; by.n && keys < LIMIT_TREE_DEPTH - 1; keys++) {
		const uint8_t *dot = memmem(name.p + at, name.n - at, by.p, by.n);
		size_t end = dot ? (size_t)(dot - name.p) : 0;

		if (!dot)
			break;
		hash = hash_more(hash, name.p + at, end - at);
		if (!*name_slot(set, span_of(name.p, end), hash)) {
			int r = tree_build_child(b, node, span_of(name.p + from, end - from), false,
						 &node);

			if (r < 0)
				return r;
			node->kind = TREE_DICT;
			from = end + by.n;
		}
		hash = hash_more(hash, dot, by.n);
		at = end + by.n;
	}
	return tree_build_child(b, node, span_from(name, from), false, ret);
}

static bool tree_build_ends_in_slash(struct span name)
{
	return name.n && name.p[name.n - 1] == '/';
}

/*
 * No slash is added to a param that ends in one (zarr_key_prefix()), so a name that does has two.
 */
static int keep_param(struct tree *tree, struct span name, struct span *ret)
{
	uint8_t *p = arena_alloc(&tree->arena, name.n + 2);

	if (!p)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	memcpy(p, name.n ? name.p : p, name.n);
	p[name.n] = '/';
	*ret = span_of(p, name.n + tree_build_ends_in_slash(name));
	return 0;
}

static int add_names(struct tree_build *b, const struct name_set *set, const bool *is_string,
		     size_t n, struct span by)
{
	struct tree_node *node;
	int r = tree_attach(b->tree, NULL, span_of(NULL, 0), false, &node);
	bool bare = n == 1 && set->names[0].n == 0;

	if (r < 0)
		return r;
	node->kind = TREE_DICT;
	for (size_t i = 0; i < n; i++) {
		r = bare ? 0 : tree_build_add_name(b, set, set->names[i], by, &node);
		if (r < 0)
			return r;
		node->kind = TREE_LEAF;
		if (!span_eq(by, span_str(".")) || tree_build_ends_in_slash(set->names[i]))
			r = keep_param(b->tree, set->names[i], &node->param);
		if (r < 0)
			return r;
		if (is_string && is_string[i])
			node->value_type = span_str("string");
	}
	return r;
}

/* Add containers, which may be empty, by the names of their keys. */
static int add_groups(struct tree_build *b, const struct span *groups, size_t n, struct span by)
{
	for (size_t i = 0; i < n; i++) {
		struct tree_node *node = b->tree->root;
		struct span rest = groups[i];

		for (unsigned depth = 0; rest.n && depth < LIMIT_TREE_DEPTH; depth++) {
			const uint8_t *end = memmem(rest.p, rest.n, by.p, by.n);
			struct span key = span_of(rest.p, end ? (size_t)(end - rest.p) : rest.n);
			int r = tree_build_child(b, node, key, false, &node);

			if (r < 0)
				return r;
			/* The whole name of what is below an array is one key. */
			if (node->kind == TREE_LEAF)
				break;
			node->kind = TREE_DICT;
			rest = span_from(rest, key.n + (end ? by.n : 0));
		}
	}
	return 0;
}

/* The names of a tree: of leaves, and of containers that may be empty. */
struct named {
	const struct span *leaf, *group;
	const bool *is_string; /* or NULL */
	size_t n, n_groups;
};

static int add_leaves_and_groups(struct tree *tree, const struct named *names, struct span by)
{
	__attribute__((cleanup(name_set_release))) struct name_set set = { 0 };
	auto_tree_build b = { .tree = tree };
	int r = name_set_init(&set, names->leaf, names->n);

	if (r < 0)
		return r;
	r = add_names(&b, &set, names->is_string, names->n, by);
	if (r < 0)
		return r;
	r = add_groups(&b, names->group, names->n_groups, by);
	return r < 0 || !names->n_groups ? r : tree_sort(tree);
}

static int build(const struct named *names, const char *separator, struct tree **ret)
{
	auto_of(tree) struct tree *tree = NULL;
	int r;

	if (names->n > LIMIT_TREE_NODES)
		return fail(-EFBIG, "the tree has more than %d nodes", LIMIT_TREE_NODES);
	r = tree_new(&tree);
	if (r < 0)
		return r;
	tree->arena.metered = true;
	r = add_leaves_and_groups(tree, names, span_str(separator));
	if (r < 0)
		return r;
	r = tree_finish_as(tree, -EUCLEAN);
	if (r < 0)
		return r;
	*ret = take(tree);
	return 0;
}

int tree_from_names(const struct span *names, const bool *is_string, size_t n, struct tree **ret)
{
	return tree_from_names_split(names, is_string, n, ".", ret);
}

int tree_from_names_split(const struct span *names, const bool *is_string, size_t n,
			  const char *separator, struct tree **ret)
{
	const struct named all = { .leaf = names, .is_string = is_string, .n = n };

	return n ? build(&all, separator, ret) : fail(-EUCLEAN, "the list of parameters is empty");
}

int tree_from_hierarchy(const struct span *names, size_t n, const struct span *groups,
			size_t n_groups, struct tree **ret)
{
	const struct named all = { .leaf = names, .n = n, .group = groups, .n_groups = n_groups };

	return build(&all, "/", ret);
}
