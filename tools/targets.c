/*
 * targets.c - from a path of the user's to the trees below it.
 *
 * The steps of a root are opened one after the other, so that memory does not
 * depend on their number.
 */
#include "tools/targets.h"

#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

void targets_begin(struct targets *t, struct cmd_args *a)
{
	*t = (struct targets){ .a = a };
	progress_begin(&t->progress, a->cmd->name, cmd_flag(a, "quiet"));
}

void targets_share(struct targets *t, struct team *team)
{
	t->team = team;
	if (!team_is_lead(team))
		t->progress.on = false;
}

void targets_failed(struct targets *t, const char *path, const struct err_note *why)
{
	t->failed++;
	if (!team_is_lead(t->team))
		return;
	progress_clear(&t->progress);
	fprintf(stderr, "pytreefs: '");
	print_name(stderr, path);
	fprintf(stderr, "': ");
	print_name(stderr, why->text);
	fputc('\n', stderr);
}

int targets_broken(struct targets *t, const struct subtree *st, const char *prefix)
{
	for (size_t i = 0; i < st->n; i++) {
		auto_buf path = { 0 };

		if (st->part[i].kind != PART_BROKEN)
			continue;
		if (buf_addf(&path, "%s%s", prefix, st->part[i].path) < 0 || !buf_str(&path))
			return fail(-ENOMEM, "cannot name an item");
		targets_failed(t, buf_str(&path), st->part[i].note);
	}
	return 0;
}

static int each_tree(struct targets *t, struct node *n, const char *prefix, targets_fn *fn, void *arg)
{
	auto_subtree st = { 0 };
	int r = subtree_open(n, &st);

	if (r >= 0)
		r = targets_broken(t, &st, prefix);
	return r < 0 ? r : fn(t, &st, prefix, arg);
}

static int each_step(struct targets *t, struct node *root, const char *name, targets_fn *fn, void *arg)
{
	auto_buf prefix = { 0 };
	auto_node *n = NULL;
	int r = buf_addf(&prefix, "%s/", name);

	if (r >= 0)
		r = node_lookup(root, span_str(name), &n);
	if (r < 0 && r != -ENOMEM) {
		struct err_note why;

		/* One broken step does not hide the others. */
		err_save(r, &why);
		targets_failed(t, name, &why);
		return 0;
	}
	return r < 0 ? r : each_tree(t, n, buf_str(&prefix), fn, arg);
}

int targets_each(struct targets *t, struct source *s, targets_fn *fn, void *arg)
{
	auto_listing l = { 0 };
	int r;

	if (s->node != s->ns->root || s->ns->ckpt->shape != SHAPE_ROOT)
		return each_tree(t, s->node, "", fn, arg);
	r = node_list(s->node, &l);
	for (size_t i = 2; i < l.n && r >= 0; i++)
		r = each_step(t, s->node, listing_name(&l, i), fn, arg);
	return r;
}

int targets_walk(struct targets *t, const struct subtree *st, const char *prefix, const struct walk_ops *ops,
		 void *arg)
{
	struct walk w;
	int r = walk_init(&w, st, prefix, cmd_value(t->a, "only"));

	t->leaves += w.n;
	if (t->team) {
		w.team = t->team;
		w.first = t->team->next;
		t->team->next += w.n;
	}
	if (r >= 0)
		r = walk_run(&w, ops, arg, &t->progress);
	walk_release(&w);
	return r;
}

int targets_end(struct targets *t)
{
	const char *only = cmd_value(t->a, "only");

	progress_end(&t->progress);
	if (only && t->leaves == 0)
		return fail(-ENOENT, "no leaf matches '%s'", only);
	return t->failed ? EXIT_FOUND : EXIT_OK;
}
