/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_plan.c - merges contributions of ranks into one tree, and makes assignments.
 *
 * The rules: if several ranks have the same value, the one of the lowest rank is used; boxes of one
 * array that are not equal must tile it; nothing else may exist twice. The place of each value
 * follows from names and descriptions alone, so no data is read.
 */
#include "handlers/job/job_driver.h"

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/log.h"

static int job_plan_out_of_memory(void)
{
	return fail(-ENOMEM, "cannot put together what the ranks have");
}

void collective_plan_free(struct collective_plan *jp)
{
	if (!jp)
		return;
	for (size_t i = 0; i < jp->n_items; i++) {
		plan_free(jp->item[i].plan);
		free(jp->item[i].leaf);
		free(jp->item[i].file);
		free(jp->item[i].stores);
	}
	for (int i = 0; i < jp->n_ranks && jp->contribution; i++)
		contribution_release(&jp->contribution[i]);
	free(jp->contribution);
	free(jp->item);
	arena_release(&jp->arena);
	free(jp);
}

/* ---- items ---- */

static int new_item(struct collective_plan *jp, const struct contribution_item *si, int rank,
		    struct collective_item **ret)
{
	struct collective_item *more = reallocarray(jp->item, jp->n_items + 1, sizeof(*more)), *it;
	struct tree_node *root;
	int r;

	if (!more)
		return job_plan_out_of_memory();
	jp->item = more;
	it = &more[jp->n_items];
	*it = (struct collective_item){ .handler = si->handler, .first = si, .first_rank = rank };
	it->plan = calloc(1, sizeof(*it->plan));
	it->stores = calloc((size_t)jp->n_ranks, sizeof(*it->stores));
	jp->n_items++;
	if (it->plan)
		it->plan->name = span_dup_str(si->name);
	if (!it->plan || !it->stores || !it->plan->name)
		return job_plan_out_of_memory();
	it->plan->kind = si->kind;
	it->plan->strict = true;
	it->plan->opts = (struct save_opts){
		.ocdbt = si->ocdbt,
		.zarr = si->zarr,
		.rich_types = si->rich_types,
		.sharding_file = si->sharding_file,
		.array_metadata = si->array_metadata,
		.store_fill_value = si->store_fill_value,
		.manifest = si->manifest,
	};
	*ret = it;
	if (si->kind != PLAN_TREE)
		return 0;
	r = tree_new(&it->plan->tree);
	if (r < 0)
		return r;
	it->plan->build.tree = it->plan->tree;
	return tree_add(it->plan->tree, NULL, span_of(NULL, 0), false, si->node[0].kind, &root);
}

static struct collective_item *item_of(const struct collective_plan *jp, struct span name)
{
	for (size_t i = 0; i < jp->n_items; i++)
		if (span_eq(name, span_str(jp->item[i].plan->name)))
			return &jp->item[i];
	return NULL;
}

static int find_item(struct collective_plan *jp, const struct contribution_item *si, int rank,
		     struct collective_item **ret)
{
	struct collective_item *it = item_of(jp, si->name);
	struct plan *p = it ? it->plan : NULL;

	if (!it)
		return new_item(jp, si, rank, ret);
	if (p->kind != si->kind)
		return fail(-EINVAL,
			    "item '%s' is of one kind on rank %d and of another on rank %d",
			    p->name, it->first_rank, rank);
	if (p->opts.ocdbt != si->ocdbt || p->opts.zarr != si->zarr)
		return fail(-EINVAL,
			    "item '%s': ranks %d and %d do not agree on ocdbt= and zarr=", p->name,
			    it->first_rank, rank);
	/* A single rank may have copied leaves with digests, or the xattr. */
	p->opts.manifest |= si->manifest;
	/* Only one of them may have the tuples. */
	p->opts.rich_types |= si->rich_types && !it->first->rich_off;
	*ret = it;
	return 0;
}

/* ---- trees ---- */

static int contributor_leaf(struct collective_plan *jp, struct collective_item *it,
			    struct tree_node *node, int rank, const struct contribution_leaf *leaf)
{
	size_t n = MAX(leaf->n_boxes, (size_t)1);
	struct contributor *c = arena_calloc(&jp->arena, 1, sizeof(*c)), **at;
	struct assignment *assignment = arena_calloc(&jp->arena, n, sizeof(*assignment));

	if (!c || !assignment || !array_reserve(it->leaf, it->cap, it->n_leaves + 1))
		return job_plan_out_of_memory();
	*c = (struct contributor){
		.rank = rank, .node = node, .contribution = leaf, .assignment = assignment
	};
	/* Until tree_finish(), param is unused and holds the index of the leaf. */
	if (!node->param.n) {
		it->leaf[it->n_leaves] = (struct collective_leaf){ .node = node };
		node->param.n = ++it->n_leaves;
	}
	/* Ranks are added in ascending order. */
	at = &it->leaf[node->param.n - 1].contributors;
	while (*at)
		at = &(*at)->next;
	*at = c;
	return 0;
}

struct walk {
	struct collective_plan *jp;
	struct collective_item *it;
	const struct contribution_item *si;
	int rank;
	size_t at; /* index of the next node */
};

/* Merge the node at w->at into n, then its children. */
static int job_plan_add_node(struct walk *w, struct tree_node *n, bool is_new, unsigned depth)
{
	const struct contribution_node *sn = &w->si->node[w->at++];
	int r = 0;

	if (!is_new && n->kind != sn->kind)
		return fail(-EINVAL, "'%.*s' is %s on one rank and %s on rank %d", SPAN_ARG(n->key),
			    n->kind == TREE_LEAF ? "a leaf" : tree_kind_text(n->kind),
			    sn->kind == TREE_LEAF ? "a leaf" : tree_kind_text(sn->kind), w->rank);
	n->kind = sn->kind;
	/* tree_finish() counts the leaves that have a value. */
	if (is_new && sn->leaf)
		n->value = leaf_describe(&w->si->leaf[sn->leaf - 1].desc).stored;
	if (sn->type)
		r = collective_type_add(w->jp, w->it, n, sn->type, w->rank);
	if (r < 0)
		return r;
	if (depth > LIMIT_TREE_DEPTH + 1)
		return fail(-EFBIG, "more than %d directories inside each other", LIMIT_TREE_DEPTH);
	if (sn->leaf)
		r = contributor_leaf(w->jp, w->it, n, w->rank, &w->si->leaf[sn->leaf - 1]);
	for (size_t i = 0; i < sn->n_children && r >= 0; i++) {
		struct tree_node *child;

		if (w->at >= w->si->n_nodes)
			return fail(-EIO, "the share of rank %d is truncated", w->rank);
		r = tree_build_child(&w->it->plan->build, n, w->si->node[w->at].key,
				     w->si->node[w->at].key_is_index, &child);
		r = r < 0 ? r : job_plan_add_node(w, child, r == 1, depth + 1);
		if (r < 0)
			return n->key.n ? err_at(r, "'%.*s'", SPAN_ARG(n->key)) : r;
	}
	return r;
}

static int job_plan_merge(struct walk *w)
{
	const struct contribution_item *si = w->si;
	auto_free char *text = NULL;
	struct tree *t;
	int r = find_item(w->jp, si, w->rank, &w->it);

	if (r < 0)
		return r;
	r = collective_files_add(w->it, si, w->rank);
	if (r < 0 || si->kind != PLAN_TREE)
		return r;
	t = w->it->plan->tree;
	r = job_plan_add_node(w, t->root, w->it->first == si, 0);
	if (r < 0)
		return r;
	if (!si->custom.p || t->custom_metadata)
		return 0;
	text = span_dup_str(si->custom);
	t->custom_metadata = text ? arena_str(&t->arena, text) : NULL;
	return t->custom_metadata ? 0 : job_plan_out_of_memory();
}

/* ---- replicas and parts ---- */

static const char *kind_text(const struct contribution_leaf *l)
{
	return l->in_parts ? "a part of an array" : l->desc.type->noun;
}

/* Check that all contributors agree in kind, dtype and shape. */
static int check_alike(const struct collective_leaf *l)
{
	const struct contributor *a = l->contributors;
	const struct array_type *first = &a->contribution->desc.array, *t;

	for (const struct contributor *b = a->next; b; b = b->next) {
		if (a->contribution->desc.type != b->contribution->desc.type ||
		    a->contribution->in_parts != b->contribution->in_parts)
			return fail(-EINVAL, "it is %s on rank %d and %s on rank %d",
				    kind_text(a->contribution), a->rank, kind_text(b->contribution),
				    b->rank);
		if (!a->contribution->desc.type->in_boxes)
			continue;
		t = &b->contribution->desc.array;
		if (t->dtype != first->dtype)
			return fail(-EINVAL, "its dtype is %s on rank %d and %s on rank %d",
				    dtype_info(first->dtype)->name, a->rank,
				    dtype_info(t->dtype)->name, b->rank);
		if (!array_type_has_shape(t, first->rank, first->shape))
			return fail(-EINVAL, "its shape on rank %d is not that on rank %d", a->rank,
				    b->rank);
	}
	return 0;
}

/*
 * Split a whole array that all active ranks have and have encoded alike: each rank supplies some of
 * the chunks. The grid was chosen for this when the array was written.
 */
static bool split(const struct collective_plan *jp, struct collective_leaf *l)
{
	const struct array_type *t = &l->contributors->contribution->desc.array;
	struct slices slices;
	unsigned i = 0, n;
	uint64_t chunks;

	if (!job_slices(jp->draft->env, t, &slices))
		return false;
	n = slices.axis;
	for (const struct contributor *c = l->contributors; c; c = c->next, i++)
		if (memcmp(&c->contribution->box[0].layout, &l->layout, sizeof(l->layout)))
			return false;
	if (i < jp->draft->env->collective->n_active ||
	    (t->shape[n] / slices.n) % l->layout.chunk[n])
		return false;
	chunks = t->shape[n] / slices.n / l->layout.chunk[n];
	i = 0;
	for (struct contributor *c = l->contributors; c && i < slices.n; c = c->next, i++)
		c->assignment[0] = (struct assignment){ .take = TAKE_WHOLE,
							.document = i == 0,
							.axis = n,
							.from = i * chunks,
							.to = (i + 1) * chunks };
	l->write[n] /= slices.n;
	return true;
}

static void resolve_whole(struct collective_plan *jp, struct collective_leaf *l)
{
	const struct contribution_leaf *s = l->contributors->contribution;

	if (s->desc.type->in_boxes) {
		l->layout = s->box[0].layout;
		memcpy(l->write, s->desc.array.shape, s->desc.array.rank * sizeof(*l->write));
		if (split(jp, l))
			return;
	}
	l->contributors->assignment[0] =
		(struct assignment){ .take = TAKE_WHOLE, .document = true };
}

struct part {
	struct contributor *contributor;
	size_t i;
};

/* Choose the boxes that are used: of equal ones, that of the lowest rank. */
static int choose_boxes(struct collective_leaf *l, struct box **ret_box, struct part **ret_part,
			size_t *ret_n)
{
	size_t n = 0, max = 0;
	struct box *box;
	struct part *part;

	for (const struct contributor *c = l->contributors; c; c = c->next)
		max += c->contribution->n_boxes;
	box = calloc(max, sizeof(*box));
	part = calloc(max, sizeof(*part));
	for (struct contributor *c = l->contributors; c && box && part; c = c->next)
		for (size_t i = 0; i < c->contribution->n_boxes; i++) {
			const struct box *b = &c->contribution->box[i].box;
			size_t bytes = c->contribution->desc.array.rank * sizeof(*b->start), k = 0;

			while (k < n &&
			       (box[k].rank == c->rank || memcmp(box[k].start, b->start, bytes) ||
				memcmp(box[k].extent, b->extent, bytes)))
				k++;
			if (k < n)
				continue;
			box[n] = *b;
			box[n].rank = c->rank;
			part[n++] = (struct part){ c, i };
		}
	*ret_box = box;
	*ret_part = part;
	*ret_n = n;
	return box && part ? 0 : job_plan_out_of_memory();
}

/* Whether all boxes have the same chunk grid, aligned with the grid of the whole array. */
static bool fits_grid(const struct part *part, size_t n, const struct array_type *t)
{
	const struct array_layout *first =
		&part[0].contributor->contribution->box[part[0].i].layout;

	for (size_t i = 0; i < n; i++) {
		const struct contribution_box *b =
			&part[i].contributor->contribution->box[part[i].i];

		if (memcmp(&b->layout, first, sizeof(*first)))
			return false;
		for (unsigned k = 0; k < t->rank; k++)
			if (b->box.start[k] % first->chunk[k] ||
			    (b->box.extent[k] % first->chunk[k] &&
			     b->box.start[k] + b->box.extent[k] != t->shape[k]))
				return false;
	}
	return true;
}

static int resolve_parts(struct collective_leaf *l, const char *what)
{
	const struct array_type *t = &l->contributors->contribution->desc.array;
	auto_free struct box *box = NULL;
	auto_free struct part *part = NULL;
	bool fits;
	size_t n;
	int r = choose_boxes(l, &box, &part, &n);

	if (r < 0)
		return r;
	r = boxes_check(box, n, t->rank, t->shape, what);
	if (r < 0)
		return r;
	fits = fits_grid(part, n, t);
	l->exported = !fits;
	l->layout = part[0].contributor->contribution->box[part[0].i].layout;
	memcpy(l->write, fits ? box[0].extent : t->shape, t->rank * sizeof(*l->write));
	for (size_t i = 0; i < n; i++)
		part[i].contributor->assignment[part[i].i] =
			(struct assignment){ .take = fits ? TAKE_CHUNKS : TAKE_EXPORT,
					     .document = i == 0 };
	trace(TRACE_LEAF, "%zu parts of '%s': %s", n, what,
	      fits ? "by reference" : "encoded again");
	return 0;
}

/* Decide which ranks write a leaf, and which stores they bring for it. */
static int job_plan_resolve(struct collective_plan *jp, struct collective_item *it,
			    struct collective_leaf *l)
{
	auto_free char *what = span_dup_str(l->node->param);
	bool in_parts = l->contributors->contribution->in_parts;
	int r = what ? check_alike(l) : job_plan_out_of_memory();

	r = r < 0 || !in_parts ? r : resolve_parts(l, what);
	if (r < 0)
		return err_at(r, "leaf '%s'", what ? what : "");
	if (!in_parts)
		resolve_whole(jp, l);
	for (const struct contributor *c = l->contributors; c; c = c->next)
		for (size_t i = 0; i < MAX(c->contribution->n_boxes, (size_t)1); i++)
			if (c->contribution->desc.type->in_store &&
			    (c->assignment[i].take == TAKE_WHOLE ||
			     c->assignment[i].take == TAKE_CHUNKS))
				it->stores[c->rank] |= c->contribution->replicas ? BRINGS_REPLICAS :
										   BRINGS_OWN;
	it->any_exported |= l->exported;
	return 0;
}

/* ---- descriptions ---- */

static int finish_tree(struct collective_plan *jp, struct collective_item *it)
{
	struct plan *p = it->plan;
	int r;

	for (size_t i = 0; i < it->n_leaves; i++)
		it->leaf[i].node->param = span_of(NULL, 0);
	collective_types_decide(it);
	p->leaf = calloc(it->n_leaves + 1, sizeof(*p->leaf));
	if (!p->leaf)
		return job_plan_out_of_memory();
	r = plan_finish_tree(p);
	for (size_t i = 0; i < it->n_leaves && r >= 0; i++) {
		struct collective_leaf *l = &it->leaf[i];
		struct plan_leaf *to = &p->leaf[i];

		r = job_plan_resolve(jp, it, l);
		if (r < 0)
			break;
		p->n_leaves++;
		*to = (struct plan_leaf){ .node = l->node,
					  .desc = l->contributors->contribution->desc };
		if (to->desc.type->in_boxes) {
			to->chunk = l->layout.chunk;
			to->write = l->write;
		}
		r = plan_record(p, to);
	}
	return r < 0 ? err_at(r, "item '%s'", p->name) : 0;
}

/* ---- merging all contributions ---- */

static int add_contribution(struct collective_plan *jp, int rank)
{
	int self = jp->draft->env->collective->peers->rank;
	struct contribution *s = &jp->contribution[rank], *own = &jp->contribution[self];

	if (!span_eq(s->final, own->final))
		return fail(-EINVAL, "rank %d commits '%.*s', and rank %d '%.*s'", self,
			    SPAN_ARG(own->final), rank, SPAN_ARG(s->final));
	if (s->custom.p && !jp->custom.p)
		jp->custom = s->custom;
	for (size_t i = 0; i < s->n_items; i++) {
		struct walk w = { .jp = jp, .si = &s->item[i], .rank = rank };
		int r = job_plan_merge(&w);

		if (r < 0)
			return w.si->name.n ? err_at(r, "item '%.*s'", SPAN_ARG(w.si->name)) : r;
	}
	return 0;
}

int collective_plan_new(struct draft *d, const struct buf *bytes, struct collective_plan **ret)
{
	auto_of(collective_plan) struct collective_plan *jp = calloc(1, sizeof(*jp));
	struct collective *j = d->env->collective;
	int r = jp ? 0 : job_plan_out_of_memory();

	if (r < 0)
		return r;
	jp->draft = d;
	jp->n_ranks = j->peers->size;
	jp->contribution = calloc((size_t)jp->n_ranks, sizeof(*jp->contribution));
	if (!jp->contribution)
		return job_plan_out_of_memory();
	for (int i = 0; i < jp->n_ranks && r >= 0; i++)
		if (j->active[i])
			r = contribution_parse(buf_span(&bytes[i]), &jp->contribution[i]);
	for (int i = 0; i < jp->n_ranks && r >= 0; i++)
		if (j->active[i])
			r = add_contribution(jp, i);
	for (size_t i = 0; i < jp->n_items && r >= 0; i++)
		if (jp->item[i].plan->kind == PLAN_TREE)
			r = finish_tree(jp, &jp->item[i]);
	for (size_t i = 0; i < jp->n_items && r >= 0; i++)
		r = collective_files_decide(jp, &jp->item[i]);
	if (r < 0)
		return r;
	if (jp->n_items == 0)
		return fail(-EINVAL, "draft '%s' is empty on all ranks", d->name);
	*ret = take(jp);
	return 0;
}

/* ---- assignments ---- */

static int item_assignments(const struct collective_item *it, const struct contribution_item *si,
			    int rank, struct buf *ret)
{
	auto_free const struct contributor **contributor_of =
		calloc(si->n_leaves + 1, sizeof(*contributor_of));
	int r;

	if (!contributor_of)
		return job_plan_out_of_memory();
	r = wire_put_u8(ret, si->kind == PLAN_TREE  ? it->stores[rank] :
			     it->first_rank == rank ? BRINGS_OWN :
						      0);
	for (size_t i = 0; i < si->n_files && r >= 0; i++)
		r = wire_put_u8(ret, collective_files_rank(it, &si->file[i]) == rank);
	if (r < 0 || si->kind != PLAN_TREE)
		return r;
	for (size_t i = 0; i < it->n_leaves; i++)
		for (const struct contributor *c = it->leaf[i].contributors; c; c = c->next)
			if (c->rank == rank)
				contributor_of[c->contribution - si->leaf] = c;
	for (size_t i = 0; i < si->n_leaves && r >= 0; i++) {
		r = pack_text(ret, contributor_of[i]->node->param);
		for (size_t k = 0; k < MAX(si->leaf[i].n_boxes, (size_t)1) && r >= 0; k++)
			r = assignment_pack(&contributor_of[i]->assignment[k], ret);
	}
	return r;
}

int collective_plan_assignments(const struct collective_plan *jp, int rank, struct buf *ret)
{
	const struct contribution *s = &jp->contribution[rank];
	int r = 0;

	for (size_t i = 0; i < s->n_items && r >= 0; i++)
		r = item_assignments(item_of(jp, s->item[i].name), &s->item[i], rank, ret);
	return r;
}
