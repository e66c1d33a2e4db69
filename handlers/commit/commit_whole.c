/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_whole.c - writes and publishes a step of which this process has everything.
 *
 * Each item is sealed in the draft's directory, which the driver's publisher then makes a step
 * (core/commit/commit.h).
 */
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/commit/draft_digests.h"
#include "handlers/commit/draft_drivers.h"
#include "handlers/commit/draft_verify.h"
#include "handlers/plan/copy_hints.h"

struct whole {
	struct draft *d;
	struct sealing_item *item;
	size_t n;
	struct commit commit;
};

/* ---- the draft's directory ---- */

/* Whether it is the lock file, or the store of an item. */
static bool whole_is_of_draft(void *arg, const char *name)
{
	const struct whole *w = arg;

	for (size_t i = 0; i < w->n; i++) {
		const struct draft_node *n = plan_owner(w->item[i].plan);

		if (n->item.dir && !strcmp(n->item.dir, name))
			return true;
	}
	return !strcmp(name, DRAFT_LOCK_FILE);
}

static int stage_store(struct whole *w, struct draft_node *n)
{
	char temp[64];

	snprintf(temp, sizeof(temp), ".pytreefs-item-%u", w->d->n_stores++);
	return draft_move_store(w->d, &n->item, temp);
}

/* Remove what a failed commit or a removed item has left. */
static int clean_draft(struct whole *w)
{
	/* Remove everything besides the arrays of a nested item. */
	for (size_t i = 0; i < w->n; i++) {
		struct draft_node *n = plan_owner(w->item[i].plan);
		int r = n->item.dir && strchr(n->item.dir, '/') ? stage_store(w, n) : 0;

		if (r < 0)
			return r;
	}
	/* Sealing the item cleans a draft that is itself an item with its arrays at the top. */
	return w->d->is_item && w->d->root->item.store ?
		       0 :
		       io_remove_entries(w->d->dir->dir, ".", whole_is_of_draft, w);
}

/*
 * Rename stores after their items. A store whose name another one needs is first renamed out of its
 * way.
 */
static int name_stores(struct whole *w)
{
	int r = 0;

	for (size_t i = 0; i < w->n && r >= 0; i++) {
		struct draft_node *n = plan_owner(w->item[i].plan);

		if (n->item.dir && strcmp(n->item.dir, w->item[i].plan->name) &&
		    n->item.dir[0] != '.')
			r = stage_store(w, n);
	}
	for (size_t i = 0; i < w->n && r >= 0; i++) {
		struct draft_node *n = plan_owner(w->item[i].plan);

		if (n->item.dir && strcmp(n->item.dir, w->item[i].plan->name))
			r = draft_move_store(w->d, &n->item, w->item[i].plan->name);
	}
	return r;
}

/* ---- the commit ---- */

/* Messages name the item; files beside the items are in none. */
static int whole_of_item(const struct sealing_item *it, int r)
{
	return r < 0 && *it->plan->name ? err_at(r, "item '%s'", it->plan->name) : r;
}

/* Line 2 of the table in core/commit/README.md. */
static int prepare_items(struct whole *w)
{
	int r = 0;

	for (size_t i = 0; i < w->n && r >= 0; i++)
		r = whole_of_item(&w->item[i], sealing_item_fill(&w->item[i]));
	for (size_t i = 0; i < w->n && r >= 0; i++)
		r = whole_of_item(&w->item[i], sealing_item_finalize(&w->item[i]));
	if (r < 0)
		return r;
	r = clean_draft(w);
	return r < 0 || w->d->is_item ? r : name_stores(w);
}

/* Line 8. */
static int check_finished(void *arg)
{
	struct whole *w = arg;
	int r = w->d->env->options->verify_commit ? draft_verify(w->d, w->item, w->n) : 0;

	return r < 0 ? r : draft_digests(w->d, w->item, w->n, &w->commit);
}

int commit_whole(struct draft *d, struct sealing_item *item, size_t n, struct span custom, int r,
		 int64_t deadline)
{
	auto_free struct commit_item *to = calloc(n + 1, sizeof(*to));
	auto_free char *text = custom.n ? span_dup_str(custom) : NULL;
	struct whole w = { d, item, n };

	if (r < 0)
		return r;
	if (n == 0)
		return fail(-EINVAL, "draft '%s' is empty", d->name);
	if (!to || (custom.n && !text))
		return fail(-ENOMEM, "cannot commit %zu items", n);
	draft_report_unmatched(d, item, n);
	r = prepare_items(&w);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		to[i] = (struct commit_item){
			.name = span_str(item[i].plan->name),
			.handler = plan_handler(item[i].plan),
			.store = plan_owner(item[i].plan)->item.store,
			.leaves = item[i].leaf,
			.n_leaves = item[i].n_leaves,
			.retained = item[i].retained,
			.n_retained = item[i].n_retained,
			.files = item[i].file,
			.n_files = item[i].n_files,
		};
	w.commit = (struct commit){
		.ckpt = d->env->ckpt,
		.draft = d->dir,
		.items = to,
		.n_items = n,
		.direct = d->is_item,
		.custom = text,
		.dir_mode = (unsigned)d->env->options->mode,
		.replaces = d->replaces,
		.deadline_ns = deadline,
		.finish = check_finished,
		.finish_arg = &w,
		.publisher = d->env->driver->publisher,
		.publisher_arg = d,
	};
	return commit_run(&w.commit);
}
