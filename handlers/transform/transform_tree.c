/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform_tree.c - makes the new tree from a stored one, by rules.
 *
 * The stored tree is split into leaves and empty containers by key. Each new key gets one of them,
 * or a value that is computed from several. Then the new tree is built. A container has the kind of
 * the stored one that its leaves come from, as far as its keys allow.
 *
 * Invariants: the new tree points into the stored one, which lives as long; no two nodes of both
 * have the same id, since ids name arrays in the cache.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/tree/tree_build.h"
#include "handlers/transform/transform_impl.h"

struct stored {
	struct span key; /* in the arena */
	const struct tree_node *node;
	bool renamed;
};

struct made {
	struct span key;
	/* the stored node that it shows unchanged; NULL: it is computed or given */
	const struct tree_node *from;
	const struct rule *rule; /* NULL: it was carried over */
	struct derived *derived;
	struct tree_node *node;
};

struct remake {
	const struct transform *t;
	struct tree *in, *out;
	struct arena arena;
	struct stored *stored; /* ascending by key */
	size_t n_stored;
	struct made *made;
	size_t n_made, cap_made;
};

static void remake_release(struct remake *m)
{
	arena_release(&m->arena);
	free(m->stored);
	free(m->made);
	tree_free(m->out);
}
#define auto_remake __attribute__((cleanup(remake_release))) struct remake

static int transform_tree_no_memory(void)
{
	return fail(-ENOMEM, "cannot transform a tree: not enough memory");
}

/* ---- the stored tree, by keys ---- */

static int transform_tree_by_key(const void *a, const void *b)
{
	return span_cmp(((const struct stored *)a)->key, ((const struct stored *)b)->key);
}

static int take_apart(struct remake *m)
{
	m->stored = calloc(m->in->n_nodes, sizeof(*m->stored));
	if (!m->stored)
		return transform_tree_no_memory();
	for (uint32_t i = 0; i < m->in->n_nodes; i++) {
		struct stored *s = &m->stored[m->n_stored];
		auto_buf key = { 0 };
		int r;

		s->node = m->in->nodes[i];
		if (s->node->kind != TREE_LEAF && s->node->n_children)
			continue;
		r = transform_key(s->node, &key);
		r = r < 0 ? r : arena_keep(&m->arena, buf_span(&key), &s->key);
		if (r < 0)
			return r;
		m->n_stored++;
	}
	qsort(m->stored, m->n_stored, sizeof(*m->stored), transform_tree_by_key);
	for (size_t i = 1; i < m->n_stored; i++)
		if (span_eq(m->stored[i - 1].key, m->stored[i].key))
			return fail(-EINVAL,
				    "rules cannot tell two leaves apart that are called '%.*s': a "
				    "key has a slash",
				    SPAN_ARG(m->stored[i].key));
	return 0;
}

static struct stored *find_stored(const struct remake *m, struct span key)
{
	return bsearch(&(struct stored){ .key = key }, m->stored, m->n_stored, sizeof(*m->stored),
		       transform_tree_by_key);
}

/* ---- the keys of the new tree ---- */

static int add_made(struct remake *m, struct span key)
{
	if (m->n_made == LIMIT_TREE_NODES)
		return fail(-EFBIG, "the new tree has more than %d leaves", LIMIT_TREE_NODES);
	if (!array_reserve(m->made, m->cap_made, m->n_made + 1))
		return transform_tree_no_memory();
	m->made[m->n_made++] = (struct made){ .key = key };
	return 0;
}

/* A key without special characters matches only itself, so its rule always makes that key. */
static bool is_literal(struct span key)
{
	for (size_t i = 0; i < key.n; i++)
		if (!key.p[i] || strchr("\\.^$*+?{}[]()|", key.p[i]))
			return false;
	return true;
}

/* Add the keys that a rule with an original makes of the stored keys. */
static int renamed_keys(struct remake *m, const struct rule *rule)
{
	for (size_t i = 0; i < m->n_stored; i++) {
		auto_buf key = { 0 };
		struct span copy;
		int r = rule_new_key(rule, m->stored[i].key, &key);

		if (r == 0)
			continue;
		if (r < 0)
			return r;
		r = arena_keep(&m->arena, buf_span(&key), &copy);
		if (r < 0)
			return r;
		r = add_made(m, copy);
		if (r < 0)
			return r;
		if (!span_eq(copy, m->stored[i].key))
			m->stored[i].renamed = true;
	}
	return 0;
}

/* The inputs of a made key are not shown under their own keys. */
static int use_inputs(struct remake *m, const struct rule *rule, struct span key)
{
	struct regex_match match;
	int r = regex_match(rule->key, key, &match);

	for (unsigned i = 0; i < rule->n_originals && r > 0; i++) {
		auto_buf original = { 0 };
		struct stored *s;

		r = regex_expand(rule->key, &match, rule->original[i], &original);
		s = r >= 0 ? find_stored(m, buf_span(&original)) : NULL;
		if (s && !span_eq(s->key, key))
			s->renamed = true;
		r = r < 0 ? r : 1;
	}
	return MIN(r, 0);
}

static int keys_of_rule(struct remake *m, const struct rule *rule)
{
	size_t first = m->n_made;
	int r = 0;

	if (is_literal(rule->key_text)) {
		/* Like a target, it asks for this key by name: its inputs must exist. */
		r = add_made(m, rule->key_text);
	} else if (rule->has_original && rule->inverse) {
		r = renamed_keys(m, rule);
	} else if (rule->has_original) {
		return fail(
			-EINVAL,
			"%s: the keys that '%.*s' matches cannot be derived from '%.*s': give a "
			"\"target\"",
			rule->what, SPAN_ARG(rule->key_text), SPAN_ARG(rule->original[0]));
	}
	for (size_t i = first; i < m->n_made && r >= 0; i++)
		r = use_inputs(m, rule, m->made[i].key);
	return r;
}

/* With default_to_original, a fallback does not replace a value of an earlier rule, as in Orbax. */
static bool is_weak(const struct transform *t, const struct rule *rule)
{
	return rule->has_fallback && t->default_to_original;
}

const struct rule *rule_for(const struct transform *t, struct span key, struct regex_match *ret,
			    int *error)
{
	const struct rule *weak = NULL;

	for (size_t i = 0; i < t->n_rules; i++) {
		const struct rule *rule = t->by_key[i];
		int r = weak && is_weak(t, rule) ? 0 : regex_match(rule->key, key, ret);

		if (r < 0)
			*error = r;
		if (r < 0 || (r && !is_weak(t, rule)))
			return r < 0 ? NULL : rule;
		if (r)
			weak = rule;
	}
	return weak;
}

static int by_made_key(const void *a, const void *b)
{
	return span_cmp(((const struct made *)a)->key, ((const struct made *)b)->key);
}

/* Set m->made to the keys of the new tree, ascending and each once. */
static int choose_keys(struct remake *m)
{
	const struct transform *t = m->t;
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; t->target && i < t->target->n && r >= 0; i++)
		r = add_made(m, t->target->items[i].s);
	for (size_t i = 0; !t->target && i < t->n_rules && r >= 0; i++)
		r = keys_of_rule(m, &t->rule[i]);
	/* Add stored keys that no rule renames, or that a rule makes from the leaf of that key. */
	for (size_t i = 0; !t->target && i < m->n_stored && r >= 0; i++) {
		struct regex_match match;
		int error = 0;

		if (m->stored[i].renamed ||
		    (!t->default_to_original && !rule_for(t, m->stored[i].key, &match, &error)))
			continue;
		r = error ? error : add_made(m, m->stored[i].key);
	}
	if (m->n_made)
		qsort(m->made, m->n_made, sizeof(*m->made), by_made_key);
	for (size_t i = 0; i < m->n_made; i++)
		if (n == 0 || !span_eq(m->made[n - 1].key, m->made[i].key))
			m->made[n++] = m->made[i];
	m->n_made = n;
	return r;
}

/* ---- the value of each key ---- */

static int missing(const struct remake *m, const struct made *made, const struct rule *rule,
		   struct span original)
{
	return fail(-EINVAL, "%s makes '%.*s' from '%.*s', which the checkpoint does not have%s",
		    rule->what, SPAN_ARG(made->key), SPAN_ARG(original),
		    m->t->item.n ? "" : " (\"item\": NAME restricts the rules to one item)");
}

/* A missing input is an error, as in Orbax: otherwise the others would disappear unnoticed. */
static int find_inputs(struct remake *m, struct made *made, const struct rule *rule,
		       const struct regex_match *match)
{
	unsigned n = MAX(rule->n_originals, 1u);
	struct derived *d = arena_calloc(&m->out->arena, 1, sizeof(*d));

	if (d)
		d->input = arena_calloc(&m->out->arena, n, sizeof(*d->input));
	if (!d || !d->input)
		return transform_tree_no_memory();
	for (unsigned i = 0; i < n; i++) {
		auto_buf original = { 0 };
		const struct stored *s;
		int r = rule->has_original ?
				regex_expand(rule->key, match, rule->original[i], &original) :
				buf_add_span(&original, made->key);

		if (r < 0)
			return r;
		s = find_stored(m, buf_span(&original));
		if (!s)
			return missing(m, made, rule, buf_span(&original));
		d->input[i] = s->node;
	}
	d->n_inputs = n;
	if (rule->n_steps == 0) {
		made->from = d->input[0];
		return 1;
	}
	/* The first function takes these inputs, each other one the previous result. */
	for (unsigned i = 0; i < rule->n_steps; i++) {
		const struct derived *inner = d;

		if (i > 0) {
			d = arena_calloc(&m->out->arena, 1, sizeof(*d));
			if (!d)
				return transform_tree_no_memory();
			d->inner = inner;
			d->n_inputs = 1;
		}
		d->fn = rule->step[i].fn;
		d->plugin = rule->step[i].plugin;
		d->args = rule->step[i].args;
	}
	made->derived = d;
	return 1;
}

/* Find the value of a key. Returns 1 when the key is in the new tree, 0 when it is not. */
static int evaluate(struct remake *m, struct made *made)
{
	const struct stored *s = find_stored(m, made->key);
	struct regex_match match;
	int r = 0;

	made->rule = rule_for(m->t, made->key, &match, &r);
	if (r < 0)
		return r;
	if (made->rule && made->rule->has_fallback) {
		const struct json *v = made->rule->fallback;

		/* Otherwise a fallback of `true` means the stored leaf, as in Orbax. */
		if (m->t->default_to_original || !json_is(v, JSON_BOOL) || !v->b)
			return 1;
		if (!s)
			return missing(m, made, made->rule, made->key);
		made->from = s->node;
		return 1;
	}
	if (made->rule)
		return find_inputs(m, made, made->rule, &match);
	if (s && m->t->default_to_original)
		made->from = s->node;
	/* A target key without a value becomes a placeholder, as in Orbax. */
	return made->from || m->t->target;
}

/* ---- building the new tree ---- */

static int fallback_leaf(struct remake *m, const struct made *made, struct tree_node *leaf)
{
	const struct json *v = made->rule->fallback;
	struct aggregate *a = arena_calloc(&m->out->arena, 1, sizeof(*a));

	if (!a)
		return transform_tree_no_memory();
	leaf->value = TREE_VALUE_AGGREGATE;
	leaf->value_type = span_str("scalar");
	leaf->aggregate = a;
	switch (v->kind) {
	case JSON_BOOL:
		a->kind = AGGREGATE_BOOL;
		a->b = v->b;
		break;
	case JSON_INT:
		a->kind = AGGREGATE_INT;
		a->i = v->i;
		break;
	case JSON_UINT:
		a->kind = AGGREGATE_UINT;
		a->u = v->u;
		break;
	case JSON_FLOAT:
		a->kind = AGGREGATE_FLOAT;
		a->f = v->d;
		break;
	case JSON_STRING:
		a->kind = AGGREGATE_STRING;
		a->s = v->s;
		leaf->value_type = span_str("string");
		break;
	default:
		leaf->value = TREE_VALUE_NONE;
		leaf->value_type = span_str("None");
		leaf->aggregate = NULL;
	}
	return 0;
}

static int fill_leaf(struct remake *m, struct made *made, struct tree_node *leaf)
{
	const struct tree_node *from = made->from;

	leaf->kind = TREE_LEAF;
	if (from) {
		leaf->kind = from->kind;
		leaf->value = from->value;
		leaf->value_type = from->value_type;
		leaf->param = from->param;
		leaf->shared = from->kind == TREE_LEAF ? from->shared : NULL;
		leaf->aggregate = from->kind == TREE_LEAF ? from->aggregate : NULL;
		leaf->type = from->kind == TREE_LEAF ? NULL : from->type;
		return 0;
	}
	if (made->rule && made->rule->has_fallback && !made->rule->file)
		return fallback_leaf(m, made, leaf);
	if (!made->rule) {
		leaf->value = TREE_VALUE_PLACEHOLDER;
		leaf->value_type = span_str("placeholder");
		return 0;
	}
	if (made->rule->file) {
		made->derived = arena_calloc(&m->out->arena, 1, sizeof(*made->derived));
		if (!made->derived)
			return transform_tree_no_memory();
		made->derived->file = made->rule->file;
	}
	leaf->value = TREE_VALUE_STORED;
	leaf->value_type = span_str("np.ndarray");
	if (made->derived) {
		made->derived->source = (struct tree_source){ derived_open, derived_input };
		leaf->source = &made->derived->source;
	}
	return 0;
}

static int transform_tree_place(struct remake *m, struct tree_build *b, struct made *made)
{
	const struct tree_node *stored[LIMIT_TREE_DEPTH + 1];
	struct tree_node *at = m->out->root;
	struct span key = made->key;
	size_t left = 0;
	int r = 0;

	/* A leaf that is carried over keeps its keys, which may have slashes. */
	for (const struct tree_node *up = made->rule ? NULL : made->from; up && up->parent;
	     up = up->parent)
		stored[left++] = up;
	for (;;) {
		const uint8_t *slash = key.n ? memchr(key.p, '/', key.n) : NULL;
		struct span part = left  ? stored[--left]->key :
				   slash ? span_of(key.p, (size_t)(slash - key.p)) :
					   key;

		if (at->kind != TREE_UNKNOWN)
			return fail(-EINVAL, "'%.*s' is below another leaf of the new tree",
				    SPAN_ARG(made->key));
		r = tree_build_child(b, at, part, false, &at);
		if (r < 0)
			return r;
		if (part.n == key.n)
			break;
		key = span_from(key, part.n + 1);
	}
	if (r == 0)
		return fail(-EINVAL,
			    "'%.*s' is a leaf of the new tree and also has leaves below it",
			    SPAN_ARG(made->key));
	made->node = at;
	return fill_leaf(m, made, at);
}

/* Whether the children's keys are the numbers 0 to n - 1. */
static bool has_positions(const struct tree_node *dir)
{
	for (const struct tree_node *c = dir->first; c; c = c->next) {
		uint64_t v = 0;

		if (c->key.n == 0 || c->key.n > 9 || (c->key.n > 1 && c->key.p[0] == '0'))
			return false;
		for (size_t i = 0; i < c->key.n; i++) {
			if (c->key.p[i] < '0' || c->key.p[i] > '9')
				return false;
			v = v * 10 + (c->key.p[i] - 0u - '0');
		}
		if (v >= dir->n_children)
			return false;
	}
	return true;
}

/*
 * A container above a leaf that is named as in the stored tree gets the kind of that one, as far as
 * its children allow, and the first leaf decides.
 */
static int claim_above(struct remake *m, const struct made *made)
{
	struct tree_node *up = made->node;
	const struct tree_node *from = made->from;
	int r = 0;

	while (r >= 0 && from && up->parent && from->parent && span_eq(up->key, from->key)) {
		bool sequence;

		up = up->parent;
		from = from->parent;
		if (up->kind != TREE_UNKNOWN)
			continue;
		up->kind = TREE_DICT;
		sequence = from->n_children && from->children[0]->key_is_index;
		if (sequence ? !has_positions(up) :
			       from->kind != TREE_DICT && up->n_children != from->n_children)
			continue;
		up->kind = from->kind;
		for (struct tree_node *c = up->first; c && sequence; c = c->next)
			c->key_is_index = true;
		r = tree_type_like(m->out, from, &up->type);
	}
	return r;
}

static int put_together(struct remake *m)
{
	__attribute__((cleanup(tree_build_release))) struct tree_build b = { .tree = m->out };
	struct tree_node *root;
	int r = tree_attach(m->out, NULL, span_of(NULL, 0), false, &root);

	if (r < 0)
		return r;
	/* A tree that is a single leaf has an empty key. */
	if (m->n_made == 1 && m->made[0].key.n == 0)
		return fill_leaf(m, &m->made[0], root);
	for (size_t i = 0; i < m->n_made && r >= 0; i++)
		r = transform_tree_place(m, &b, &m->made[i]);
	for (size_t i = 0; i < m->n_made && r >= 0; i++)
		r = claim_above(m, &m->made[i]);
	if (r < 0)
		return r;
	for (size_t i = 0; i < m->n_made; i++)
		for (struct tree_node *up = m->made[i].node->parent; up; up = up->parent)
			if (up->kind == TREE_UNKNOWN)
				up->kind = TREE_DICT;
	if (root->kind == TREE_UNKNOWN)
		root->kind = TREE_DICT;
	return r;
}

int transform_tree(const struct transform *t, struct tree **tree)
{
	struct tree *in = *tree;
	auto_remake m = { .t = t, .in = in };
	size_t n = 0;
	int r = tree_new(&m.out);

	if (r < 0)
		return r;
	r = take_apart(&m);
	if (r < 0)
		return r;
	r = choose_keys(&m);
	for (size_t i = 0; i < m.n_made && r >= 0; i++) {
		r = evaluate(&m, &m.made[i]);
		if (r > 0)
			m.made[n++] = m.made[i];
	}
	m.n_made = n;
	/* Copy the keys into the arena of the new tree. */
	for (size_t i = 0; i < n && r >= 0; i++)
		r = arena_keep(&m.out->arena, m.made[i].key, &m.made[i].key);
	if (r < 0)
		return r;
	r = put_together(&m);
	if (r < 0)
		return r;
	r = tree_sort(m.out);
	if (r < 0)
		return r;
	r = tree_finish(m.out);
	if (r < 0)
		return r;
	m.out->has_metadata = in->has_metadata;
	m.out->has_manifest = in->has_manifest;
	m.out->has_use_ocdbt = in->has_use_ocdbt;
	m.out->use_ocdbt = in->use_ocdbt;
	m.out->use_zarr3 = in->use_zarr3;
	m.out->store_fill_value = in->store_fill_value;
	m.out->rich = in->rich;
	m.out->custom_metadata = in->custom_metadata;
	for (uint32_t i = 0; i < in->n_nodes; i++)
		in->nodes[i]->id += m.out->n_nodes;
	m.out->made_of = in;
	*tree = take(m.out);
	return 0;
}
