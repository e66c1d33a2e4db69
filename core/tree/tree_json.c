/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_json.c - `_METADATA` -> tree.
 *
 * tree_json_print.c writes it; tree_rich.c has the member value_metadata_tree.
 *
 * The document is read once, and every entry is put into the tree at once: its path is followed
 * from the root, and missing nodes are added. So entries may be in any order. A path that is a
 * prefix of another one is dropped, whichever comes first (partial saves leave such paths). Of two
 * entries with the same path the last one wins, as in the reference reader, but in a sequence the
 * first. Names of entries are labels and are ignored.
 *
 * Memory is the tree and two hash tables, whatever the document claims.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/log.h"
#include "core/tree/tree_build.h"
#include "core/tree/tree_rich.h"

struct entry_key {
	size_t off, len; /* in keys */
	bool is_index;
};

/* One entry of tree_metadata, before it is put into the tree. */
struct entry {
	struct buf keys; /* concatenated texts of the path's keys */
	unsigned n_keys;
	struct entry_key key[LIMIT_TREE_DEPTH];
	bool has_path, has_type, has_skip, skip, has_write_shape;
	struct span value_type; /* in the arena */
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
};

struct metadata {
	struct tree *tree; /* owned */
	struct tree_build build;
	struct json_pull in;
	struct entry entry;
	struct buf rich; /* text of value_metadata_tree */
	bool has_tree, has_rich;
	const struct tree_node *shaped; /* the last leaf that got a write shape */
};

static int tree_json_no_memory(void)
{
	return fail(-ENOMEM, "cannot build a tree: not enough memory");
}

static void metadata_release(struct metadata *m)
{
	tree_free(m->tree);
	tree_build_release(&m->build);
	json_pull_release(&m->in);
	buf_release(&m->entry.keys);
	buf_release(&m->rich);
}

/* ---- one entry ---- */

/* Add the decimal text of a position: "01" is 1. */
static int add_index(struct metadata *m, struct span text)
{
	size_t zeros = 0;

	while (zeros + 1 < text.n && text.p[zeros] == '0')
		zeros++;
	text = span_from(text, zeros);
	for (size_t i = 0; i < text.n; i++)
		if (text.p[i] < '0' || text.p[i] > '9')
			return json_pull_bad(&m->in, "a position in a sequence is not a number");
	if (text.n == 0)
		return json_pull_bad(&m->in, "a position in a sequence is empty");
	return buf_add_span(&m->entry.keys, text);
}

/* Take a key: a text, or a number, which other writers use. */
static int take_key_text(struct metadata *m, struct buf *ret)
{
	struct span s;
	int64_t i;
	int r = json_pull_kind(&m->in);

	if (r < 0)
		return r;
	buf_clear(ret);
	if (r == JSON_FLOAT) {
		r = json_pull_int(&m->in, &i);
		return r < 0 ? r : buf_addf(ret, "%lld", (long long)i);
	}
	r = json_pull_str(&m->in, &s);
	return r < 0 ? r : buf_add_span(ret, s);
}

/* Take {"key": "layers", "key_type": 2}; text is scratch. */
static int take_key(struct metadata *m, struct buf *text)
{
	struct entry *e = &m->entry;
	struct entry_key *k = &e->key[e->n_keys];
	bool has_key = false;
	int64_t type = 0;
	struct span name;
	int r = json_pull_enter(&m->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&m->in, &name)) > 0) {
		if (span_eq(name, span_str("key"))) {
			r = take_key_text(m, text);
			has_key = true;
		} else if (span_eq(name, span_str("key_type"))) {
			r = json_pull_int(&m->in, &type);
			if (r < 0)
				return r;
			if (type != 1 && type != 2)
				return json_pull_bad(&m->in, "key_type is neither 1 nor 2");
		} else {
			r = json_pull_skip(&m->in);
		}
	}
	if (r < 0)
		return r;
	if (!has_key || !type)
		return json_pull_bad(&m->in,
				     "an element of key_metadata has no key or no key_type");
	*k = (struct entry_key){ .off = e->keys.n, .is_index = type == 1 };
	r = type == 1 ? add_index(m, buf_span(text)) : buf_add_span(&e->keys, buf_span(text));
	k->len = e->keys.n - k->off;
	e->n_keys++;
	return r;
}

static int take_path(struct metadata *m)
{
	struct entry *e = &m->entry;
	auto_buf text = { .metered = true };
	int r = json_pull_enter(&m->in, JSON_ARRAY);

	e->n_keys = 0;
	e->has_path = true;
	buf_clear(&e->keys);
	while (r >= 0 && (r = json_pull_next(&m->in, NULL)) > 0) {
		if (e->n_keys == LIMIT_TREE_DEPTH)
			return fail(-EFBIG, "the path is longer than %d keys", LIMIT_TREE_DEPTH);
		r = take_key(m, &text);
	}
	return r;
}

/* Take {"value_type": "jax.Array", "skip_deserialize": false, "write_shape": [8]}. */
static int take_value(struct metadata *m)
{
	struct entry *e = &m->entry;
	struct span name, type;
	int r = json_pull_enter(&m->in, JSON_OBJECT);

	e->has_type = e->has_skip = e->has_write_shape = false;
	while (r >= 0 && (r = json_pull_next(&m->in, &name)) > 0) {
		if (span_eq(name, span_str("value_type"))) {
			r = json_pull_str(&m->in, &type);
			if (r < 0)
				return r;
			if (type.n == 0)
				return json_pull_bad(&m->in, "value_type is empty");
			r = tree_build_text(&m->build, type, &e->value_type);
			e->has_type = true;
		} else if (span_eq(name, span_str("skip_deserialize"))) {
			r = json_pull_bool(&m->in, &e->skip);
			e->has_skip = true;
		} else if (span_eq(name, span_str("write_shape"))) {
			r = json_pull_shape(&m->in, e->shape, &e->rank);
			e->has_write_shape = true;
		} else {
			r = json_pull_skip(&m->in);
		}
	}
	return r;
}

static int tree_json_take_entry(struct metadata *m)
{
	struct entry *e = &m->entry;
	struct span name;
	int r = json_pull_enter(&m->in, JSON_OBJECT);

	e->has_path = e->has_type = e->has_skip = false;
	while (r >= 0 && (r = json_pull_next(&m->in, &name)) > 0) {
		if (span_eq(name, span_str("key_metadata")))
			r = take_path(m);
		else if (span_eq(name, span_str("value_metadata")))
			r = take_value(m);
		else
			r = json_pull_skip(&m->in);
	}
	if (r < 0)
		return r;
	if (!e->has_path)
		return json_pull_bad(&m->in, "key_metadata is missing");
	if (!e->has_type || !e->has_skip)
		return json_pull_bad(&m->in, e->has_type ? "skip_deserialize is missing" :
							   "value_type is missing");
	return 0;
}

/* ---- putting entries into the tree ---- */

/* Set a copy of the entry's write shape. Neighbours usually have the same one, and share it. */
static int set_write_shape(struct metadata *m, struct tree_node *node)
{
	const struct entry *e = &m->entry;
	const struct tree_node *s = m->shaped;
	size_t size = e->rank * sizeof(e->shape[0]);
	uint64_t *copy;

	node->has_write_shape = e->has_write_shape;
	node->write_shape = NULL;
	if (!e->has_write_shape)
		return 0;
	node->write_rank = (uint8_t)e->rank;
	if (s && s->write_shape && s->write_rank == e->rank &&
	    !memcmp(s->write_shape, e->shape, size)) {
		node->write_shape = s->write_shape;
		return 0;
	}
	copy = arena_alloc(&m->tree->arena, MAX(size, (size_t)1));
	if (!copy)
		return tree_json_no_memory();
	memcpy(copy, e->shape, size);
	node->write_shape = copy;
	m->shaped = node;
	return 0;
}

/* Set the kind of the node by value_type and skip_deserialize: README.md, section 2. */
static int set_value(struct metadata *m, struct tree_node *node)
{
	static const struct {
		const char *type;
		enum tree_kind kind;
		enum tree_value value;
	} empty[] = {
		{ "Dict", TREE_DICT },
		{ "List", TREE_LIST },
		{ "Tuple", TREE_TUPLE },
		{ "None", TREE_LEAF, TREE_VALUE_NONE },
		/* Only a reader with rich types makes more of it than None. */
		{ "NamedTuple", TREE_LEAF, TREE_VALUE_NONE },
	};
	const struct entry *e = &m->entry;

	node->kind = TREE_LEAF;
	node->value = e->skip ? TREE_VALUE_AGGREGATE : TREE_VALUE_STORED;
	node->value_type = e->value_type;
	if (span_eq(e->value_type, span_str("placeholder")))
		node->value = TREE_VALUE_PLACEHOLDER;
	for (size_t i = 0; i < ARRAY_LEN(empty) && e->skip; i++)
		if (span_eq(e->value_type, span_str(empty[i].type))) {
			node->kind = empty[i].kind;
			node->value = empty[i].value;
		}
	return set_write_shape(m, node);
}

/*
 * Positions and names under one parent, as Orbax writes them of a flax module with an nnx.List, are
 * names: the parent is a mapping.
 */
static bool is_position(struct tree_node *parent, bool key_is_index)
{
	struct tree_node *last = parent->last;

	if (last && last->key_is_index && !key_is_index)
		for (struct tree_node *child = parent->first; child; child = child->next)
			child->key_is_index = false;
	return key_is_index && (!last || last->key_is_index);
}

static int tree_json_put_entry(struct metadata *m)
{
	const struct entry *e = &m->entry;
	struct tree_node *node = m->tree->root;
	int r;

	for (unsigned i = 0; i < e->n_keys; i++) {
		const struct entry_key *k = &e->key[i];
		struct span key = span_of(span_from(buf_span(&e->keys), k->off).p, k->len);
		bool is_index = is_position(node, k->is_index);

		/* A leaf or an empty container becomes a container of this one. */
		if (!node->n_children && node->kind != TREE_UNKNOWN) {
			node->value = TREE_VALUE_STORED;
			node->value_type = span_of(NULL, 0);
			node->has_write_shape = false;
			node->write_shape = NULL;
		}
		r = tree_build_child(&m->build, node, key, is_index, &node);
		if (r < 0)
			return r;
		node->parent->kind = is_index ? TREE_LIST : TREE_DICT;
	}
	if (node->n_children)
		return 0;
	if (node->kind != TREE_UNKNOWN && (node->key_is_index || !node->parent))
		return 0;
	return set_value(m, node);
}

/* Prefix a failure with "entry '('a',)'"; the name is read again from where the entry began. */
static int entry_at(struct metadata *m, size_t began, int r)
{
	auto_json_pull again = { 0 };
	struct span rest = span_from(m->in.text, began), name;
	struct err_note note;

	err_save(r, &note);
	while (rest.n && rest.p[0] != '"')
		rest = span_from(rest, 1);
	json_pull_init(&again, rest, m->in.what);
	if (json_pull_str(&again, &name) < 0)
		return err_restore(&note);
	err_restore(&note);
	return err_at(r, "%s: entry '%.*s'", m->in.what, (int)MIN(name.n, (size_t)200), name.p);
}

static int take_tree(struct metadata *m)
{
	struct tree_node *root;
	int r;

	/* Of two members with the same name the last one wins: begin again. */
	tree_build_release(&m->build);
	arena_release(&m->tree->arena);
	m->tree->n_nodes = 0;
	m->tree->root = NULL;
	m->tree->custom_metadata = NULL;
	m->shaped = NULL;
	m->build.tree = m->tree;
	m->has_tree = true;
	r = tree_attach(m->tree, NULL, span_of(NULL, 0), false, &root);
	if (r < 0)
		return r;
	r = json_pull_enter(&m->in, JSON_OBJECT);
	while (r >= 0) {
		size_t began = m->in.at;

		r = json_pull_next(&m->in, NULL);
		if (r <= 0)
			break;
		r = tree_json_take_entry(m);
		if (r >= 0)
			r = tree_json_put_entry(m);
		if (r < 0)
			return entry_at(m, began, r);
	}
	if (r < 0)
		return r;
	if (root->kind == TREE_UNKNOWN)
		return json_pull_bad(&m->in, "tree_metadata has no entries");
	return r;
}

/* ---- the document ---- */

/* Take true or false; null counts as absent. Returns 1 when present. */
static int take_flag(struct metadata *m, bool *ret)
{
	int r = json_pull_kind(&m->in);

	if (r < 0)
		return r;
	if (r == JSON_NULL) {
		*ret = false;
		return json_pull_skip(&m->in);
	}
	r = json_pull_bool(&m->in, ret);
	return r < 0 ? r : 1;
}

static int take_rich(struct metadata *m)
{
	struct span s;
	int r = json_pull_kind(&m->in);

	if (r != JSON_STRING)
		return r < 0 ? r : json_pull_skip(&m->in);
	buf_clear(&m->rich);
	m->has_rich = true;
	r = json_pull_str(&m->in, &s);
	return r < 0 ? r : buf_add_span(&m->rich, s);
}

static int take_custom(struct metadata *m, struct buf *ret)
{
	int r = json_pull_kind(&m->in);

	buf_clear(ret);
	if (r < 0)
		return r;
	return r == JSON_NULL ? json_pull_skip(&m->in) : json_pull_respell(&m->in, ret);
}

static int tree_json_take_document(struct metadata *m)
{
	struct tree *tree = m->tree;
	auto_buf custom = { .metered = true };
	struct span name;
	int r = json_pull_enter(&m->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&m->in, &name)) > 0) {
		if (span_eq(name, span_str("tree_metadata"))) {
			r = take_tree(m);
		} else if (span_eq(name, span_str("use_ocdbt"))) {
			r = take_flag(m, &tree->use_ocdbt);
			tree->has_use_ocdbt = r > 0;
		} else if (span_eq(name, span_str("use_zarr3"))) {
			r = take_flag(m, &tree->use_zarr3);
			tree->has_use_zarr3 = r > 0;
		} else if (span_eq(name, span_str("store_array_data_equal_to_fill_value"))) {
			r = take_flag(m, &tree->store_fill_value);
		} else if (span_eq(name, span_str("custom_metadata"))) {
			r = take_custom(m, &custom);
		} else if (span_eq(name, span_str("value_metadata_tree"))) {
			r = take_rich(m);
		} else {
			r = json_pull_skip(&m->in);
		}
	}
	if (r < 0)
		return r;
	r = json_pull_end(&m->in);
	if (r < 0)
		return r;
	if (!m->has_tree)
		return json_pull_bad(&m->in, "tree_metadata is missing");
	if (!custom.n)
		return 0;
	tree->custom_metadata = (char *)arena_dup(&tree->arena, buf_span(&custom));
	return tree->custom_metadata ? 0 : tree_json_no_memory();
}

int tree_parse_metadata(struct span json, const char *what, struct tree **ret)
{
	__attribute__((cleanup(metadata_release))) struct metadata m = { 0 };
	int r = tree_new(&m.tree);

	if (r < 0)
		return r;
	m.tree->arena.metered = m.rich.metered = m.entry.keys.metered = true;
	json_pull_init(&m.in, json, what);
	r = tree_json_take_document(&m);
	tree_build_release(&m.build);
	if (r < 0)
		return r;
	r = tree_finish_as(m.tree, -EUCLEAN);
	if (r < 0)
		return err_at(r, "%s", what);
	m.tree->has_metadata = true;
	if (m.has_rich) {
		r = tree_parse_rich(m.tree, buf_span(&m.rich), what);
		if (r == -EUCLEAN)
			log_warn("%s: value_metadata_tree is ignored: %s", what, err_text(r));
		else if (r < 0)
			return r;
		m.tree->rich = r >= 0;
	}
	*ret = take(m.tree);
	return 0;
}
