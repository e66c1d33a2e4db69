/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_root.c - the root of steps: one directory per committed step, `latest`, and `.pytreefs`.
 *
 * Other programs add and remove steps, so names are cached for only a second, and the node of a
 * step is checked to be the same directory still. A listing does not open steps.
 */
#include <dirent.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/namespace/node_draft.h"
#include "handlers/namespace/node_tree.h"

static int root_stat(struct node *n, struct stat *ret)
{
	return ns_stat_root(n->ns, NULL, ret);
}

static int list_steps(struct ns *ns, bool tmp, struct step_list *ret)
{
	int r = step_list(ns->ckpt->source, ckpt_needs_marker(ns->ckpt), tmp, ret);

	return r >= 0 && ret->n == 0 ? ns_check_there(ns) : r;
}

/* ---- latest ---- */

static int latest_readlink(struct node *n, struct buf *ret)
{
	struct ns *ns = n->ns;
	auto_free char *name = NULL;
	auto_step_list l = { 0 };
	int r = list_steps(ns, false, &l);

	if (r < 0)
		return r;
	r = step_latest(ns->ckpt->source, &l, ckpt_needs_marker(ns->ckpt), &name);
	return r < 0 ? r : buf_add_str(ret, name);
}

static int latest_stat(struct node *n, struct stat *ret)
{
	auto_buf target = { 0 };
	int r = latest_readlink(n, &target);

	if (r < 0)
		return r;
	r = root_stat(n->ns->root, ret);
	ret->st_mode = S_IFLNK | 0777;
	ret->st_size = (off_t)target.n;
	ret->st_nlink = 1;
	return r;
}

/* Neither `latest` nor the root has more than a node. */
static void root_free(struct node *n)
{
	free(n);
}

static const struct node_ops latest_ops = {
	.name = STEP_LATEST,
	.stat = latest_stat,
	.readlink = latest_readlink,
	.free = root_free,
};

/* ---- steps ---- */

/* The child is a checkpoint that is one PyTree, or a directory of items. */
static int step_child(struct node *n, struct span name, const struct stat *st, struct node **ret)
{
	auto_free char *path = span_dup_str(name);
	enum shape shape = SHAPE_ITEM;
	int r = 0;

	if (!path)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	if (S_ISDIR(st->st_mode))
		r = detect_step(n->ns->ckpt->source, path, &shape);
	if (r < 0)
		return r;
	if (shape == SHAPE_ITEM)
		r = node_item_new(n->ns, n, name, path, ret);
	else
		r = node_step_new(n->ns, n, name, path, ret);
	return r < 0 ? err_at(r, "step '%s'", path) : r;
}

static int root_lookup(struct node *n, struct span name, struct node **ret)
{
	struct stat st;
	int r;

	if (span_eq(name, span_str(".pytreefs")))
		return node_control_new(n, name, ret);
	if (span_eq(name, span_str(STEP_LATEST))) {
		auto_buf target = { 0 };

		r = latest_readlink(n, &target);
		if (r < 0)
			return r;
		return node_new(&latest_ops, n->ns, n, name, sizeof(**ret), ret);
	}
	r = draft_root_lookup(n, name, ret);
	if (r != -ENOENT)
		return r;
	r = step_find(n->ns->ckpt->source, name, ckpt_needs_marker(n->ns->ckpt),
		      n->ns->options->show_tmp, &st);
	if (r <= 0)
		return r < 0 ? r : node_subtree_lookup(n, name, ret);
	return step_child(n, name, &st, ret);
}

/* Explain an empty root: steps that were copied into a bucket lack the marker. */
static void say_unmarked(struct ns *ns)
{
	auto_step_list all = { 0 };

	if (ns->options->atomicity != ATOMICITY_AUTO || !ckpt_needs_marker(ns->ckpt))
		return;
	if (step_list(ns->ckpt->source, false, false, &all) < 0)
		err_clear();
	if (all.n && !atomic_flag_test_and_set(&ns->said_unmarked))
		log_warn("no step of '%s' has commit_success.txt, %zu %s without it: "
			 "-o atomicity=rename shows %s",
			 ns->ckpt->source->path, all.n, all.n == 1 ? "is" : "are",
			 all.n == 1 ? "it" : "them");
}

static int root_list(struct node *n, struct listing *ret)
{
	auto_step_list l = { 0 };
	int r = list_steps(n->ns, n->ns->options->show_tmp, &l);

	if (r < 0)
		return r;
	if (l.n == 0)
		say_unmarked(n->ns);
	else if (l.n_others && !atomic_flag_test_and_set(&n->ns->said_others))
		log_warn("'%s' is not listed with the steps of '%s', which are called like '%s'; "
			 "its own name reads it%s",
			 l.other, n->ns->ckpt->source->path, l.entry[l.n - 1].name,
			 l.n_others > 1 ? "; there are others like it" : "");
	r = listing_add_dots(ret, n);
	for (size_t i = 0; i < l.n && r >= 0; i++)
		r = listing_add(ret, n, span_str(l.entry[i].name), DT_DIR);
	return r < 0 ? r : draft_root_list(n, ret);
}

static const struct node_ops root_ops = {
	.name = "root",
	.lazy_list = true,
	.stat = root_stat,
	.lookup = root_lookup,
	.list = root_list,
	.mkdir = draft_root_mkdir,
	.create = draft_root_create,
	.unlink = draft_root_unlink,
	.rmdir = draft_root_rmdir,
	.rename = draft_root_rename,
	.setattr = draft_root_setattr,
	.xattr_list = tree_xattr_list,
	.xattr_get = tree_xattr_get,
	.free = root_free,
};

/* The top of a mount may be any kind of checkpoint, which determines the kind of its node. */
int node_root_new(struct ns *ns, struct node **ret)
{
	int r;

	if (ns->ckpt->shape == SHAPE_ITEM)
		return node_item_new(ns, NULL, span_str(""),
				     ns->ckpt->only_item ? ns->ckpt->only_item : ".", ret);
	if (ns->ckpt->shape == SHAPE_STEP)
		return node_step_new(ns, NULL, span_str(""), ".", ret);
	r = node_new(&root_ops, ns, NULL, span_str(""), sizeof(**ret), ret);
	if (r >= 0)
		(*ret)->ttl = (*ret)->child_ttl = NS_ROOT_TTL;
	return r;
}
