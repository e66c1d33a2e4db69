/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_draft_root.c - operations on the root of a mount: begin, commit and abort drafts, and delete
 * steps.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/commit/draft_commit.h"
#include "handlers/draft/draft.h"
#include "handlers/namespace/node_draft.h"
#include "handlers/namespace/ns.h"
#include "handlers/namespace/watch.h"

struct root_listing {
	struct node *root;
	struct listing *list;
};

static int list_draft(void *arg, struct draft *d)
{
	struct root_listing *l = arg;

	return listing_add(l->list, l->root, span_str(d->name), DT_DIR);
}

int draft_root_list(struct node *root, struct listing *ret)
{
	struct root_listing l = { root, ret };

	return draft_each(&root->ns->drafts, list_draft, &l);
}

/* Refuse a directory that is not a draft. The message says what can be made instead. */
static int refuse_name(const struct node *root, struct span name)
{
	const struct ckpt *c = root->ns->ckpt;

	if (c->shape == SHAPE_ROOT && step_check_name(c->source, name, ckpt_needs_marker(c)) < 0) {
		err_clear();
		return fail(-EPERM,
			    "'%.*s' cannot be made: a step's name is a number, also after a word "
			    "and '_' ('7', 'step_7'); begin with 'mkdir 7.tmp', and rename it to "
			    "'7' when it is whole",
			    SPAN_ARG(name));
	}
	return fail(-EPERM,
		    "'%.*s' cannot be made: begin with 'mkdir %.*s.tmp', and rename it when it is "
		    "whole",
		    SPAN_ARG(name), SPAN_ARG(name));
}

int draft_root_mkdir(struct node *root, struct span name, unsigned mode, struct node **ret)
{
	struct draft *d;
	struct span final;
	int r;

	if (step_name_draft(name, &final) < 0 && !span_ends(name, span_str(".tmp")) &&
	    !step_name_is_tmp(name)) {
		err_clear();
		return refuse_name(root, name);
	}
	r = draft_begin(&root->ns->drafts, name, &d);
	if (r < 0)
		return r;
	r = node_lookup(root, name, ret);
	if (r < 0) {
		struct err_note note;

		/* A caller that gets ENOENT creates it again. */
		err_save(r, &note);
		draft_abort(d, true);
		r = err_restore(&note);
	}
	draft_unref(d);
	return r;
}

int draft_root_create(struct node *root, struct span name, int flags, struct node **ret,
		      struct file **ret_file)
{
	return fail(-EPERM, "'%.*s': files cannot be made beside %s", SPAN_ARG(name),
		    root->ns->ckpt->shape == SHAPE_STEP ? "items" : "steps");
}

int draft_root_unlink(struct node *root, struct span name)
{
	return fail(-EPERM, "'%.*s' cannot be removed", SPAN_ARG(name));
}

static int check_entry(void *source, const char *path, unsigned char type)
{
	return type == DT_DIR ? user_check(source, path, 07, "delete") : 0;
}

static int check_may_delete(struct ns *ns, const char *step, const struct stat *st)
{
	int r;

	if (!user_is_other() || !S_ISDIR(st->st_mode))
		return 0;
	/* The caller must be allowed to write to each directory, as `rm -r` in SOURCE requires. */
	if (!ns->options->todelete) {
		r = user_check(ns->ckpt->source, step, 07, "delete");
		return r < 0 ? r :
			       io_walk(ns->ckpt->source, step, false, check_entry,
				       ns->ckpt->source);
	}
	/* Renaming a directory changes its entry "..", which requires write permission. */
	r = user_check(ns->ckpt->source, step, 02, "move away");
	if (r >= 0)
		r = user_check(ns->ckpt->source, ns->options->todelete, 03, "write to");
	if (r != -ENOENT)
		return r;
	/*
	 * The directory is created in SOURCE, where every user who may rename a step may create it.
	 */
	err_clear();
	return 0;
}

/* Whether the name of the step is gone although its deletion failed. */
static bool is_gone(struct ns *ns, const char *step)
{
	struct err_note why;
	struct stat st;
	int r;

	err_peek(&why);
	r = io_stat(ns->ckpt->source, step, &st);
	err_restore(&why);
	return r == -ENOENT;
}

static int delete_step(struct ns *ns, struct span name)
{
	auto_free char *step = span_dup_str(name);
	struct stat st;
	int r;

	if (!step)
		return fail(-ENOMEM, "cannot delete '%.*s'", SPAN_ARG(name));
	r = step_check_name(ns->ckpt->source, name, ckpt_needs_marker(ns->ckpt));
	if (r < 0)
		return r;
	r = io_stat(ns->ckpt->source, step, &st);
	if (r < 0)
		return r;
	r = check_may_delete(ns, step, &st);
	if (r < 0)
		return r;
	r = ns->options->todelete ? commit_move_away(ns->ckpt, step, ns->options->todelete) :
				    commit_delete(ns->ckpt, step);
	if (r >= 0 || is_gone(ns, step))
		ns_drop_items(ns, step);
	if (r < 0)
		return err_at(r, "deletion of step '%s'", step);
	log_info("step '%s' is deleted", step);
	return 0;
}

int draft_root_rmdir(struct node *root, struct span name)
{
	struct ns *ns = root->ns;
	auto_of(draft) struct draft *d = draft_find(&ns->drafts, name);

	if (d)
		return draft_abort(d, false);
	if (!ns->options->allow_delete || ns->ckpt->shape != SHAPE_ROOT)
		return fail(-EROFS,
			    ns->ckpt->shape == SHAPE_ROOT ?
				    "'%.*s' cannot be deleted: the mount has no allow_delete" :
				    "'%.*s' cannot be deleted: steps are deleted as a whole",
			    SPAN_ARG(name));
	return delete_step(ns, name);
}

int draft_root_rename(struct node *root, struct span name, struct node *to_dir, struct span to_name,
		      unsigned flags)
{
	auto_of(draft) struct draft *d = draft_find(&root->ns->drafts, name);
	int r;

	if (!d)
		return fail(-EROFS, "'%.*s' cannot be renamed: committed steps are immutable",
			    SPAN_ARG(name));
	/*
	 * EINVAL means that a directory is moved into itself, and EXDEV would make mv(1) copy the
	 * draft.
	 */
	if (to_dir != root)
		return fail(node_is_draft(to_dir) ? -EPERM : -EROFS,
			    "draft '%s' can only become %s beside the others, "
			    "and '%s' is there already",
			    d->name, root->ns->ckpt->shape == SHAPE_STEP ? "an item" : "a step",
			    to_dir->name);
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return fail(-EINVAL, "a draft cannot be exchanged with a step");
	r = draft_commit(d, to_name);
	atomic_fetch_add(r < 0 ? &root->ns->failed_commits : &root->ns->commits, 1);
	if (r >= 0)
		watch_committed(root->ns->watch, to_name);
	return r;
}

int draft_root_setattr(struct node *root, const struct stat *st, unsigned which, struct file *file)
{
	return fail(-EPERM, "the mount's own attributes cannot be changed");
}
