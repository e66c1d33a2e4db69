/*
 * node_draft_root.c - what the root of a mount lets pass to drafts: their begin, their end, and
 * the deletion of steps.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step_name.h"
#include "handlers/draft.h"
#include "handlers/node_draft.h"
#include "handlers/whiteout.h"

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

	return draft_each(root->ns, list_draft, &l);
}

int draft_root_mkdir(struct node *root, struct span name, unsigned mode, struct node **ret)
{
	struct draft *d;
	struct span final;
	int r;

	if (step_name_draft(name, &final) < 0 && !span_ends(name, span_str(".tmp")) && !step_name_is_tmp(name)) {
		err_clear();
		return fail(-EPERM, "'%.*s' cannot be made: begin with 'mkdir %.*s.tmp', and rename it when it is whole",
			    SPAN_ARG(name), SPAN_ARG(name));
	}
	r = draft_begin(root->ns, name, &d);
	if (r < 0)
		return r;
	r = node_lookup(root, name, ret);
	if (r < 0) {
		struct err_note note;

		/* Who was told that it is not there makes it again. */
		err_save(r, &note);
		draft_abort(d, true);
		r = err_restore(&note);
	}
	draft_unref(d);
	return r;
}

int draft_root_create(struct node *root, struct span name, int flags, struct node **ret, struct file **ret_file)
{
	return fail(-EPERM, "'%.*s': there are no files beside %s", SPAN_ARG(name),
		    root->ns->ckpt->shape == SHAPE_STEP ? "items" : "steps");
}

int draft_root_unlink(struct node *root, struct span name)
{
	return fail(-EPERM, "'%.*s' cannot be removed", SPAN_ARG(name));
}

static int delete_step(struct ns *ns, struct span name)
{
	auto_free char *step = span_dup_str(name);
	struct stat st;
	int r = step ? 0 : fail(-ENOMEM, "cannot delete '%.*s'", SPAN_ARG(name));

	if (r >= 0)
		r = step_name_check(name);
	if (r >= 0)
		r = io_stat(ns->ckpt->source, step, &st);
	if (r < 0)
		return r;
	r = ns->options->todelete ? commit_move_away(ns->ckpt, step, ns->options->todelete) : commit_delete(ns->ckpt, step);
	if (r < 0)
		return r;
	log_info("step '%s' is deleted", step);
	ns_drop_items(ns, step);
	whiteout_clear(ns, name);
	return 0;
}

int draft_root_rmdir(struct node *root, struct span name)
{
	struct ns *ns = root->ns;
	auto_of(draft) struct draft *d = draft_find(ns, name);

	if (d)
		return draft_abort(d, false);
	if (!ns->options->allow_delete || ns->ckpt->shape != SHAPE_ROOT)
		return fail(-EROFS, ns->ckpt->shape == SHAPE_ROOT ? "'%.*s' cannot be deleted: the mount has no allow_delete" :
			    "'%.*s' cannot be deleted: steps are deleted as a whole", SPAN_ARG(name));
	return delete_step(ns, name);
}

int draft_root_rename(struct node *root, struct span name, struct node *to_dir, struct span to_name, unsigned flags)
{
	auto_of(draft) struct draft *d = draft_find(root->ns, name);

	if (!d)
		return fail(-EROFS, "'%.*s' cannot be renamed: committed steps are immutable", SPAN_ARG(name));
	if (to_dir != root)
		return fail(-EINVAL, "draft '%s' can only become %s beside the others", d->name,
			    d->is_item ? "an item" : "a step");
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return fail(-EINVAL, "a draft cannot be exchanged with a step");
	return draft_commit(d, to_name);
}

int draft_root_setattr(struct node *root, const struct stat *st, unsigned which, struct file *file)
{
	return fail(-EPERM, "the mount's own attributes cannot be changed");
}
