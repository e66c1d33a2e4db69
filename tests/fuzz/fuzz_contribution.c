/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_contribution.c - the description of a rank's part: everything that is parsed is inside the
 * input and within limits; texts and assignments pack to the same bytes.
 */
#include "core/base/err.h"
#include "handlers/job/contribution.h"
#include "tests/fuzz/fuzz.h"

static void check_text(struct span input, struct span s)
{
	auto_buf out = { 0 };
	struct span again;
	struct wire w;

	must(s.n == 0 || (s.p >= input.p && s.n <= (size_t)(input.p + input.n - s.p)));
	must(pack_text(&out, s) == 0);
	w = wire_of(buf_span(&out));
	again = parse_text(&w);
	must(wire_ok(&w) && wire_left(&w) == 0 && !again.p == !s.p && span_eq(again, s));
}

static void check_leaf(struct span input, const struct contribution_leaf *l)
{
	const struct leaf_desc *d = &l->desc;

	must(leaf_type_number(d->type) >= 0);
	must(d->array.rank <= LIMIT_RANK && d->array.dtype >= DTYPE_UNKNOWN &&
	     d->array.dtype < DTYPE_COUNT);
	must(!d->type->in_store || d->array.dtype != DTYPE_UNKNOWN);
	must(d->type->in_boxes ? l->n_boxes > 0 : !l->n_boxes && !l->in_parts);
	check_text(input, d->value);
	check_text(input, d->sharding);
	check_text(input, d->key_impl);
}

static void check_type(struct span input, const struct contribution_node *n)
{
	const struct tree_type *t = n->type;

	must(n->kind == TREE_DICT && t->n_fields > 0 && t->n_fields <= input.n);
	must(t->module.p && t->clazz.p);
	check_text(input, t->module);
	check_text(input, t->clazz);
	for (size_t i = 0; i < t->n_fields; i++) {
		must(t->fields[i].p);
		check_text(input, t->fields[i]);
	}
}

static void check_item(struct span input, const struct contribution_item *it)
{
	must(it->kind <= PLAN_BESIDE);
	check_text(input, it->name);
	check_text(input, it->handler);
	check_text(input, it->custom);
	for (size_t i = 0; i < it->n_files; i++)
		check_text(input, it->file[i].name);
	for (size_t i = 0; i < it->n_leaves; i++)
		check_leaf(input, &it->leaf[i]);
	for (size_t i = 0; i < it->n_nodes; i++) {
		const struct contribution_node *n = &it->node[i];

		must(n->kind <= TREE_LEAF && n->leaf <= it->n_leaves);
		must(n->kind != TREE_LEAF || n->n_children == 0);
		check_text(input, n->key);
		if (n->type)
			check_type(input, n);
	}
}

static void check_assignment(struct span input)
{
	struct wire w = wire_of(input), again;
	struct assignment e, f;
	auto_buf out = { 0 };

	assignment_parse(&w, &e);
	if (!wire_ok(&w))
		return;
	must(assignment_pack(&e, &out) == 0);
	again = wire_of(buf_span(&out));
	assignment_parse(&again, &f);
	must(wire_ok(&again) && wire_left(&again) == 0);
	must(e.take == f.take && e.document == f.document && e.axis == f.axis && e.from == f.from &&
	     e.to == f.to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span input = span_of(data, size);
	struct contribution s = { 0 };

	check_assignment(input);
	if (contribution_parse(input, &s) < 0) {
		must(!s.item && !s.n_items);
		return 0;
	}
	check_text(input, s.final);
	check_text(input, s.custom);
	for (size_t i = 0; i < s.n_items; i++)
		check_item(input, &s.item[i]);
	contribution_release(&s);
	return 0;
}
