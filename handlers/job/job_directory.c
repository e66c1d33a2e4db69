/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_directory.c - a draft whose directory the ranks of a job share.
 *
 * The directory has a name for each attempt (draft_dir_fence()): a rank that gives up renames it,
 * and of that rename and the primary's to the step, one succeeds.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/job/draft_collective.h"

int job_directory_begin(struct draft *d, const char *final, unsigned mode)
{
	auto_of(draft_dir) struct draft_dir *dir = NULL;
	auto_buf name = { 0 }, on_disk = { 0 };
	int64_t init_ns;
	int r = draft_name_on_disk(d, final, &name);

	if (r < 0)
		return r;
	r = collective_join(d->env->collective, buf_str(&name), final, mode, &d->member, &init_ns,
			    &on_disk);
	if (r < 0)
		return r;
	r = buf_str(&on_disk) ? draft_dir_join(d->env->ckpt->source, buf_str(&on_disk), final, mode,
					       init_ns, &dir) :
				-ENOMEM;
	if (r < 0) {
		collective_leave(d->env->collective, &d->member, false);
		return r;
	}
	/* The name of the first attempt, from which the later names are made. */
	free(dir->base_name);
	dir->base_name = strdup(buf_str(&name));
	if (!dir->base_name)
		return fail(-ENOMEM, "cannot join draft '%s'", buf_str(&name));
	d->dir = take(dir);
	return 0;
}

int job_directory_remove(struct draft *d)
{
	int r = 0;

	for (size_t i = 0; i < d->root->n_children && r >= 0; i++) {
		const struct draft_node *n = d->root->child[i];

		if (n->item.dir)
			r = io_remove_tree(d->dir->dir, n->item.dir);
		if (r < 0)
			return r;
		if (n->replicas.dir)
			r = io_remove_tree(d->dir->dir, n->replicas.dir);
	}
	return r;
}

static int find_by_name(struct draft *d)
{
	return draft_dir_find(d->dir, d->member.attempt + 1);
}

static int give_up_by_name(struct course *c, const struct err_note *why)
{
	struct draft *d = c->d;
	int done = draft_dir_fence(d->dir, d->member.attempt);

	if (done < 0)
		return err_at(done, "nobody answers, and draft '%s' cannot be looked at", d->name);
	if (done == 0)
		return err_restore(why);
	log_warn("'%s' was committed, and rank %d did not say so", d->dir->final, c->j->primary);
	err_clear();
	return io_dirop(d->dir->parent, IO_SYNC_DIR, ".", NULL, 0);
}

static const struct attempt_ops by_name = { .find = find_by_name, .give_up = give_up_by_name };

int job_directory_commit(struct draft *d, struct sealing_item *item, size_t n, struct span custom,
			 int r, int64_t deadline)
{
	struct course c = { .d = d, .ops = &by_name, .item = item, .n = n, .custom = custom };

	return draft_commit_collective(&c, r, deadline);
}
