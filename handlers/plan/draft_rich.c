/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_rich.c - namedtuples of a draft, recognized by an xattr or by a copied `_METADATA`.
 *
 * The xattr user.pytree.namedtuple is {"module": ..., "clazz": ..., "fields": [...]}, as Orbax
 * records a namedtuple with rich types. A directory whose names differ from the fields is a dict,
 * and a warning is logged. If ranks share a draft, each may have only some of the names: the rank
 * that commits compares them when it has the parts of all.
 */
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "handlers/plan/copy_hints.h"

static int type_new(struct plan *p, size_t n_fields, struct tree_type **ret,
		    struct span **ret_fields)
{
	struct tree_type *t = arena_calloc(&p->tree->arena, 1, sizeof(*t));

	*ret_fields = arena_calloc(&p->tree->arena, n_fields + 1, sizeof(**ret_fields));
	if (!t || !*ret_fields)
		return fail(-ENOMEM, "cannot describe a namedtuple");
	t->fields = *ret_fields;
	t->n_fields = n_fields;
	*ret = t;
	return 0;
}

/* Parse the xattr: 1; 0: it is not set. */
static int type_of_xattr(struct plan *p, struct draft_node *dir, struct tree_type **ret)
{
	struct arena *arena = &p->tree->arena;
	const struct json *fields;
	struct tree_type *t = NULL;
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	struct span *list;
	int r = draft_get_xattr(dir, "namedtuple", &text);

	if (r == -ENODATA)
		return 0;
	if (r >= 0)
		r = json_parse(buf_span(&text), "user.pytree.namedtuple", &doc);
	if (r < 0)
		return r;
	fields = json_member(doc.root, "fields");
	r = type_new(p, fields->n, &t, &list);
	if (r >= 0)
		r = arena_keep(arena, json_member(doc.root, "module")->s, &t->module);
	if (r >= 0)
		r = arena_keep(arena, json_member(doc.root, "clazz")->s, &t->clazz);
	for (size_t i = 0; i < fields->n && r >= 0; i++)
		r = arena_keep(arena, fields->items[i].s, &list[i]);
	*ret = t;
	return r < 0 ? r : 1;
}

/* The type from the copied tree, owned by the plan. */
static int type_of_hint(struct plan *p, const struct tree_node *node, struct tree_type **ret)
{
	const struct tree_node *hint = plan_hint_node(p, node);
	struct tree_type *t = NULL;
	struct span *list;
	int r;

	if (!hint || hint->kind != TREE_NAMEDTUPLE || !hint->type)
		return 0;
	r = type_new(p, hint->n_children, &t, &list);
	if (r < 0)
		return r;
	t->module = hint->type->module;
	t->clazz = hint->type->clazz;
	for (uint32_t i = 0; i < hint->n_children; i++)
		list[i] = hint->children[i]->key;
	*ret = t;
	return 1;
}

/*
 * Whether the children, a linked list while the tree is built, have the keys of the fields, in any
 * order.
 */
static bool has_fields(const struct tree_node *node, const struct tree_type *t)
{
	bool same = node->n_children == t->n_fields;

	for (size_t i = 0; same && i < t->n_fields; i++) {
		const struct tree_node *c = node->first;

		while (c && !span_eq(c->key, t->fields[i]))
			c = c->next;
		same = c;
		/* A repeated field would leave one child unmatched. */
		for (size_t k = 0; same && k < i; k++)
			same = !span_eq(t->fields[k], t->fields[i]);
	}
	return same;
}

static void say(const struct plan *p, struct draft_node *dir, const char *why)
{
	auto_buf path = { 0 };

	if (!p->strict)
		return;
	pthread_mutex_lock(&dir->draft->lock);
	draft_node_path(dir, &path);
	pthread_mutex_unlock(&dir->draft->lock);
	log_info("namedtuple '%s' becomes a dict: %s", path.n ? buf_str(&path) : "", why);
}

bool plan_rich_off(const struct plan *p)
{
	return !p->opts.rich_types && save_opts_given(&p->opts, "rich_types");
}

const char *plan_node_type(struct plan *p, struct tree_node *node, const struct tree_type *t,
			   bool rich_off)
{
	if (!has_fields(node, t))
		return "its names are not the fields that it had";
	if (rich_off)
		return "rich_types=off";
	node->kind = TREE_NAMEDTUPLE;
	node->type = t;
	p->opts.rich_types = true;
	return NULL;
}

int plan_namedtuple(struct plan *p, struct draft_node *dir, struct tree_node *node)
{
	const char *why = NULL;
	struct tree_type *t = NULL;
	struct span word;
	bool marked, other, none;
	int r;

	pthread_mutex_lock(&dir->draft->lock);
	word = draft_xattr_word(dir, "kind");
	marked = span_eq(word, span_str("namedtuple"));
	other = word.p && !marked;
	pthread_mutex_unlock(&dir->draft->lock);
	/* Other ranks may have the missing names. */
	none = other || (!node->n_children && !p->collective);
	r = none ? 0 : type_of_xattr(p, dir, &t);
	if (r == 0 && !none)
		r = type_of_hint(p, node, &t);
	err_clear();
	if (r < 0)
		return r;
	if (r == 0 && marked)
		say(p, dir,
		    "neither user.pytree.namedtuple nor a copied _METADATA says which one it is");
	if (r == 0)
		return 0;
	if (p->collective)
		node->type = t;
	else
		why = plan_node_type(p, node, t, plan_rich_off(p));
	if (why)
		say(p, dir, why);
	return 0;
}
