/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_rich.c - namedtuples of a draft, recognized by an xattr or by a copied `_METADATA`.
 *
 * The xattr user.pytree.namedtuple is {"module": ..., "clazz": ..., "fields": [...]}, as Orbax
 * records a namedtuple with rich types. A directory whose names differ from the fields is a dict,
 * and a warning is logged. Without module and clazz it is the order of the keys of a dict. If ranks
 * share a draft, each may have only some of the names: the rank that commits compares them when it
 * has the parts of all.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/tree/tree_manifest_read.h"
#include "handlers/plan/copy_hints.h"

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

static void rich_say(const struct plan *p, struct draft_node *dir, const char *why)
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

/*
 * Get the type, or the order of a dict, from the xattr or else from the copied tree: 1; 0: there is
 * none.
 */
static int rich_find_type(struct plan *p, struct draft_node *dir, const struct tree_node *node,
			  bool is_dict, const struct tree_type **ret)
{
	const struct tree_node *hint;
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = draft_get_xattr(dir, "namedtuple", &text);

	if (r == -ENODATA) {
		err_clear();
		hint = plan_hint_node(p, node);
		r = hint ? tree_type_like(p->tree, hint, ret) : 0;
	} else if (r >= 0) {
		r = json_parse(buf_span(&text), "user.pytree.namedtuple", &doc);
		if (r >= 0)
			r = tree_type_of_json(doc.root, "user.pytree.namedtuple", &p->tree->arena,
					      ret);
		r = r < 0 ? r : 1;
	}
	return r > 0 && is_dict && (*ret)->clazz.n ? 0 : r;
}

int plan_namedtuple(struct plan *p, struct draft_node *dir, struct tree_node *node)
{
	const char *why;
	const struct tree_type *t = NULL;
	enum draft_kind kind = draft_kind(dir);
	int r = 0;

	/* Other ranks may have the names of a dict that is empty here. */
	if ((kind == KIND_NONE || kind == KIND_DICT || kind == KIND_NAMEDTUPLE) &&
	    (p->partial || node->n_children))
		r = rich_find_type(p, dir, node, kind == KIND_DICT, &t);
	if (r < 0)
		return r;
	if (kind == KIND_NAMEDTUPLE && (r == 0 || !t->clazz.n))
		rich_say(p, dir,
			 "neither user.pytree.namedtuple nor a copied _METADATA says which one it "
			 "is");
	if (r == 0)
		return 0;
	/* Of a job, the primary compares the names of all ranks with the fields. */
	if (p->partial || !t->clazz.n) {
		node->type = t;
		return 0;
	}
	why = plan_node_type(p, node, t, plan_rich_off(p));
	if (why)
		rich_say(p, dir, why);
	return 0;
}
