/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_driver.c - the drivers of commits by the ranks of a job, over a directory and over a bucket.
 */
#include "handlers/job/job_driver.h"

#include "core/base/err.h"
#include "handlers/commit/draft_drivers.h"
#include "handlers/draft/draft_upload.h"

bool job_slices(const struct draft_env *env, const struct array_type *t, struct slices *ret)
{
	const struct options *o = env->options;
	const struct collective *j = env->collective;
	unsigned n = j->n_active, own = 0;
	uint64_t bytes = dtype_info(t->dtype)->size;

	if (o->replica_parallel_max)
		n = (unsigned)MIN((uint64_t)n, o->replica_parallel_max);
	for (unsigned i = 0; i < t->rank; i++)
		bytes *= t->shape[i];
	if (!o->replica_parallel || n < 2 || !bytes || bytes / n < o->replica_parallel_min_bytes)
		return false;
	for (int i = 0; i < j->peers->rank; i++)
		own += j->active[i];
	/* The first axis that divides evenly, as in Orbax. */
	for (unsigned i = 0; i < t->rank; i++)
		if (t->shape[i] % n == 0) {
			*ret = (struct slices){ n, i, own, o->replica_parallel_separate };
			return true;
		}
	return false;
}

/* Ranks may share the directory, so each name contains the rank. */
static int rank_store_name(struct draft *d, char **ret)
{
	*ret = str_fmt(".pytreefs-item-%d-%u", d->env->collective->peers->rank, d->n_stores++);
	return *ret ? 0 : fail(-ENOMEM, "cannot write to '%s'", d->name);
}

/* Another rank than the primary may have no file of it. */
static bool rank_has_part(const struct draft *d)
{
	return collective_is_primary(d->env->collective) || d->root->n_children;
}

/* Ranks collect their chunks in directories. */
static bool rank_moves_chunks(const struct plan *p)
{
	return !p->opts.ocdbt;
}

static bool primary_runs_on_commit(const struct draft_env *env)
{
	return collective_is_primary(env->collective);
}

static void leave_job(struct draft *d, bool aborted)
{
	collective_leave(d->env->collective, &d->member, aborted);
}

const struct commit_driver job_directory_driver = {
	.begin = job_directory_begin,
	.plans_part = true,
	.slices = job_slices,
	.store_name = rank_store_name,
	.set_final = draft_set_final,
	.has_part = rank_has_part,
	.moves_chunks = rank_moves_chunks,
	.commit = job_directory_commit,
	.publisher = &publish_by_rename,
	.open_finished = draft_open_finished,
	.runs_on_commit = primary_runs_on_commit,
	.remove = job_directory_remove,
	.leave = draft_leave_directory,
	.ended = leave_job,
	.writable_of = 0222,
};

const struct commit_driver job_bucket_driver = {
	.check_new = draft_check_new,
	.begin = job_bucket_begin,
	.plans_part = true,
	.place = &job_bucket_place,
	.slices = job_slices,
	.store_name = rank_store_name,
	.watch = job_bucket_watch,
	.set_final = draft_keep_final,
	.has_part = rank_has_part,
	.moves_chunks = draft_moves_all,
	.commit = job_bucket_commit,
	.publisher = &publish_by_job_upload,
	.open_finished = job_bucket_open_finished,
	.runs_on_commit = primary_runs_on_commit,
	.committed = job_bucket_end,
	.remove = job_bucket_end,
	.leave = job_bucket_leave,
	.ended = leave_job,
	.writable = 0200,
	.space = draft_space_of_bucket,
	.check_replace = draft_refuse_replace,
	.threads = STORE_UPLOAD_THREADS,
};

static int refuse_mounted(struct draft *d, const char *final, unsigned mode)
{
	int r = draft_upload_prepare(d);

	return r < 0 ? r :
		       fail(-EOPNOTSUPP, "'%s': ranks of a job share no drafts there: %s", d->name,
			    draft_uploads_remark(d->env->uploads));
}

/* Only reads: no draft begins. */
static const struct commit_driver job_mounted_driver = {
	.check_new = draft_check_new,
	.begin = refuse_mounted,
	.writable = 0200,
	.check_replace = draft_refuse_replace,
};

int job_driver_over(const struct commit_driver *single, const struct commit_driver **ret)
{
	static const struct {
		const struct commit_driver *single, *job;
	} drivers[] = { { &directory_driver, &job_directory_driver },
			{ &bucket_driver, &job_bucket_driver },
			{ &mounted_driver, &job_mounted_driver } };

	for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
		if (drivers[i].single == single) {
			*ret = drivers[i].job;
			return 0;
		}
	return fail(-EINVAL, "atomicity=commit_file: ranks share drafts by renaming them");
}
