/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_shown.c - the contents that `_METADATA` and `_CHECKPOINT_METADATA` of a draft show:
 * generated, or as a program wrote them.
 *
 * Programs that copy read back what they wrote, compare sizes and times, and copy again if
 * something differs. So a written text is shown while it is open and until the draft changes, and
 * after that as long as it describes everything in the draft: the copy may be incomplete, but will
 * contain the rest in the end. The text must not describe anything that was removed meanwhile. The
 * commit generates its own files in any case.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/step/step_meta.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plan/draft_generated.h"

/* Record that the written text is up to date with the draft. Called with the lock held. */
static void mark_document(const struct draft *d, struct copied *c)
{
	c->written_at = d->changes;
	c->removals = d->removals;
}

void draft_hint_open(struct draft_node *dir, atomic_bool *open)
{
	struct copied *c;
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	c = draft_copied_new(dir);
	if (c) {
		c->writers += !atomic_exchange(open, true);
		mark_document(dir->draft, c);
		clock_gettime(CLOCK_REALTIME, &c->mtime);
	}
}

void draft_hint_close(struct draft_node *dir, atomic_bool *open)
{
	bool ended = false;

	pthread_mutex_lock(&dir->draft->lock);
	if (atomic_exchange(open, false)) {
		dir->copied->writers--;
		mark_document(dir->draft, dir->copied);
		ended = true;
	}
	pthread_mutex_unlock(&dir->draft->lock);
	if (ended)
		copy_hint_written(dir);
}

void draft_hint_renamed(struct draft_node *dir, const struct timespec *mtime)
{
	struct copied *c;
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	c = draft_copied_new(dir);
	if (c) {
		mark_document(dir->draft, c);
		c->mtime = *mtime;
	}
}

void draft_set_mtime(struct draft_node *n, bool generated, const struct timespec *mtime)
{
	struct copied *c = NULL;
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	if (!generated)
		n->mtime = *mtime;
	else if ((c = draft_copied_new(n)))
		c->mtime = *mtime;
}

/* ---- comparison of two texts ---- */

static const struct tree_node *at_same_path(const struct tree *hint, const struct tree_node *n)
{
	const struct tree_node *parent;

	if (!n->parent)
		return hint->root;
	parent = at_same_path(hint, n->parent);
	return parent && parent->kind != TREE_LEAF ? tree_child_by_key(parent, n->key) : NULL;
}

static bool is_array(const struct tree_node *n)
{
	return span_eq(n->value_type, span_str("jax.Array")) ||
	       span_eq(n->value_type, span_str("np.ndarray"));
}

static bool says_node(const struct tree *hint, const struct tree_node *n)
{
	const struct tree_node *t = at_same_path(hint, n);

	if (!t || (t->kind == TREE_LEAF) != (n->kind == TREE_LEAF))
		return false;
	return n->kind != TREE_LEAF ||
	       (t->value == n->value &&
		(span_eq(t->value_type, n->value_type) || (is_array(t) && is_array(n))));
}

/* Whether `hint` describes everything in `now`; `all`: and nothing else. */
static bool says_tree(struct span hint, struct span now, bool all)
{
	auto_of(tree) struct tree *t = NULL, *n = NULL;
	bool says = tree_parse_metadata(hint, "a copied _METADATA", &t) >= 0 &&
		    tree_parse_metadata(now, "_METADATA", &n) >= 0 &&
		    (!all || t->n_nodes == n->n_nodes);

	for (uint32_t i = 0; says && i < n->n_nodes; i++)
		says = n->nodes[i]->n_children || says_node(t, n->nodes[i]);
	return says;
}

static bool says_items(struct span hint, struct span now, bool all)
{
	auto_of(step_meta) struct step_meta *t = NULL, *n = NULL;
	bool says = step_meta_parse(hint, "a copied _CHECKPOINT_METADATA", &t) >= 0 &&
		    step_meta_parse(now, "_CHECKPOINT_METADATA", &n) >= 0 &&
		    t->kind == STEP_ITEMS_MAP && n->kind == STEP_ITEMS_MAP &&
		    (!all || t->n_items == n->n_items);

	for (size_t i = 0; says && i < n->n_items; i++) {
		bool found = false;

		for (size_t k = 0; k < t->n_items && !found; k++)
			found = span_eq(t->items[k].name, n->items[i].name);
		says = found;
	}
	return says;
}

/* ---- the text ---- */

/* A snapshot of the written text and its state. */
struct hint {
	bool as_new; /* it is open, or nothing has changed since */
	bool taken_away;
	bool known, says; /* it was compared since the last change; the result */
	uint64_t changes;
	struct timespec mtime, dir_mtime;
};

static int shown_look(struct draft_node *dir, struct buf *ret_text, struct hint *ret)
{
	const struct draft *d = dir->draft;
	const struct copied *c;
	int r;
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	c = draft_copied(dir);
	r = buf_add_span(ret_text, buf_span(&c->document));
	ret->as_new = c->writers || c->written_at == d->changes;
	ret->taken_away = c->removals != d->removals;
	ret->changes = d->changes;
	ret->known = c->compared_at == d->changes + 1;
	ret->says = c->agrees;
	ret->mtime = c->mtime;
	ret->dir_mtime = dir->mtime;
	return r;
}

static void keep_comparison(struct draft_node *dir, const struct hint *t)
{
	struct copied *c;
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	c = draft_copied_new(dir);
	if (c) {
		c->compared_at = t->changes + 1;
		c->agrees = t->says;
	}
}

/* The same for a step that is one tree, whose only handler is that of the tree. */
static int print_of_tree(const struct draft *d, struct step_meta *m, struct buf *ret)
{
	auto_of(plan) struct plan *p = NULL;
	int r = plan_new(d->root, false, &p);

	if (r < 0)
		return r;
	m->kind = STEP_ITEMS_ONE;
	m->handler = plan_handler(p);
	return step_meta_print(m, ret);
}

/* Make `_CHECKPOINT_METADATA` as a commit would write it now. */
static int checkpoint_metadata(struct draft *d, struct buf *ret)
{
	auto_draft_list child = { 0 };
	struct step_meta m = { .kind = STEP_ITEMS_MAP,
			       .has_init = true,
			       .init_ns = d->dir->init_ns };
	struct step_item *items;
	struct plan **plans;
	int r;

	if (d->is_tree)
		return print_of_tree(d, &m, ret);
	r = draft_children(d->root, &child);
	if (r < 0)
		return r;
	items = calloc(child.n + 1, sizeof(*items));
	plans = calloc(child.n + 1, sizeof(struct plan *));
	m.items = items;
	for (size_t i = 0; i < child.n; i++) {
		struct draft_node *inner[2], *node = child.node[i];

		if (draft_nested(node, inner) > 0) {
			draft_node_unref(inner[1]);
			node = inner[0];
		}
		/* Leave out directories that are not items yet, and what lies beside the items. */
		if (items && plans && plan_is_beside_items(node) == 0 &&
		    plan_new(node, false, &plans[i]) >= 0) {
			struct step_item it = { span_of(plans[i]->name,
							strcspn(plans[i]->name, "/")),
						plan_handler(plans[i]) };

			if (it.handler.p)
				items[m.n_items++] = it;
		}
		if (node != child.node[i])
			draft_node_unref(node);
	}
	err_clear();
	r = items && plans ? step_meta_print(&m, ret) :
			     fail(-ENOMEM, "cannot describe draft '%s'", d->name);
	for (size_t i = 0; i < child.n && plans; i++)
		plan_free(plans[i]);
	free(plans);
	free(items);
	return r;
}

int draft_generated_text(struct draft_node *dir, struct buf *ret, struct timespec *ret_mtime)
{
	bool of_step = dir == dir->draft->root && (!dir->draft->is_item || dir->draft->is_tree);
	auto_buf text = { 0 };
	struct hint t = { 0 };
	bool as_written;
	int r = shown_look(dir, &text, &t);

	if (r < 0)
		return r;
	as_written = text.n && (t.as_new || (t.known && t.says));
	if (!as_written) {
		r = of_step ? checkpoint_metadata(dir->draft, ret) : draft_metadata(dir, ret);
		if (r < 0)
			return r;
	}
	if (!as_written && text.n && !t.known) {
		t.says = (of_step ? says_items : says_tree)(buf_span(&text), buf_span(ret),
							    t.taken_away);
		err_clear();
		keep_comparison(dir, &t);
		as_written = t.says;
	}
	*ret_mtime = as_written ? t.mtime : t.dir_mtime;
	if (!as_written)
		return 0;
	buf_clear(ret);
	return buf_add_span(ret, buf_span(&text));
}
