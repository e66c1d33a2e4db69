/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_collective.c - the sequence of a collective commit.
 *
 *     every rank        the primary                        every rank
 *     plan, seal files
 *     vote 1  ------> merge all contributions:
 *                       assignments, or an error ---------> make values durable
 *     vote 2  ------> merge databases, write documents,
 *                       rename                   ---------> the result
 *
 * A rank whose deadline has passed renames the draft, so that the attempt fails for all ranks, or
 * finds that it has become a step (draft_dir_fence()). A rank whose mount is being ended
 * (collective_interrupt()) does so at once, or, if it has not voted yet, votes against the attempt.
 *
 * Invariants: only the primary renames the draft to its step, and only after all values of all
 * ranks are durable.
 */
#include "handlers/job/draft_collective.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/remote/source/object_names.h"
#include "handlers/commit/draft_digests.h"
#include "handlers/commit/draft_verify.h"
#include "handlers/plan/copy_hints.h"

/* ---- a waiting rank ---- */

/* No result has arrived in time. */
static int course_give_up(struct course *c, int r)
{
	struct err_note why;

	err_save(r, &why);
	return c->ops->give_up(c, &why);
}

/* The result of the attempt is known to this rank; r has a note if it is an error. */
static int conclude(struct course *c, int r)
{
	if (c->undecided)
		return course_give_up(c, r);
	return c->ops->decided ? c->ops->decided(c, r) : r;
}

static int course_await(struct course *c, struct buf *ret, bool *ret_answered)
{
	int r = agree_await(&c->attempt, ret, ret_answered);

	if (r != COLLECTIVE_UNDECIDED)
		return r;
	c->undecided = true;
	return collective_undecided(buf_span(ret));
}

/*
 * This rank is being ended while it waits for the primary, and has yet to vote in that round. The
 * other ranks need not wait for it and may finish this attempt, so the draft keeps its name.
 */
static int course_leave(struct course *c, unsigned round, int r)
{
	struct err_note note;

	if (r != -ECANCELED)
		return course_give_up(c, r);
	err_save(r, &note);
	c->attempt.round = round;
	if (agree_vote(&c->attempt, r, span_of(NULL, 0)) < 0)
		log_warn("the other ranks are not told that this one is being ended");
	return err_restore(&note);
}

/* Make the values of this rank durable, as assigned; list: see struct attempt_ops. */
static int course_seal_values(struct course *c, struct span assignments, struct buf *list)
{
	int r = c->ops->clean ? c->ops->clean(c->d, c->item, c->n) : 0;

	c->sent = true;
	if (r < 0)
		return r;
	r = contribution_seal(c->d, c->item, c->n, assignments);
	return r < 0 || !c->ops->send ? r : c->ops->send(c->d, c->attempt.deadline, list);
}

static int course_follow(struct course *c, int r)
{
	auto_buf contribution = { 0 }, assignments = { 0 }, list = { 0 }, rest = { 0 };
	bool answered = false;

	r = r < 0 ? r :
		    contribution_pack(c->d->dir->final, c->custom, c->item, c->n, &contribution);
	r = agree_vote(&c->attempt, r, buf_span(&contribution));
	if (r < 0)
		return r;
	r = course_await(c, &assignments, &answered);
	/* The primary has sent neither a result nor assignments. */
	if (r < 0 && !answered)
		return course_leave(c, ATTEMPT_SECOND_ROUND, r);
	if (r != 1)
		return conclude(c, r);
	r = course_seal_values(c, buf_span(&assignments), &list);
	c->attempt.round = ATTEMPT_SECOND_ROUND;
	/* The others wait for this vote, so removing what was uploaded comes after it. */
	r = agree_vote(&c->attempt, r, buf_span(&list));
	if (r < 0)
		return conclude(c, r);
	r = course_await(c, &rest, &answered);
	return r < 0 && !answered ? course_give_up(c, r) : conclude(c, r);
}

/* ---- the primary ---- */

static void release_all(struct buf *b, int n)
{
	for (int i = 0; i < n && b; i++)
		buf_release(&b[i]);
	free(b);
}

/* Collect all contributions, merge them, and make assignments. */
static int first_round(struct course *c, int mine, struct collective_plan **ret,
		       struct buf **ret_contributions)
{
	struct buf *contribution = calloc((size_t)c->j->peers->size, sizeof(*contribution));
	int rank = c->j->peers->rank, r;

	if (!contribution)
		return fail(-ENOMEM, "cannot commit draft '%s'", c->d->name);
	*ret_contributions = contribution;
	if (mine >= 0)
		mine = contribution_pack(c->d->dir->final, c->custom, c->item, c->n,
					 &contribution[rank]);
	if (mine < 0)
		err_at(mine, "rank %d", rank);
	r = agree_collect(&c->attempt, mine, contribution);
	return r < 0 ? r : collective_plan_new(c->d, contribution, ret);
}

static int send_assignments(struct course *c, const struct collective_plan *jp)
{
	int r = 0;

	for (int i = 0; i < c->j->peers->size && r >= 0; i++) {
		auto_buf assignments = { 0 };

		if (!c->j->active[i] || i == c->j->peers->rank)
			continue;
		r = collective_plan_assignments(jp, i, &assignments);
		if (r < 0)
			return r;
		r = agree_answer(&c->attempt, i, 1, buf_span(&assignments));
	}
	return r;
}

static int second_round(struct course *c, const struct collective_plan *jp)
{
	auto_buf assignments = { 0 };
	int r = collective_plan_assignments(jp, c->j->peers->rank, &assignments);

	c->list = calloc((size_t)c->j->peers->size, sizeof(*c->list));
	if (!c->list)
		r = fail(-ENOMEM, "cannot commit draft '%s'", c->d->name);
	r = r < 0 ? r : course_seal_values(c, buf_span(&assignments), NULL);
	c->attempt.round = ATTEMPT_SECOND_ROUND;
	return agree_collect(&c->attempt, r, c->list);
}

static int course_add_database(struct arena *a, const char *name, struct ocdbt_parts *ret)
{
	ret->name[ret->n] = arena_str(a, name);
	return ret->name[ret->n++] ? 0 : fail(-ENOMEM, "cannot merge '%s'", name);
}

/* List the databases to merge, by their names below the item's directory. */
static int name_databases(const struct collective_item *it, int n_ranks, struct arena *a,
			  struct ocdbt_parts *ret)
{
	int r = 0;

	ret->name = arena_calloc(a, 2 * (size_t)n_ranks + 1, sizeof(*ret->name));
	if (!ret->name)
		return fail(-ENOMEM, "cannot merge %d databases", n_ranks);
	for (int i = 0; i < 2 * n_ranks && r >= 0; i++) {
		bool replicas = i % 2;
		char text[64];

		if (!(it->stores[i / 2] & (replicas ? BRINGS_REPLICAS : BRINGS_OWN)))
			continue;
		snprintf(text, sizeof(text), RANK_PREFIX "%s%d", replicas ? "replica_" : "", i / 2);
		r = course_add_database(a, text, ret);
	}
	return r >= 0 && it->any_exported ? course_add_database(a, RANK_PREFIX "joined", ret) : r;
}

struct publishing {
	struct course *c;
	struct sealing_item *desc;
	size_t n;
	struct commit *commit;
};

static int course_finish(void *arg)
{
	struct publishing *p = arg;
	struct course *c = p->c;
	bool verifies = c->d->env->options->verify_commit, reads = verifies;
	int r = 0;

	for (size_t i = 0; i < p->n; i++)
		reads |= draft_digests_wanted(p->desc[i].plan);
	/* A finished draft is read from where the values of all ranks are. */
	if (reads && c->ops->send)
		r = c->ops->send(c->d, p->commit->deadline_ns, NULL);
	if (r < 0)
		return r;
	if (verifies)
		r = draft_verify(c->d, p->desc, p->n);
	return r < 0 ? r : draft_digests(c->d, p->desc, p->n, p->commit);
}

/* Make the documents of an item, and list its databases. */
static int publish_item(const struct collective_plan *jp, struct collective_item *it,
			struct sealing_item *desc, struct ocdbt_parts *parts,
			struct commit_item *ret)
{
	bool is_tree = it->plan->kind == PLAN_TREE;
	int r;

	/* The plan is owned by the collective plan. */
	desc->plan = it->plan;
	r = is_tree ? sealing_item_describe(desc) : 0;
	if (r >= 0 && is_tree && it->plan->opts.ocdbt)
		r = name_databases(it, jp->n_ranks, &desc->arena, parts);
	*ret = (struct commit_item){ .name = span_str(it->plan->name),
				     .handler = it->handler,
				     .files = desc->file,
				     .n_files = desc->n_files,
				     .parts = parts->n ? parts : NULL };
	return r;
}

/* All values are durable: write the documents that describe them, and rename. */
static int course_publish(struct course *c, struct collective_plan *jp)
{
	auto_free struct sealing_item *desc = calloc(jp->n_items + 1, sizeof(*desc));
	auto_free struct commit_item *item = calloc(jp->n_items + 1, sizeof(*item));
	auto_free struct ocdbt_parts *parts = calloc(jp->n_items + 1, sizeof(*parts));
	auto_free char *custom = jp->custom.p ? span_dup_str(jp->custom) : NULL;
	struct publishing finishing = { .c = c, .desc = desc, .n = jp->n_items };
	const struct options *o = c->d->env->options;
	struct commit commit = {
		.ckpt = c->d->env->ckpt,
		.draft = c->d->dir,
		.items = item,
		.n_items = jp->n_items,
		.direct = c->d->is_item,
		.custom = custom,
		.dir_mode = (unsigned)o->mode,
		.deadline_ns = c->attempt.deadline,
		.replaces = c->d->replaces,
		.parts_in = jp->parts_in,
		.finish = course_finish,
		.finish_arg = &finishing,
		.publisher = c->d->env->driver->publisher,
		.publisher_arg = c,
	};
	int r = desc && item && parts ? 0 : fail(-ENOMEM, "cannot commit draft '%s'", c->d->name);

	for (size_t i = 0; i < jp->n_items && r >= 0; i++)
		r = publish_item(jp, &jp->item[i], &desc[i], &parts[i], &item[i]);
	finishing.commit = &commit;
	r = r < 0 ? r : commit_run(&commit);
	for (size_t i = 0; i < jp->n_items && desc; i++) {
		desc[i].plan = NULL;
		sealing_item_release(&desc[i]);
	}
	return r;
}

/* Join parts that fit no grid, where their ranks have brought them. */
static int course_join(struct course *c, struct collective_plan *jp, struct io_dir **values)
{
	bool any = false;
	int r = c->ops->open_values ? c->ops->open_values(c->d, values) : 0;

	if (r < 0)
		return r;
	jp->parts_in = *values;
	r = collective_items_join(jp);
	for (size_t i = 0; i < jp->n_items; i++)
		any |= jp->item[i].any_exported;
	return r < 0 || !any || !c->ops->send ? r : c->ops->send(c->d, c->attempt.deadline, NULL);
}

static int make_rounds(struct course *c, int r, struct collective_plan **jp,
		       struct buf **contributions, struct io_dir **values,
		       struct leftovers_dir *left)
{
	r = first_round(c, r, jp, contributions);
	if (r < 0)
		return r;
	r = collective_items_clean(*jp);
	if (r < 0)
		return r;
	r = send_assignments(c, *jp);
	if (r < 0)
		return r;
	r = second_round(c, *jp);
	if (r < 0)
		return r;
	r = course_join(c, *jp, values);
	if (r < 0)
		return r;
	r = collective_leftovers_move(*jp, left);
	return r < 0 ? r : course_publish(c, *jp);
}

static int run_rounds(struct course *c, int r)
{
	auto_of(io_dir) struct io_dir *values = NULL;
	auto_of(collective_plan) struct collective_plan *jp = NULL;
	struct leftovers_dir left = { 0 };
	struct buf *contributions = NULL;
	struct err_note note = { 0 };

	r = make_rounds(c, r, &jp, &contributions, &values, &left);
	err_save(r, &note);
	if (jp)
		collective_leftovers_end(jp, &left, r >= 0);
	/* The plan refers to the bytes of the contributions. */
	collective_plan_free(take(jp));
	release_all(contributions, c->j->peers->size);
	release_all(c->list, c->j->peers->size);
	return r < 0 ? err_restore(&note) : 0;
}

static int lead(struct course *c, int r)
{
	/* The result of the last attempt may not be known yet. */
	int resolved = c->ops->resolve ? c->ops->resolve(c->d) : 0;

	r = resolved == 0 ? run_rounds(c, r) : MIN(resolved, 0);
	c->undecided = r < 0 && c->ops->is_undecided && c->ops->is_undecided(c->d);
	collective_decide(c->j, &c->d->member, r, c->undecided);
	/* The others wait for the decision, so removing what was uploaded comes after it. */
	return c->ops->decided ? c->ops->decided(c, r) : r;
}

int draft_commit_collective(struct course *c, int r, int64_t deadline)
{
	struct draft *d = c->d;
	struct err_note note = { 0 };
	int found, begun;

	for (size_t i = 0; i < c->n && r >= 0; i++)
		if (plan_is_nested(c->item[i].plan))
			r = fail(
				-EOPNOTSUPP,
				"item '%.*s': the ranks of a job do not write items inside an item",
				SPAN_ARG(path_first(span_str(c->item[i].plan->name))));
	deadline = deadline ? deadline : INT64_MAX / 2;
	err_save(r, &note);
	c->j = d->env->collective;
	found = c->ops->find ? c->ops->find(d) : 0;
	begun = collective_begin(c->j, &d->member, d->dir->named, deadline);
	c->attempt = collective_attempt(c->j, &d->member, deadline);
	if (begun < 0 && !d->member.notified)
		return course_leave(c, ATTEMPT_FIRST_ROUND, begun);
	if (begun != 1) {
		/* The result of a missed attempt, for which this rank may have uploaded its values.
		 */
		c->sent = c->ops->is_undecided && c->ops->is_undecided(d);
		/* Without its record, that is not known. */
		c->undecided = c->ops->is_undecided && (d->member.undecided || begun == -ESTALE);
		return conclude(c, begun);
	}
	/* The other ranks wait for this vote, so errors must be sent to them too. */
	if (r < 0)
		err_restore(&note);
	else if (found != 0)
		r = found < 0 ? found : fail(-EEXIST, "'%s' is committed already", d->dir->final);
	return collective_is_primary(c->j) ? lead(c, r) : course_follow(c, r);
}
