/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_name.c - name a tree's nodes in the mount, and find nodes by name.
 *
 * name.c spells a key. Different keys have different names, so siblings can collide only in the
 * hash of shortened names; the later one in the tree's order then gets another hash.
 *
 * Invariants after tree_name(): siblings have different names, by_name is sorted by them, and no
 * two names share a stem unless one is a container.
 */
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/tree/tree.h"

#define ATTEMPTS 100 /* 64-bit hashes do not collide this often */

/*
 * Names by key and extension: a million leaves have a few hundred different ones, so each is stored
 * once. The table is direct mapped; a miss only costs a copy.
 */
struct known_name {
	struct span key, name;
	enum name_ext ext;
};

struct naming {
	struct tree *tree;
	unsigned ours; /* bits of enum name_ours for the tree's top */
	tree_ext_fn *ext_of;
	void *arg;
	struct known_name *known; /* N_KNOWN entries; owned */
	struct buf text;          /* the name being made */
};

#define N_KNOWN 4096

static int tree_name_out_of_memory(void)
{
	return fail(-ENOMEM, "cannot name a tree: not enough memory");
}

static int keep_name(struct naming *nm, struct span *ret)
{
	return arena_keep(&nm->tree->arena, buf_span(&nm->text), ret);
}

static enum name_ext ext_of(const struct naming *nm, const struct tree_node *node)
{
	return node->kind == TREE_LEAF ? nm->ext_of(nm->arg, node) : NAME_EXT_NONE;
}

static enum name_use use_of(const struct tree_node *node)
{
	return node->kind == TREE_LEAF ? NAME_LEAF : NAME_CONTAINER;
}

static int name_node(struct naming *nm, struct tree_node *node)
{
	enum name_ext ext = ext_of(nm, node);
	unsigned ours = node->parent == nm->tree->root ? nm->ours : 0;
	struct known_name *k = &nm->known[hash64(node->key, ext) % N_KNOWN];
	int r;

	if (!ours && k->name.p && k->ext == ext && span_eq(k->key, node->key)) {
		node->name = k->name;
		return 0;
	}
	buf_clear(&nm->text);
	r = name_escape(node->key, use_of(node), ext, ours, &nm->text);
	if (r < 0)
		return r;
	r = keep_name(nm, &node->name);
	if (r < 0)
		return r;
	if (!ours)
		*k = (struct known_name){ node->key, node->name, ext };
	return r;
}

static int tree_name_by_name(const void *a, const void *b)
{
	const struct tree_node *x = *(struct tree_node *const *)a,
			       *y = *(struct tree_node *const *)b;
	int c = span_cmp(x->name, y->name);

	return c ? c : (x->id > y->id) - (x->id < y->id);
}

static bool tree_name_is_sorted(struct tree_node *const *nodes, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (tree_name_by_name(&nodes[i - 1], &nodes[i]) > 0)
			return false;
	return true;
}

static int rename_node(struct naming *nm, struct tree_node *node, unsigned attempt)
{
	auto_buf key = { .metered = true };
	int r;

	buf_clear(&nm->text);
	r = name_escape_hashed(node->key, use_of(node), ext_of(nm, node), attempt, &nm->text);
	if (r < 0)
		return r;
	r = keep_name(nm, &node->name);
	if (r < 0)
		return r;
	r = tree_key_json(node, &key);
	if (r < 0)
		return r;
	log_warn("two leaves have one name: the one with the key %.*s is shown as '%.*s'",
		 SPAN_ARG(key), SPAN_ARG(node->name));
	return r;
}

/* Put by_name in order; it is the array of children itself if that is in order. */
static int order_children(struct naming *nm, struct tree_node *dir)
{
	uint32_t n = dir->n_children;

	if (!dir->by_name)
		dir->by_name = dir->children;
	if (tree_name_is_sorted(dir->by_name, n))
		return 0;
	if (dir->by_name == dir->children) {
		dir->by_name = arena_calloc(&nm->tree->arena, n, sizeof(struct tree_node *));
		if (!dir->by_name)
			return tree_name_out_of_memory();
		memcpy(dir->by_name, dir->children, n * sizeof(struct tree_node *));
	}
	qsort(dir->by_name, n, sizeof(struct tree_node *), tree_name_by_name);
	return 0;
}

/* Sort the children by name; of those with the same name, rename all but the first. */
static int sort_children(struct naming *nm, struct tree_node *dir)
{
	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		int r = order_children(nm, dir);
		bool again = false;

		for (uint32_t i = 0, first = 0; i < dir->n_children && r >= 0; i++) {
			if (i == 0 || !span_eq(dir->by_name[i]->name, dir->by_name[first]->name)) {
				first = i;
				continue;
			}
			r = rename_node(nm, dir->by_name[i], attempt);
			again = true;
		}
		if (r < 0 || !again)
			return r;
	}
	return fail(-EUCLEAN, "the names of siblings collide too often");
}

int tree_name(struct tree *tree, unsigned ours, tree_ext_fn *ext, void *arg)
{
	auto_free struct known_name *known = calloc(N_KNOWN, sizeof(*known));
	struct naming nm = { .tree = tree,
			     .ours = ours,
			     .ext_of = ext,
			     .arg = arg,
			     .known = known,
			     .text.metered = true };
	int r = 0;

	if (!known)
		return tree_name_out_of_memory();
	if (tree->root->kind == TREE_LEAF)
		r = name_node(&nm, tree->root);
	for (uint32_t i = 1; i < tree->n_nodes && r >= 0; i++)
		r = name_node(&nm, tree->nodes[i]);
	for (uint32_t i = 0; i < tree->n_nodes && r >= 0; i++)
		if (tree->nodes[i]->n_children)
			r = sort_children(&nm, tree->nodes[i]);
	buf_release(&nm.text);
	return r;
}

/* ---- look-ups ---- */

const struct tree_node *tree_child(const struct tree_node *dir, struct span name)
{
	uint32_t lo = 0, hi = dir->n_children;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = span_cmp(dir->by_name[mid]->name, name);

		if (c == 0)
			return dir->by_name[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

const struct tree_node *tree_child_by_stem(const struct tree_node *dir, struct span stem)
{
	char name[LIMIT_NAME_BYTES + 1];

	if (stem.n > LIMIT_NAME_BYTES)
		return NULL;
	memcpy(name, stem.p, stem.n);
	for (int ext = NAME_EXT_NONE; ext < NAME_EXT_COUNT; ext++) {
		const char *text = name_ext_text((enum name_ext)ext);
		const struct tree_node *node;

		if (ext != NAME_EXT_NONE && !text[0])
			break; /* there are no further plugins */
		if (stem.n + strlen(text) > LIMIT_NAME_BYTES)
			continue;
		memcpy(name + stem.n, text, strlen(text));
		node = tree_child(dir, span_of(name, stem.n + strlen(text)));
		/* A container called "w.npy" is not a format of "w". */
		if (node && (ext == NAME_EXT_NONE || node->kind == TREE_LEAF))
			return node;
	}
	return NULL;
}
