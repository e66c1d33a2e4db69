/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft.c - writes a checkpoint: begin, commit, abort.
 */
#include "tools/lib/lib_draft.h"

#include "core/base/blocks.h"
#include "handlers/draft/draft_upload.h"

static void draft_free(struct pytreefs_draft *d)
{
	if (!d)
		return;
	/*
	 * The child of a fork does not have the parent's threads, so the handle is only forgotten.
	 */
	if (d->pid == getpid()) {
		atomic_step_release(&d->step);
		options_release(&d->args.options);
		block_trim();
	}
	free(d);
}
DEFINE_AUTO(lib_draft, struct pytreefs_draft, draft_free);

static int lib_draft_begin(const char *path, const char *options, unsigned flags,
			   struct pytreefs_draft **ret)
{
	static const char *const shown[] = { "transforms", "restore_dtype" };
	auto_of(lib_draft) struct pytreefs_draft *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return fail(-ENOMEM, "cannot write '%s'", path);
	d->pid = getpid();
	d->is_item = flags & PYTREEFS_DRAFT_ITEM;
	r = options_init(&d->args.options);
	if (r < 0)
		return r;
	r = lib_options(&d->args.options, options);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(shown); i++)
		if (options_given_here(&d->args.options, shown[i]))
			return fail(-EINVAL, "option '%s' is for checkpoints that are read",
				    shown[i]);
	r = atomic_step_begin(&d->args, NULL, path, d->is_item ? LAYOUT_DIRECT : LAYOUT_ITEMS,
			      flags & PYTREEFS_DRAFT_REPLACE, &d->step);
	if (r < 0)
		return r;
	d->step.ns->ckpt->write_env.check = lib_work_check;
	d->step.ns->ckpt->write_env.check_arg = &d->work;
	*ret = take(d);
	return 0;
}

int pytreefs_draft_begin(const char *path, const char *options, unsigned flags,
			 struct pytreefs_draft **ret)
{
	lib_init();
	lib_begin_pid(getpid(), "draft", path);
	return (int)lib_end(lib_draft_begin(path, options, flags, ret));
}

int pytreefs_draft_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key,
			     size_t n_keys, const char *attribute, const char *text)
{
	auto_free char *name = str_fmt("user.pytree.%s", attribute);
	auto_of(draft_node) struct draft_node *n = NULL;
	struct span value = span_str(text);
	int r = lib_begin_pid(d->pid, "draft", d->step.name);

	if (r < 0)
		return (int)lib_end(r);
	r = name ? lib_draft_find(d, key, n_keys, &n) :
		   fail(-ENOMEM, "cannot set attribute '%s'", attribute);
	if (r >= 0)
		r = draft_set_xattr(n, name, &value, 0);
	return (int)lib_end(r < 0 ? lib_at_key(r, key, n_keys) : 0);
}

static int commit_step(void *arg)
{
	struct pytreefs_draft *d = arg;

	return atomic_step_commit(&d->step);
}

int pytreefs_draft_commit(struct pytreefs_draft *d, const struct pytreefs_progress *progress)
{
	struct lib_progress p = { .p = progress, .total = d->bytes };
	int r = lib_begin_pid(d->pid, "draft", d->step.name);

	if (r < 0)
		return (int)lib_end(r);
	atomic_store(&d->work.done, d->bytes);
	r = (int)lib_end(lib_call(&d->work, &p, commit_step, d));
	if (r < 0)
		return r;
	draft_free(d);
	return r;
}

const char *pytreefs_draft_remark(const struct pytreefs_draft *d)
{
	return draft_uploads_remark(d->step.ns->drafts.uploads);
}

void pytreefs_draft_abort(struct pytreefs_draft *d)
{
	draft_free(d);
}
