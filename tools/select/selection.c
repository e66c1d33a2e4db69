/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selection.c - finds the trees below a path of the user.
 *
 * The steps of a root are opened one after another, so that memory does not depend on their number.
 */
#include "tools/select/selection.h"

#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "handlers/namespace/node_parts.h"

int selection_begin(struct selection *t, struct cmd_args *a)
{
	*t = (struct selection){ .a = a };
	progress_begin(&t->progress, a->cmd->name, cmd_flag(a, "quiet"));
	return select_make(a, &t->only);
}

void selection_share(struct selection *t, struct rank_group *group)
{
	t->group = group;
	if (!group_is_lead(group))
		t->progress.on = false;
}

void selection_failed(struct selection *t, const char *path, const struct err_note *why)
{
	t->failed++;
	if (!group_is_lead(t->group))
		return;
	progress_clear(&t->progress);
	fprintf(stderr, "pytreefs: '");
	print_name(stderr, path);
	fprintf(stderr, "': ");
	print_name(stderr, why->text);
	fputc('\n', stderr);
}

int selection_broken(struct selection *t, const struct subtree *st, const char *prefix)
{
	for (size_t i = 0; i < st->n; i++) {
		auto_buf path = { 0 };

		if (st->part[i].kind != PART_BROKEN)
			continue;
		if (buf_addf(&path, "%s%s", prefix, st->part[i].path) < 0 || !buf_str(&path))
			return fail(-ENOMEM, "cannot name an item");
		selection_failed(t, buf_str(&path), st->part[i].note);
	}
	return 0;
}

static int each_tree(struct selection *t, const struct subtree *st, const char *prefix,
		     selection_fn *fn, void *arg)
{
	int r = selection_broken(t, st, prefix);

	return r < 0 ? r : fn(t, st, prefix, arg);
}

static int each_step(struct selection *t, struct node *root, const char *name, selection_fn *fn,
		     void *arg)
{
	auto_buf prefix = { 0 };
	auto_subtree st = { 0 };
	auto_node *n = NULL;
	struct err_note why;
	int r = buf_addf(&prefix, "%s/", name);

	if (r < 0)
		return r;
	r = node_lookup(root, span_str(name), &n);
	if (r >= 0)
		r = node_open_subtree(n, &st);
	if (r == -ENOMEM || r == -EINTR)
		return r;
	if (r >= 0)
		return each_tree(t, &st, buf_str(&prefix), fn, arg);
	/* One damaged step does not hide the others. */
	err_save(r, &why);
	selection_failed(t, name, &why);
	return t->lost ? t->lost(t, name, &why, arg) : 0;
}

int selection_each(struct selection *t, struct source *s, selection_fn *fn, void *arg)
{
	auto_listing l = { 0 };
	auto_subtree st = { 0 };
	int r;

	if (!node_is_root(s->node)) {
		r = node_open_subtree(s->node, &st);
		return r < 0 ? r : each_tree(t, &st, "", fn, arg);
	}
	r = node_list(s->node, &l);
	for (size_t i = 2; i < l.n && r >= 0; i++)
		r = each_step(t, s->node, listing_name(&l, i), fn, arg);
	return r;
}

int selection_walk(struct selection *t, const struct subtree *st, const char *prefix,
		   const struct walk_ops *ops, void *arg)
{
	auto_walk w = { 0 };
	int r = walk_init(&w, st, prefix, t->only);

	t->leaves += w.n;
	if (t->group) {
		w.group = t->group;
		w.first = t->group->next;
		t->group->next += w.n;
	}
	return r < 0 ? r : walk_run(&w, ops, arg, &t->progress);
}

int selection_end(struct selection *t)
{
	int r;

	progress_end(&t->progress);
	r = select_end(t->only);
	return r < 0 ? r : t->failed ? cmd_error_status(t->a->cmd) : EXIT_OK;
}
