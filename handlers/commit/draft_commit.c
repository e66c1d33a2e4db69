/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_commit.c - makes a struct commit of the names and contents of a draft, and does the work
 * before and after it.
 *
 * Invariants: until the rename of the commit, nothing is removed that the draft needs to be
 * committed again.
 */
#include "handlers/commit/draft_commit.h"

#include <dirent.h>
#include <stdio.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/step/step_meta.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/commit/draft_items.h"
#include "handlers/commit/on_commit.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/plan/copy_hints.h"

/* time to wait for the release of a closed file, which may come after the rename */
#define CLOSE_PATIENCE_MS 10000

struct sealing {
	struct draft *d;
	struct sealing_item *item;
	size_t n;
	struct buf custom;
};

/* ---- the whole draft ---- */

/* Plan an item, or the two items that it consists of. */
static int plan_item(struct sealing *s, struct draft_node *node)
{
	struct draft_node *part[2] = { draft_node_ref(node), NULL }, *inner[2];
	int r = draft_nested(node, inner);

	if (r > 0) {
		draft_node_unref(node);
		memcpy(part, inner, sizeof(part));
	}
	for (size_t i = 0; i < ARRAY_LEN(part) && part[i] && r >= 0; i++) {
		r = plan_new(part[i], true, &s->item[s->n].plan);
		s->n += r >= 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(part); i++)
		if (part[i])
			draft_node_unref(part[i]);
	return r < 0 ? err_at(r, "item '%s'", node->name) : 0;
}

/* Plan what lies beside the items, whose names it must not have. */
static int plan_beside(struct sealing *s)
{
	struct sealing_item *it = &s->item[s->n];
	int r = plan_new(s->d->root, true, &it->plan);

	if (r < 0)
		return r;
	s->n++;
	for (size_t i = 0; i < it->plan->n_others; i++)
		for (size_t k = 0; k + 1 < s->n; k++)
			if (!strcmp(it->plan->other[i]->name, s->item[k].plan->name))
				return fail(-EINVAL, "'%s' has the name of an item, which is '%s'",
					    it->plan->other[i]->name, s->item[k].plan->item->name);
	return 0;
}

static int plan_items(struct sealing *s)
{
	struct draft *d = s->d;
	auto_draft_list child = { 0 };
	size_t beside = 0;
	int r = d->is_item ? 0 : draft_children(d->root, &child);

	if (r < 0)
		return r;
	s->item = calloc(2 * child.n + 3, sizeof(*s->item));
	if (!s->item)
		return fail(-ENOMEM, "cannot commit %zu items", child.n);
	if (d->is_item)
		return d->env->driver->has_part && !d->env->driver->has_part(d) ?
			       0 :
			       plan_item(s, d->root);
	for (size_t i = 0; i < child.n; i++) {
		r = plan_is_beside_items(child.node[i]);
		if (r > 0)
			beside++;
		else if (r == 0 && strcmp(child.node[i]->name, "_CHECKPOINT_METADATA"))
			r = plan_item(s, child.node[i]);
		if (r < 0)
			return r;
	}
	for (size_t i = 1; i < s->n; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(s->item[i].plan->name, s->item[k].plan->name))
				return fail(-EINVAL,
					    "'%s' and '%s' are the same item; a file that only "
					    "lies beside the items is copied with cp -a",
					    s->item[k].plan->item->name,
					    s->item[i].plan->item->name);
	return beside ? plan_beside(s) : 0;
}

static int committing_custom_metadata(struct sealing *s)
{
	struct draft *d = s->d;
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = d->is_item ? -ENODATA : draft_get_xattr(d->root, "custom_metadata", &text);

	if (r == -ENODATA) {
		err_clear();
		return d->is_item && !d->is_tree ? 0 : copy_hint_custom(d->root, &s->custom);
	}
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), "custom metadata", &doc);
	return r < 0 ? r : json_print(&s->custom, doc.root, JSON_PYTHON);
}

/* ---- the commit ---- */

/* Let the draft become `final`, which must be a valid name of a step or item, unless any is. */
static int set_final(struct draft *d, struct span final)
{
	auto_free char *name = span_dup_str(final);
	const struct ckpt *ckpt = d->env->ckpt;
	bool need_marker = ckpt_needs_marker(ckpt);
	int r = 0;

	if (!name)
		return fail(-ENOMEM, "cannot commit '%s'", d->name);
	if (d->is_item && !d->is_tree && !d->any_name) {
		if (step_name_is_tmp(final) || span_ends(final, span_str(".tmp")) ||
		    final.p[0] == '.')
			r = fail(-EINVAL, "'%.*s' is not a name of an item", SPAN_ARG(final));
		else
			r = draft_check_item_name(final);
	} else if (!d->any_name) {
		r = step_check_name(ckpt->source, final, need_marker);
		if (r >= 0 && !d->is_item && !d->replaces && ckpt->shape == SHAPE_ROOT)
			r = step_check_new(ckpt->source, final, need_marker);
	}
	if (r < 0)
		return r == -EINVAL ? fail(-EPERM, "%s", err_text(r)) : r;
	return d->env->driver->set_final(d, name);
}

/* ---- files that are still open ---- */

/* Fail if a file is open for writing, or has lost bytes. patience: in ms, for all files. */
static int check_closed(struct draft_node *dir, unsigned *patience)
{
	auto_draft_list child = { 0 };
	int r = draft_children(dir, &child);

	for (size_t i = 0; i < child.n && r >= 0; i++) {
		const struct timespec tick = { .tv_nsec = 2000000 };
		struct draft_node *n = child.node[i];
		enum draft_open open;

		if (n->is_dir) {
			r = check_closed(n, patience);
			if (r < 0)
				err_at(r, "'%s'", n->name);
			continue;
		}
		while ((open = draft_file_is_open(n->file)) == DRAFT_OPEN_CLOSING && *patience) {
			nanosleep(&tick, NULL);
			*patience -= MIN(*patience, 2u);
		}
		r = open == DRAFT_OPEN_CLOSED ? draft_file_check_lost(n->file) :
						fail(-EBUSY, "'%s' is open for writing", n->name);
	}
	return r;
}

static int begin_commit(struct draft *d)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);

	if (d->life == DRAFT_COMMITTING)
		return fail(-EBUSY, "draft '%s' is being committed already", d->name);
	if (d->life == DRAFT_GONE)
		return -ENOENT;
	d->life = DRAFT_COMMITTING;
	return 0;
}

/*
 * Errors in the contents of the draft are reported as ECANCELED. mv(1) would print EINVAL as
 * "cannot move to a subdirectory of itself", which is wrong here; it prints ECANCELED as "Operation
 * canceled".
 */
static int not_committed(struct draft *d, int r)
{
	pthread_mutex_lock(&d->lock);
	d->life = DRAFT_OPEN;
	pthread_mutex_unlock(&d->lock);
	if (r == -EINVAL)
		r = fail(-ECANCELED, "%s", err_text(r));
	return err_at(r, "draft '%s' is not committed", d->name);
}

/*
 * Call `act` for files whose chunks the commit moves; readers of other files go on reading the
 * chunks in the step. The chunks of parts are renumbered or encoded again for the whole array, and
 * arrays in the legacy file have no chunks.
 */
static void each_moving_file(const struct sealing *s, void (*act)(struct draft_file *f))
{
	const struct commit_driver *driver = s->d->env->driver;

	for (size_t i = 0; i < s->n; i++) {
		const struct plan *p = s->item[i].plan;
		bool moves = driver->moves_chunks && driver->moves_chunks(p);

		for (size_t k = 0; k < p->n_leaves; k++) {
			struct plan_leaf *l = &p->leaf[k];

			for (size_t part = 0; part < l->n_parts; part++)
				act(l->part[part]->file);
			if (!l->n_parts && l->desc.type->in_boxes &&
			    (moves || plan_leaf_aggregates(l) > 0))
				act(l->source->file);
		}
	}
	err_clear();
}

/* Everything before values are written. What is planned after an error is planned until there. */
static int plan_step(struct sealing *s, struct span final)
{
	struct draft *d = s->d;
	const struct commit_driver *driver = d->env->driver;
	unsigned patience = CLOSE_PATIENCE_MS;
	/* Nobody must have taken the draft's place; the ranks of a job find that out together. */
	int r = driver->plans_part ? 0 : draft_dir_check(d->dir);

	if (r < 0)
		return r;
	r = check_closed(d->root, &patience);
	if (r < 0)
		return r;
	/*
	 * A copy of a step that is one tree is one, too. Chunks that were stored for its first
	 * level, as if these were items, are moved when the tree is sealed. A draft that was one
	 * stays one.
	 */
	r = d->is_item || d->any_name ? 0 : plan_is_step_tree(d->root);
	if (r < 0)
		return r;
	if (r > 0 && driver->plans_part)
		return fail(-EINVAL,
			    "it is a copy of a step that is one tree, which the ranks of a job do "
			    "not write: put the tree into a directory of the draft");
	if (r > 0) {
		pthread_mutex_lock(&d->lock);
		d->is_item = d->is_tree = true;
		pthread_mutex_unlock(&d->lock);
	}
	r = set_final(d, final);
	if (r < 0)
		return r;
	r = draft_seal_priority(d->root, d->env->options->priority);
	if (r < 0)
		return r;
	r = plan_items(s);
	if (r < 0)
		return r;
	draft_report_misplaced(d, s->item, s->n);
	each_moving_file(s, draft_file_keep);
	return committing_custom_metadata(s);
}

int draft_commit(struct draft *d, struct span final)
{
	const struct commit_driver *driver = d->env->driver;
	uint64_t seconds = MIN(d->env->options->commit_timeout, (uint64_t)1 << 32);
	int64_t deadline = seconds ? clock_ns() + (int64_t)seconds * SECOND_NS : 0;
	struct sealing s = { .d = d };
	struct err_note why;
	int r = begin_commit(d);

	if (r < 0)
		return r;
	trace(TRACE_STEP, "draft '%s' is to become '%.*s'", d->name, SPAN_ARG(final));
	r = plan_step(&s, final);
	r = driver->commit(d, s.item, s.n, s.custom.n ? buf_span(&s.custom) : span_of(NULL, 0), r,
			   deadline);
	if (r < 0)
		err_save(r, &why);
	each_moving_file(&s, r < 0 ? draft_file_stays : draft_file_moved);
	for (size_t i = 0; i < s.n; i++)
		sealing_item_release(&s.item[i]);
	buf_release(&s.custom);
	free(s.item);
	if (r < 0) {
		err_restore(&why);
		return not_committed(d, r);
	}
	log_info("draft '%s' became '%s'", d->name, d->dir->final);
	if (driver->committed)
		driver->committed(d);
	draft_end(d, false);
	if (!driver->runs_on_commit || driver->runs_on_commit(d->env))
		on_commit_run(d->env, d->dir->final);
	return 0;
}
