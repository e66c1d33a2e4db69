/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_rich.c - value_metadata_tree: JSON inside a JSON string that mirrors the structure.
 *
 * Leaves in it repeat the plain map and are skipped. The members of a node object must begin with
 * "category", and in a custom one "clazz" must precede "entries", as in Orbax's order and with
 * sorted keys; otherwise a node would have to be read twice at every level.
 *
 * The finished tree bounds the recursion (LIMIT_TREE_DEPTH): a node without a counterpart in the
 * tree is not entered.
 */
#include "core/tree/tree_rich.h"

#include "core/base/err.h"
#include "core/base/json_pull.h"

struct rich {
	struct tree *tree;
	struct json_pull in;
};

static int rich_node(struct rich *x, struct tree_node *node);

/* The elements of the array are the children, in order. */
static int rich_elements(struct rich *x, struct tree_node *node)
{
	uint32_t i = 0;
	int r = json_pull_enter(&x->in, JSON_ARRAY);

	if (r < 0)
		return r;
	if (!node->n_children || !node->children[0]->key_is_index)
		return json_pull_bad(&x->in, "a sequence where the tree has none");
	while (r >= 0 && (r = json_pull_next(&x->in, NULL)) > 0) {
		if (i == node->n_children)
			return json_pull_bad(&x->in, "a sequence is longer than in the tree");
		r = rich_node(x, node->children[i++]);
	}
	if (r < 0)
		return r;
	if (i != node->n_children)
		return json_pull_bad(&x->in, "a sequence is shorter than in the tree");
	return r;
}

static struct tree_node *rich_child(struct tree_node *node, struct span key)
{
	return (struct tree_node *)tree_child_by_key(node, key);
}

/* {"key": "mu", "value": ...} */
static int rich_field(struct rich *x, struct tree_node *node)
{
	struct tree_node *child = NULL;
	bool has_value = false;
	struct span name, key;
	int r = json_pull_enter(&x->in, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(&x->in, &name)) > 0) {
		if (span_eq(name, span_str("key"))) {
			r = json_pull_str(&x->in, &key);
			child = r < 0 ? NULL : rich_child(node, key);
			if (r < 0)
				return r;
			if (!child)
				return json_pull_bad(&x->in, "a field that the tree does not have");
		} else if (span_eq(name, span_str("value")) && child) {
			r = rich_node(x, child);
			has_value = true;
		} else {
			r = json_pull_skip(&x->in);
		}
	}
	if (r < 0)
		return r;
	if (!has_value)
		return json_pull_bad(&x->in, "a field without key or value");
	return r;
}

static int rich_fields(struct rich *x, struct tree_node *node)
{
	uint32_t n = 0;
	int r = json_pull_enter(&x->in, JSON_ARRAY);

	while (r >= 0 && (r = json_pull_next(&x->in, NULL)) > 0) {
		n++;
		r = rich_field(x, node);
	}
	if (r < 0)
		return r;
	if (n != node->n_children)
		return json_pull_bad(&x->in, "a namedtuple has not the fields of the tree");
	return r;
}

static int tree_rich_keep_text(struct rich *x, struct span *ret)
{
	struct span s;
	int r = json_pull_str(&x->in, &s);

	return r < 0 ? r : arena_keep(&x->tree->arena, s, ret);
}

/* The members after "category": "namedtuple". */
static int rich_namedtuple(struct rich *x, struct tree_node *node)
{
	struct tree_type *type = arena_calloc(&x->tree->arena, 1, sizeof(*type));
	bool entries = false;
	struct span name;
	int r;

	if (!type)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	if (!node->n_children)
		return json_pull_bad(&x->in, "a namedtuple where the tree has none");
	while ((r = json_pull_next(&x->in, &name)) > 0) {
		if (span_eq(name, span_str("module"))) {
			r = tree_rich_keep_text(x, &type->module);
		} else if (span_eq(name, span_str("clazz"))) {
			r = tree_rich_keep_text(x, &type->clazz);
		} else if (span_eq(name, span_str("entries"))) {
			r = rich_fields(x, node);
			entries = true;
		} else {
			r = json_pull_skip(&x->in);
		}
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (!entries || !type->module.p || !type->clazz.p)
		return json_pull_bad(&x->in, "a namedtuple without module, clazz or entries");
	node->kind = TREE_NAMEDTUPLE;
	node->type = type;
	return r;
}

/* The members after "category": "custom": a leaf or a tuple. */
static int rich_custom(struct rich *x, struct tree_node *node)
{
	bool tuple = false, leaf = false, content = false;
	struct span name, clazz;
	int r;

	while ((r = json_pull_next(&x->in, &name)) > 0) {
		if (span_eq(name, span_str("clazz"))) {
			r = json_pull_str(&x->in, &clazz);
			tuple = r >= 0 && span_eq(clazz, span_str("tuple"));
			leaf = r >= 0 && span_eq(clazz, span_str("ValueMetadataEntry"));
		} else if (tuple && span_eq(name, span_str("entries"))) {
			r = rich_elements(x, node);
			content = true;
		} else {
			content = content || (leaf && span_eq(name, span_str("data")));
			r = json_pull_skip(&x->in);
		}
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (!content || tuple == leaf)
		return json_pull_bad(&x->in, "a custom node that is neither a tuple nor a leaf");
	if (leaf && node->n_children)
		return json_pull_bad(&x->in, "a leaf where the tree has none");
	if (tuple)
		node->kind = TREE_TUPLE;
	return r;
}

/* Take the rest of a plain object, whose first member's name has been taken. */
static int rich_members(struct rich *x, struct tree_node *node, struct span name)
{
	uint32_t n = 0;
	int r;

	do {
		struct tree_node *child = rich_child(node, name);

		if (!child)
			return json_pull_bad(&x->in, "a member that the tree does not have");
		n++;
		r = rich_node(x, child);
		if (r < 0)
			return r;
		r = json_pull_next(&x->in, &name);
	} while (r > 0);
	if (r < 0)
		return r;
	if (n != node->n_children)
		return json_pull_bad(&x->in, "an object has not the members of the tree");
	if (node->children[0]->key_is_index)
		node->kind = TREE_CUSTOM;
	return r;
}

static int rich_object(struct rich *x, struct tree_node *node)
{
	struct span name, category;
	int r = json_pull_enter(&x->in, JSON_OBJECT);

	if (r < 0)
		return r;
	r = json_pull_next(&x->in, &name);
	if (r == 0)
		return json_pull_bad(&x->in, "an empty object");
	if (r < 0 || !span_eq(name, span_str("category")))
		return r < 0 ? r : rich_members(x, node, name);
	/* A dict may have a key "category"; its value is then an object. */
	r = json_pull_kind(&x->in);
	if (r != JSON_STRING)
		return r < 0 ? r : rich_members(x, node, name);
	r = json_pull_str(&x->in, &category);
	if (r < 0)
		return r;
	if (span_eq(category, span_str("custom")))
		return rich_custom(x, node);
	if (span_eq(category, span_str("namedtuple")))
		return rich_namedtuple(x, node);
	return json_pull_bad(&x->in, "unknown category");
}

static int rich_node(struct rich *x, struct tree_node *node)
{
	int r = json_pull_kind(&x->in);

	return r < 0 ? r : r == JSON_ARRAY ? rich_elements(x, node) : rich_object(x, node);
}

int tree_parse_rich(struct tree *tree, struct span json, const char *what)
{
	struct rich x = { .tree = tree };
	int r;

	json_pull_init(&x.in, json, what);
	r = rich_node(&x, tree->root);
	if (r >= 0)
		r = json_pull_end(&x.in);
	json_pull_release(&x.in);
	for (uint32_t i = 0; r < 0 && i < tree->n_nodes; i++) {
		struct tree_node *node = tree->nodes[i];

		if (node->n_children) {
			node->kind = node->children[0]->key_is_index ? TREE_LIST : TREE_DICT;
			node->type = NULL;
		}
	}
	return r < 0 ? r : 0;
}

/* ---- writing ---- */

static int put_value_type(const struct tree_node *node, bool rich, struct buf *ret)
{
	static const char *const empty[] = {
		[TREE_DICT] = "Dict",   [TREE_LIST] = "List",    [TREE_TUPLE] = "Tuple",
		[TREE_CUSTOM] = "None", [TREE_UNKNOWN] = "None",
	};

	if (node->kind == TREE_NAMEDTUPLE)
		return json_put_str(ret, span_str(rich ? "NamedTuple" : "None"), JSON_PYTHON);
	if (node->kind != TREE_LEAF)
		return json_put_str(ret, span_str(empty[node->kind]), JSON_PYTHON);
	if (node->value == TREE_VALUE_PLACEHOLDER)
		return json_put_str(ret, span_str("placeholder"), JSON_PYTHON);
	if (node->value == TREE_VALUE_NONE && !node->value_type.n)
		return json_put_str(ret, span_str("None"), JSON_PYTHON);
	if (!node->value_type.n)
		return fail(-EINVAL, "leaf '%.*s' has no value type", SPAN_ARG(node->param));
	return json_put_str(ret, node->value_type, JSON_PYTHON);
}

int tree_print_value(const struct tree_node *node, bool rich, struct buf *ret)
{
	bool stored = node->kind == TREE_LEAF &&
		      (node->value == TREE_VALUE_STORED || node->value == TREE_VALUE_PLACEHOLDER);
	int r = buf_add_str(ret, "{\"value_type\": ");

	if (r < 0)
		return r;
	r = put_value_type(node, rich, ret);
	if (r < 0)
		return r;
	r = buf_addf(ret, ", \"skip_deserialize\": %s%s", stored ? "false" : "true",
		     node->has_write_shape ? ", \"write_shape\": " : "");
	if (r < 0)
		return r;
	if (node->has_write_shape)
		r = json_put_uints(ret, node->write_shape, node->write_rank, JSON_PYTHON);
	return r < 0 ? r : buf_add_byte(ret, '}');
}

static int put_field(struct buf *ret, struct span key)
{
	int r = buf_add_str(ret, "{\"key\": ");

	if (r < 0)
		return r;
	r = json_put_str(ret, key, JSON_PYTHON);
	return r < 0 ? r : buf_add_str(ret, ", \"value\": ");
}

static int tree_rich_put_node(const struct tree_node *node, struct buf *ret);

/* Print the children one after the other, each preceded by the text for its kind of parent. */
static int tree_rich_put_children(const struct tree_node *node, struct buf *ret)
{
	bool fields = node->kind == TREE_NAMEDTUPLE,
	     members = node->kind == TREE_DICT || node->kind == TREE_CUSTOM;
	int r = 0;

	for (uint32_t i = 0; i < node->n_children && r >= 0; i++) {
		const struct tree_node *child = node->children[i];

		r = buf_add_str(ret, i ? ", " : "");
		if (r < 0)
			return r;
		if (fields)
			r = put_field(ret, child->key);
		else if (members)
			r = json_put_name(ret, child->key, JSON_PYTHON);
		if (r < 0)
			return r;
		r = tree_rich_put_node(child, ret);
		if (r < 0)
			return r;
		if (fields)
			r = buf_add_byte(ret, '}');
	}
	return r;
}

/* Print the names of a type, between the texts around them. */
static int put_class(const char *before, const struct tree_type *type, const char *after,
		     struct buf *ret)
{
	auto_buf module = { 0 }, clazz = { 0 };

	if (json_put_str(&module, type->module, JSON_PYTHON) < 0 ||
	    json_put_str(&clazz, type->clazz, JSON_PYTHON) < 0)
		return -ENOMEM;
	return buf_addf(ret, "%s\"module\": %.*s, \"clazz\": %.*s, %s", before, SPAN_ARG(module),
			SPAN_ARG(clazz), after);
}

/* LIMIT_TREE_DEPTH bounds the recursion. */
static int tree_rich_put_node(const struct tree_node *node, struct buf *ret)
{
	static const struct tree_type none = { { NULL, 0 }, { NULL, 0 } };
	const char *end;
	int r;

	if (!node->n_children) {
		r = buf_add_str(ret, "{\"category\": \"custom\", \"clazz\": "
				     "\"ValueMetadataEntry\", \"data\": ");
		if (r < 0)
			return r;
		r = tree_print_value(node, true, ret);
		return r < 0 ? r : buf_add_byte(ret, '}');
	}
	switch (node->kind) {
	case TREE_LIST:
		r = buf_add_byte(ret, '[');
		end = "]";
		break;
	case TREE_TUPLE:
		r = buf_add_str(ret, "{\"category\": \"custom\", \"clazz\": \"tuple\", "
				     "\"entries\": [");
		end = "]}";
		break;
	case TREE_NAMEDTUPLE:
		r = put_class("{\"category\": \"namedtuple\", ", node->type ? node->type : &none,
			      "\"entries\": [", ret);
		end = "]}";
		break;
	default:
		r = buf_add_byte(ret, '{');
		end = "}";
		break;
	}
	if (r < 0)
		return r;
	r = tree_rich_put_children(node, ret);
	return r < 0 ? r : buf_add_str(ret, end);
}

int tree_print_rich(const struct tree *tree, struct buf *ret)
{
	return tree_rich_put_node(tree->root, ret);
}

int tree_namedtuple_json(const struct tree_node *node, struct buf *ret)
{
	bool named = node->kind == TREE_NAMEDTUPLE && node->type;
	int r;

	if (!named && !tree_has_order(node))
		return -ENODATA;
	r = named ? put_class("{", node->type, "\"fields\": [", ret) :
		    buf_add_str(ret, "{\"fields\": [");
	for (uint32_t i = 0; i < node->n_children && r >= 0; i++) {
		r = buf_add_str(ret, i ? ", " : "");
		if (r < 0)
			return r;
		r = json_put_str(ret, node->children[i]->key, JSON_PYTHON);
	}
	return r < 0 ? r : buf_add_str(ret, "]}");
}
