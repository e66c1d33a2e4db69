/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_rules.c - warns at a commit about patterns that select nothing: rule=, aggregate=,
 * priority=.
 *
 * Such a pattern has no effect, which its author hardly intended.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/commit/draft_items.h"

/* Whether a pattern selects a leaf of an item. *ret is the path of the first one. */
static bool chooses_leaf(const char *glob, const struct plan *p, struct buf *ret)
{
	for (size_t i = 0; i < p->n_leaves; i++) {
		const struct plan_leaf *l = &p->leaf[i];
		bool is_tensor = l->desc.type->in_boxes && !l->n_parts && l->source->file &&
				 l->source->file->st.n;

		if (draft_selects(glob, l->source,
				  is_tensor ? l->source->file->array[l->index].name :
					      span_of(NULL, 0),
				  ret) > 0)
			return true;
	}
	return false;
}

/* Whether a pattern selects a leaf, or with of_item an item. */
static bool chooses_any(const char *glob, bool of_item, const struct sealing_item *item, size_t n)
{
	auto_buf path = { 0 };

	for (size_t i = 0; i < n; i++)
		if ((of_item &&
		     draft_selects(glob, item[i].plan->item, span_of(NULL, 0), &path) > 0) ||
		    chooses_leaf(glob, item[i].plan, &path))
			return true;
	return false;
}

void draft_report_misplaced(const struct draft *d, const struct sealing_item *item, size_t n)
{
	const struct options *o = d->env->options;

	for (size_t i = 0; i < o->n_rules; i++)
		for (size_t k = 0; k < n && o->rules[i].of_item; k++) {
			const struct save_rule *rule = &o->rules[i];
			const struct plan *p = item[k].plan;
			auto_buf path = { 0 };

			if (draft_selects(rule->glob, p->item, span_of(NULL, 0), &path) > 0 ||
			    !chooses_leaf(rule->glob, p, &path))
				continue;
			log_warn("rule '%s' has no effect: it matches '%.*s', and %s is the same "
				 "for all leaves of item '%s'",
				 rule->text, SPAN_ARG(buf_span(&path)), rule->of_item, p->name);
		}
	err_clear();
}

void draft_report_unmatched(const struct draft *d, const struct sealing_item *item, size_t n)
{
	const struct options *o = d->env->options;
	size_t leaves = 0;

	for (size_t i = 0; i < n; i++)
		leaves += item[i].plan->n_leaves;
	for (size_t i = 0; i < o->n_rules; i++) {
		const struct save_rule *rule = &o->rules[i];

		if ((leaves || rule->of_item) && !chooses_any(rule->glob, rule->of_item, item, n))
			log_warn("rule '%s' matches no %s of '%s'", rule->text,
				 rule->of_item ? "item" : "leaf", d->dir->final);
	}
	if (o->priority && leaves && !chooses_any(o->priority, false, item, n))
		log_warn("priority='%s' matches no leaf of '%s'", o->priority, d->dir->final);
	err_clear();
}
