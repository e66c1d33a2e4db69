/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform_unused.c - reports the leaves of the stored tree that a new tree has not, or only in
 * part.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "handlers/transform/transform_impl.h"

#define PARTS_MAX 65536 /* of one leaf; with more, it counts as used */

/* A stored leaf. A leaf of the new tree that shows it unchanged has its param, the same bytes. */
struct use {
	const uint8_t *param;
	const struct tree_node *leaf;
	bool whole;
	uint8_t *part; /* of unstack(): 1 for each that is used; in the arena; NULL: none is */
	uint64_t of;
};

struct uses {
	struct arena arena;
	struct use *use; /* by param; in the arena */
	size_t n;
};

static void uses_release(struct uses *u)
{
	arena_release(&u->arena);
}
#define auto_uses __attribute__((cleanup(uses_release))) struct uses

static int transform_unused_by_param(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	return x->param < y->param ? -1 : x->param > y->param;
}

static struct use *find_use(const struct uses *u, const struct tree_node *leaf)
{
	const struct use key = { .param = leaf->param.p };

	return u->n ? bsearch(&key, u->use, u->n, sizeof(key), transform_unused_by_param) : NULL;
}

static int transform_unused_use_inputs(struct uses *u, const struct derived *d)
{
	while (d->inner)
		d = d->inner;
	for (unsigned i = 0; i < d->n_inputs && d->input; i++) {
		struct use *use = find_use(u, d->input[i]);
		auto_free char *text = span_dup_str(d->args);
		unsigned long long index = 0, count = 0;

		if (!text)
			return fail(-ENOMEM, "cannot look for unused leaves");
		if (!use)
			continue;
		/* unstack(INDEX, COUNT[, AXIS]) takes one part of COUNT. */
		if (d->fn != VALUE_FN_UNSTACK || sscanf(text, "%llu , %llu", &index, &count) != 2 ||
		    index >= count || count > PARTS_MAX || (use->part && use->of != count)) {
			use->whole = true;
			continue;
		}
		if (!use->part)
			use->part = arena_calloc(&u->arena, count, 1);
		if (!use->part)
			return fail(-ENOMEM, "cannot look for unused leaves");
		use->of = count;
		use->part[index] = 1;
	}
	return 0;
}

static int transform_unused_by_place(const void *a, const void *b)
{
	const struct transform_unused *x = a, *y = b;

	return x->leaf->id < y->leaf->id ? -1 : x->leaf->id > y->leaf->id;
}

int transform_unused(const struct transform *t, const struct tree *made,
		     struct transform_unused **ret, size_t *ret_n)
{
	auto_free struct transform_unused *unused = NULL;
	auto_uses u = { .arena.metered = true };
	const struct tree *stored = made->made_of;
	size_t n = 0;
	int r = 0;

	if (stored) {
		u.use = arena_calloc(&u.arena, stored->n_nodes + 1, sizeof(*u.use));
		if (!u.use)
			return fail(-ENOMEM, "cannot look for unused leaves");
		for (uint32_t i = 0; i < stored->n_nodes; i++)
			if (stored->nodes[i]->kind == TREE_LEAF)
				u.use[u.n++] = (struct use){ .param = stored->nodes[i]->param.p,
							     .leaf = stored->nodes[i] };
		qsort(u.use, u.n, sizeof(*u.use), transform_unused_by_param);
	}
	for (uint32_t i = 0; i < made->n_nodes && u.n && r >= 0; i++) {
		const struct tree_node *leaf = made->nodes[i];
		struct use *use = leaf->kind == TREE_LEAF ? find_use(&u, leaf) : NULL;

		if (use)
			use->whole = true;
		else if (leaf->kind == TREE_LEAF && leaf->source)
			r = transform_unused_use_inputs(
				&u, container_of(leaf->source, const struct derived, source));
	}
	if (r < 0)
		return r;
	unused = calloc(u.n + 1, sizeof(*unused));
	if (!unused)
		return fail(-ENOMEM, "cannot look for unused leaves");
	for (size_t i = 0; i < u.n; i++) {
		const struct use *use = &u.use[i];
		const struct rule *rule = NULL;
		uint64_t parts = 0;

		for (uint64_t k = 0; use->part && !use->whole && k < use->of; k++)
			parts += use->part[k];
		if (use->whole || (use->part && parts == use->of))
			continue;
		r = transform_rule_of(t, use->leaf, &rule);
		if (r < 0)
			return r;
		/* A rule may give another value for the key of a leaf, which replaces it. */
		if (!rule || !rule->has_fallback)
			unused[n++] = (struct transform_unused){ use->leaf, parts, use->of };
	}
	qsort(unused, n, sizeof(*unused), transform_unused_by_place);
	*ret = take(unused);
	*ret_n = n;
	return 0;
}

int transform_unused_text(const struct transform_unused *u, struct buf *ret)
{
	int r = buf_add_byte(ret, '\'');

	if (r < 0)
		return r;
	r = transform_key(u->leaf, ret);
	if (r < 0)
		return r;
	r = buf_add_byte(ret, '\'');
	if (r < 0)
		return r;
	if (u->parts)
		r = buf_addf(ret, ", of which rules take only %llu of %llu parts",
			     (unsigned long long)u->parts, (unsigned long long)u->of);
	return r;
}

/* ---- sums over trees ---- */

/* Keep the lines that both texts have. */
static int keep_common(struct buf *lines, const struct buf *more)
{
	auto_buf both = { 0 };
	struct span rest = buf_span(lines);

	while (rest.n) {
		size_t n = (size_t)((const uint8_t *)memchr(rest.p, '\n', rest.n) - rest.p) + 1;

		if (more->n && memmem(more->p, more->n, rest.p, n) && buf_add(&both, rest.p, n) < 0)
			return -ENOMEM;
		rest = span_from(rest, n);
	}
	buf_release(lines);
	*lines = both;
	both = (struct buf){ 0 };
	return 0;
}

int transform_left_out(const struct transform *t, const struct tree *made,
		       struct transform_left_out *sum)
{
	auto_free struct transform_unused *unused = NULL;
	auto_buf idle = { 0 };
	size_t n = 0;
	int r = transform_unused(t, made, &unused, &n);

	if (n && !sum->unused)
		r = transform_unused_text(&unused[0], &sum->first);
	if (r < 0)
		return r;
	sum->unused += n;
	r = transform_idle(t, made, &idle);
	if (r < 0)
		return r;
	r = sum->trees++ ? keep_common(&sum->lines, &idle) :
			   buf_add_span(&sum->lines, buf_span(&idle));
	sum->idle = 0;
	for (size_t i = 0; i < sum->lines.n; i++)
		sum->idle += sum->lines.p[i] == '\n';
	return r;
}

int transform_left_out_text(const struct transform_left_out *sum, struct buf *ret)
{
	int r = 0;

	if (sum->unused)
		r = buf_addf(ret, "%zu stored %s left out by the rules, the first is %.*s",
			     sum->unused, noun(sum->unused, "leaf is", "leaves are"),
			     SPAN_ARG(buf_span(&sum->first)));
	if (r < 0)
		return r;
	if (sum->idle)
		r = buf_addf(ret, "%s%zu %s no leaf", sum->unused ? "; " : "", sum->idle,
			     noun(sum->idle, "rule makes", "rules make"));
	return r;
}

void transform_left_out_release(struct transform_left_out *sum)
{
	buf_release(&sum->first);
	buf_release(&sum->lines);
}
