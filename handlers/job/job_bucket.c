/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_bucket.c - a draft that the ranks of a job write to a bucket.
 *
 * The primary claims the place of the step for all of them. Each rank has a local directory with
 * its own files, and uploads these in the second round. Nothing can be renamed, so nobody can stop
 * a late primary: a rank that does not know the result keeps its objects until it does.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/io/io_store.h"
#include "core/step/item.h"
#include "handlers/draft/draft_upload.h"
#include "handlers/job/draft_collective.h"

/* ---- beginning and ending ---- */

static int claim_place(void *arg, const char *final, void **ret_place, struct buf *ret)
{
	auto_of(step_upload) struct step_upload *u = NULL;
	int r = draft_upload_claim(arg, final, span_of(NULL, 0), &u);

	if (r < 0)
		return r;
	r = buf_add_span(ret, step_upload_claim(u));
	if (r < 0)
		return r;
	*ret_place = take(u);
	return 0;
}

static void release_place(void *arg, void *place)
{
	step_upload_free(place);
}

const struct collective_place_ops job_bucket_place = { .claim = claim_place,
						       .release = release_place };

/* Remove what a failed attempt has sent. */
static void drop_objects(const struct draft *d, struct step_upload *u)
{
	struct err_note left;
	int r = step_upload_drop(u);

	if (r >= 0)
		return;
	err_save(r, &left);
	log_warn("objects of draft '%s' stay behind: %s", d->name, left.text);
}

/* The primary's upload belongs to the record of the draft. */
static void release_upload(struct draft *d)
{
	struct step_upload *u = take(d->upload);

	if (!collective_is_primary(d->env->collective))
		step_upload_free(u);
	else if (u)
		drop_objects(d, u);
}

/* Join the draft, and make this rank's own directory for it. */
static int bucket_join(struct draft *d, struct io_dir *spill, const char *final, unsigned mode)
{
	struct collective *j = d->env->collective;
	auto_buf claimed = { 0 }, name = { 0 };
	struct err_note why;
	int64_t init_ns;
	int r = collective_join(j, final, final, 0, &d->member, &init_ns, &claimed);

	if (r < 0)
		return r;
	if (collective_is_primary(j)) {
		d->upload = collective_place(j, &d->member);
		r = d->upload ? 0 : fail(-ESTALE, "draft '%s' is gone", d->name);
	} else if (!claimed.n) {
		r = fail(-EINVAL, "draft '%s': the primary rank has sent no claim", d->name);
	} else {
		r = draft_upload_claim(d->env->uploads, final, buf_span(&claimed), &d->upload);
	}
	r = r < 0 ? r : draft_name_on_disk(d, final, &name);
	r = r < 0 ? r : draft_dir_begin(spill, buf_str(&name), final, mode, true, &d->dir);
	if (r >= 0) {
		d->dir->init_ns = init_ns;
		return 0;
	}
	err_save(r, &why);
	release_upload(d);
	collective_leave(j, &d->member, true);
	return err_restore(&why);
}

int job_bucket_begin(struct draft *d, const char *final, unsigned mode)
{
	struct io_dir *spill;
	int r = draft_upload_spill(d, &spill);

	if (r < 0)
		return r;
	r = bucket_join(d, spill, final, mode);
	if (r >= 0)
		draft_upload_set_sender(d);
	return r;
}

/* Each rank has a database of its own (collective_values.c). */
int job_bucket_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret)
{
	char database[64];

	snprintf(database, sizeof(database), RANK_PREFIX "%s%d/", replicas ? "replica_" : "",
		 item->draft->env->collective->peers->rank);
	return draft_upload_watch_in(item, database, ret);
}

int job_bucket_end(struct draft *d)
{
	release_upload(d);
	draft_upload_remove_spill(d);
	return 0;
}

void job_bucket_leave(struct draft *d)
{
	log_warn("draft '%s' was not committed, and was removed", d->name);
	job_bucket_end(d);
}

/* ---- an attempt ---- */

static int send_files(struct draft *d, int64_t deadline, struct buf *list)
{
	struct uploading u = { d, deadline };
	int r = 0;

	d->unknown_at = 0;
	/*
	 * An attempt whose result this rank did not know has failed: before another one, the
	 * primary has found out.
	 */
	if (step_upload_state(d->upload) == UPLOAD_COMMITTING) {
		step_upload_set_state(d->upload, UPLOAD_CLAIMED);
		r = step_upload_drop(d->upload);
	}
	r = r < 0 ? r : step_upload_send(d->upload, d->dir->dir, draft_upload_check, &u);
	io_store_refresh(d->env->ckpt->io);
	/* At the first attempt nothing can be there that nobody sent for it. */
	return r < 0 || !list || d->member.attempt <= 1 ? r : step_upload_list(d->upload, list);
}

static int open_step(struct draft *d, struct io_dir **ret)
{
	io_store_refresh(d->env->ckpt->io);
	return io_dir_sub(d->env->ckpt->source, d->dir->final, ret);
}

/* Upload the remaining files, remove what failed attempts have left, and put the marker. */
static int publish_job_upload(struct commit *commit)
{
	struct course *c = commit->publisher_arg;
	struct draft *d = c->d;
	struct uploading u = { d, commit->deadline_ns };
	int r = draft_dir_check(d->dir);

	if (r < 0)
		return r;
	r = step_upload_send(d->upload, d->dir->dir, draft_upload_check, &u);
	if (r >= 0 && d->member.attempt > 1)
		r = step_upload_remove_others(d->upload, c->list, (size_t)c->j->peers->size);
	r = r < 0 ? r : step_upload_commit_shared(d->upload, draft_upload_check, &u);
	io_store_refresh(d->env->ckpt->io);
	return r;
}

const struct commit_publisher publish_by_job_upload = { .publish = publish_job_upload };

/* Ranks have their values in directories of their own; all of them are in the bucket. */
int job_bucket_open_finished(struct draft *d, const char *path, struct item **ret)
{
	auto_free char *below = str_fmt("%s%s%s", d->dir->final, *path ? "/" : "", path);

	return below ? item_open(d->env->ckpt, below, ret) :
		       fail(-ENOMEM, "cannot open '%s'", d->name);
}

static bool is_undecided(struct draft *d)
{
	enum upload_state state = step_upload_state(d->upload);

	return state != UPLOAD_CLAIMED && state != UPLOAD_EMPTYING;
}

static void note_decision(struct draft *d, int r)
{
	struct err_note why;

	err_save(r, &why);
	/* The primary knows better whether there may be a marker. */
	if (!collective_is_primary(d->env->collective))
		step_upload_set_state(d->upload, r < 0 ? UPLOAD_CLAIMED : UPLOAD_COMMITTED);
	if (r < 0)
		drop_objects(d, d->upload);
	else
		io_store_refresh(d->env->ckpt->io);
	err_restore(&why);
}

/* After a refusal in the first round, what was uploaded while it was written is still good. */
static int job_decided(struct course *c, int r)
{
	if (c->undecided)
		draft_upload_set_unknown(c->d);
	if (r >= 0 || c->sent)
		note_decision(c->d, r);
	return r < 0 ? r : draft_upload_check_same(c->d);
}

/*
 * The primary may put the marker later than this rank looks for it. As long as this rank has not
 * uploaded its values, it cannot.
 */
static int give_up_by_marker(struct course *c, const struct err_note *why)
{
	struct draft *d = c->d;
	int found;

	if (!c->undecided) {
		d->dir->named = d->member.attempt + 1;
		collective_give_up(c->j, &d->member);
	}
	if (c->attempt.round != ATTEMPT_SECOND_ROUND && !c->undecided &&
	    step_upload_state(d->upload) != UPLOAD_COMMITTING)
		return err_restore(why);
	draft_upload_set_unknown(d);
	step_upload_set_state(d->upload, UPLOAD_COMMITTING);
	found = step_upload_is_committed(d->upload);
	if (found > 0) {
		log_warn("'%s' was committed, and rank %d did not say so", d->dir->final,
			 c->j->primary);
		note_decision(d, 0);
		return draft_upload_check_same(d);
	}
	err_clear();
	return c->undecided ? err_restore(why) :
			      fail(why->code, "whether '%s' is committed is not known yet: %s",
				   d->dir->final, why->text);
}

static int resolve_upload(struct draft *d)
{
	return step_upload_resolve(d->upload);
}

static const struct attempt_ops by_marker = {
	.resolve = resolve_upload,
	.clean = collective_clean_own,
	.send = send_files,
	.open_values = open_step,
	.give_up = give_up_by_marker,
	.is_undecided = is_undecided,
	.decided = job_decided,
};

int job_bucket_commit(struct draft *d, struct sealing_item *item, size_t n, struct span custom,
		      int r, int64_t deadline)
{
	struct course c = { .d = d, .ops = &by_marker, .item = item, .n = n, .custom = custom };

	return draft_commit_collective(&c, r, deadline);
}
