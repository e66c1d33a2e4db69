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
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	struct copied *c = draft_copied_new(dir);

	if (!c)
		return;
	c->writers += !atomic_exchange(open, true);
	mark_document(dir->draft, c);
	clock_gettime(CLOCK_REALTIME, &c->mtime);
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
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	struct copied *c = draft_copied_new(dir);

	if (!c)
		return;
	mark_document(dir->draft, c);
	c->mtime = *mtime;
}

void draft_set_mtime(struct draft_node *n, bool generated, const struct timespec *mtime)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct copied *c = generated ? draft_copied_new(n) : NULL;

	if (c)
		c->mtime = *mtime;
	else if (!generated)
		n->mtime = *mtime;
}

/* ---- comparison of two texts ---- */

static bool is_array(const struct tree_node *n)
{
	return span_eq(n->value_type, span_str("jax.Array")) ||
	       span_eq(n->value_type, span_str("np.ndarray"));
}

/* Whether `hint` describes everything in `now`; `all`: and nothing else. */
static bool says_tree(struct span hint, struct span now, bool all)
{
	auto_of(tree) struct tree *t = NULL, *n = NULL;
	bool says = tree_parse_metadata(hint, "a copied _METADATA", &t) >= 0 &&
		    tree_parse_metadata(now, "_METADATA", &n) >= 0 &&
		    (!all || t->n_nodes == n->n_nodes);

	for (uint32_t i = 0; says && i < n->n_nodes; i++) {
		const struct tree_node *is = n->nodes[i], *was = plan_same_path(t, is);

		if (is->n_children)
			continue;
		says = was && (was->kind == TREE_LEAF) == (is->kind == TREE_LEAF);
		if (says && is->kind == TREE_LEAF)
			says = was->value == is->value &&
			       (span_eq(was->value_type, is->value_type) ||
				(is_array(was) && is_array(is)));
	}
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

/* Make `_CHECKPOINT_METADATA` as a commit would write it now. */
static int checkpoint_metadata(struct draft *d, struct buf *ret)
{
	auto_draft_list child = { 0 };
	struct step_meta m = { .kind = STEP_ITEMS_MAP,
			       .has_init = true,
			       .init_ns = d->dir->init_ns };
	auto_of(plan) struct plan *only = NULL;
	struct step_item *items;
	struct plan **plans;
	int r;

	/* The only handler of a step that is one tree is that of the tree. */
	if (d->is_tree) {
		r = plan_new(d->root, false, &only);
		if (r < 0)
			return r;
		m.kind = STEP_ITEMS_ONE;
		m.handler = plan_handler(only);
		return step_meta_print(&m, ret);
	}
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
	struct draft *d = dir->draft;
	bool of_step = dir == d->root && (!d->is_item || d->is_tree), taken_away, says;
	auto_buf text = { 0 };
	struct copied was, *now;
	uint64_t changes;
	int r;

	pthread_mutex_lock(&d->lock);
	was = *draft_copied(dir);
	r = buf_add_span(&text, buf_span(&was.document));
	changes = d->changes;
	taken_away = was.removals != d->removals;
	*ret_mtime = dir->mtime;
	pthread_mutex_unlock(&d->lock);
	if (r < 0)
		return r;
	says = was.writers || was.written_at == changes;
	/* It was compared since the last change. */
	if (was.compared_at == changes + 1)
		says |= was.agrees;
	if (!text.n || !says) {
		r = of_step ? checkpoint_metadata(d, ret) : draft_metadata(dir, ret);
		if (r < 0 || !text.n || was.compared_at == changes + 1)
			return r;
		says = (of_step ? says_items : says_tree)(buf_span(&text), buf_span(ret),
							  taken_away);
		err_clear();
		pthread_mutex_lock(&d->lock);
		now = draft_copied_new(dir);
		if (now) {
			now->compared_at = changes + 1;
			now->agrees = says;
		}
		pthread_mutex_unlock(&d->lock);
		if (!says)
			return 0;
	}
	*ret_mtime = was.mtime;
	buf_clear(ret);
	return buf_add_span(ret, buf_span(&text));
}
