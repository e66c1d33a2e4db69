/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform_text.c - reports how rules made a tree.
 *
 * A node of the new tree does not record its rule, so the rule is found again by matching the
 * node's key.
 */
#include "core/base/err.h"
#include "handlers/transform/transform_impl.h"

int transform_key(const struct tree_node *n, struct buf *ret)
{
	int r = 0;

	/* The recursion is as deep as the tree, at most LIMIT_TREE_DEPTH. */
	if (n->parent && n->parent->parent) {
		r = transform_key(n->parent, ret);
		if (r < 0)
			return r;
		r = buf_add_byte(ret, '/');
	}
	return r < 0 ? r : buf_add_span(ret, n->key);
}

int transform_rule_of(const struct transform *t, const struct tree_node *n, const struct rule **ret)
{
	struct regex_match match;
	auto_buf key = { 0 };
	int r = transform_key(n, &key);

	if (r < 0)
		return r;
	*ret = rule_for(t, buf_span(&key), &match, &r);
	return r;
}

/* Without default_to_original, a fallback of `true` means the stored leaf, as in Orbax. */
static bool is_given(const struct transform *t, const struct rule *rule)
{
	const struct json *v = rule && rule->has_fallback && !rule->file ? rule->fallback : NULL;

	return v && (t->default_to_original || v->kind != JSON_BOOL || !v->b);
}

/*
 * Append "transpose(unstack(params.w; 0, 2); 1, 0)". The recursion is as deep as the rule has
 * steps, at most RULE_STEPS_MAX.
 */
static int function_text(const struct derived *d, struct buf *ret)
{
	int r = buf_addf(ret, "%s(", derived_name(d));

	if (d->inner && r >= 0)
		r = function_text(d->inner, ret);
	for (unsigned i = 0; !d->inner && i < d->n_inputs && r >= 0; i++)
		r = buf_addf(ret, "%s%.*s", i ? ", " : "", SPAN_ARG(d->input[i]->param));
	return r < 0     ? r :
	       d->args.n ? buf_addf(ret, "; %.*s)", SPAN_ARG(d->args)) :
			   buf_add_byte(ret, ')');
}

int transform_text(const struct transform *t, const struct tree_node *leaf, struct buf *ret)
{
	const struct derived *d =
		leaf->source ? container_of(leaf->source, const struct derived, source) : NULL;
	const struct rule *rule = NULL;
	int r = t ? transform_rule_of(t, leaf, &rule) : 0;

	if (r < 0)
		return r;
	if (!d)
		return is_given(t, rule) ? buf_add_str(ret, "given") :
					   buf_add_span(ret, leaf->param);
	return d->file ? buf_addf(ret, "file %s", d->file) : function_text(d, ret);
}

int transform_idle(const struct transform *t, const struct tree *made, struct buf *ret)
{
	auto_free bool *used = calloc(t->n_rules + 1, sizeof(*used));
	int r = 0;

	if (!used)
		return fail(-ENOMEM, "cannot check %zu rules", t->n_rules);
	for (uint32_t i = 0; i < made->n_nodes && r >= 0; i++) {
		const struct tree_node *n = made->nodes[i];
		const struct rule *rule = NULL;

		if (n->kind != TREE_LEAF && n->n_children)
			continue;
		r = transform_rule_of(t, n, &rule);
		if (rule)
			used[rule - t->rule] = true;
	}
	for (size_t i = 0; i < t->n_rules && r >= 0; i++)
		if (!used[i])
			r = buf_addf(ret, "%s makes no leaf: no key matches '%.*s'\n",
				     t->rule[i].what, SPAN_ARG(t->rule[i].key_text));
	return r;
}
