/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_types.c - determines the nodes of the merged tree that are namedtuples.
 *
 * A rank may have only some of the fields, and may not know the type. So a type that one rank gives
 * holds for all, and different types are an error. The names can be compared with the fields only
 * when all contributions are merged.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/job/collective_plan.h"

static int disagree(const struct collective_type *a, const struct tree_type *b, int rank)
{
	const struct tree_type *t = &a->type;
	struct span key = a->node->parent ? a->node->key : span_str("%");
	size_t i = 0;

	if (!span_eq(t->module, b->module) || !span_eq(t->clazz, b->clazz))
		return fail(-EINVAL,
			    "'%.*s' is namedtuple %.*s.%.*s on rank %d and %.*s.%.*s on rank %d",
			    SPAN_ARG(key), SPAN_ARG(t->module), SPAN_ARG(t->clazz), a->rank,
			    SPAN_ARG(b->module), SPAN_ARG(b->clazz), rank);
	if (t->n_fields != b->n_fields)
		return fail(-EINVAL,
			    "'%.*s': namedtuple %.*s has %zu %s on rank %d and %zu on rank %d",
			    SPAN_ARG(key), SPAN_ARG(t->clazz), t->n_fields,
			    noun(t->n_fields, "field", "fields"), a->rank, b->n_fields, rank);
	while (i < t->n_fields && span_eq(t->fields[i], b->fields[i]))
		i++;
	if (i == t->n_fields)
		return 0;
	return fail(
		-EINVAL,
		"'%.*s': field %zu of namedtuple %.*s is '%.*s' on rank %d and '%.*s' on rank %d",
		SPAN_ARG(key), i, SPAN_ARG(t->clazz), SPAN_ARG(t->fields[i]), a->rank,
		SPAN_ARG(b->fields[i]), rank);
}

int collective_type_add(struct collective_plan *jp, struct collective_item *it, struct tree_node *n,
			const struct tree_type *type, int rank)
{
	struct collective_type *t;

	/* The order of a dict: that of the lowest rank, whose keys come first. */
	if (n->type && !type->clazz.n)
		return 0;
	if (n->type && n->type->clazz.n)
		return disagree(container_of(n->type, struct collective_type, type), type, rank);
	t = arena_calloc(&jp->arena, 1, sizeof(*t));
	if (!t)
		return fail(-ENOMEM, "cannot put together what the ranks have");
	*t = (struct collective_type){ .next = it->types, .node = n, .type = *type, .rank = rank };
	if (type->clazz.n)
		it->types = t;
	n->type = &t->type;
	return 0;
}

void collective_types_decide(struct collective_item *it)
{
	for (struct collective_type *t = it->types; t; t = t->next) {
		const struct tree_node *n = t->node;
		struct span above = n->parent ? n->parent->key : span_of(NULL, 0);
		const char *why;

		t->node->type = NULL;
		why = plan_node_type(it->plan, t->node, &t->type, it->first->rich_off);
		if (why)
			log_info("item '%s', namedtuple '%.*s%s%.*s' of rank %d becomes a dict: %s",
				 it->plan->name, SPAN_ARG(above), above.n ? "/" : "",
				 SPAN_ARG(n->key), t->rank, why);
	}
}
