/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_drivers.c - the drivers of commits by one process: to a directory, in place, to a bucket,
 * and to a bucket that is mounted.
 */
#include "handlers/commit/draft_drivers.h"

#include <sys/statvfs.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/item.h"
#include "core/step/step.h"
#include "handlers/draft/draft_upload.h"
#include "handlers/plan/copy_hints.h"

/* ---- a directory ---- */

int draft_check_new(const struct draft_env *env, struct span final)
{
	return step_check_new(env->ckpt->source, final, ckpt_needs_marker(env->ckpt));
}

static int directory_begin(struct draft *d, const char *final, unsigned mode)
{
	auto_buf name = { 0 };
	int r = draft_name_on_disk(d, final, &name);

	return r < 0 ? r :
		       draft_dir_begin(d->env->ckpt->source, buf_str(&name), final, mode, false,
				       &d->dir);
}

static int driver_in_place_begin(struct draft *d, const char *final, unsigned mode)
{
	return draft_dir_begin(d->env->ckpt->source, final, final, mode, false, &d->dir);
}

static int store_name(struct draft *d, char **ret)
{
	/* The arrays of a draft that is itself an item are at its top. */
	if (d->is_item)
		return 0;
	/* The number is used up even on failure: the commit removes whatever a failure leaves. */
	*ret = str_fmt(".pytreefs-item-%u", d->n_stores++);
	return *ret ? 0 : fail(-ENOMEM, "cannot write to '%s'", d->name);
}

int draft_set_final(struct draft *d, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return fail(-ENOMEM, "cannot commit '%s'", d->name);
	pthread_mutex_lock(&d->lock);
	free(d->dir->final);
	d->dir->final = copy;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int set_free_final(struct draft *d, const char *name)
{
	struct stat st;
	int r = d->replaces ? -ENOENT : io_stat(d->env->ckpt->source, name, &st);

	if (r >= 0)
		return fail(-EEXIST, "there is a '%s' already", name);
	if (r != -ENOENT)
		return r;
	err_clear();
	return draft_set_final(d, name);
}

int draft_keep_final(struct draft *d, const char *name)
{
	return strcmp(name, d->dir->final) ?
		       fail(-EPERM, "draft '%s' is written in place and can only become '%s'",
			    d->name, d->dir->final) :
		       0;
}

int draft_open_finished(struct draft *d, const char *path, struct item **ret)
{
	auto_free char *below = str_fmt("%s%s%s", d->dir->name, *path ? "/" : "", path);

	return below ? item_open_in(d->env->ckpt, d->dir->parent, below, ret) :
		       fail(-ENOMEM, "cannot open '%s'", d->name);
}

static int directory_remove(struct draft *d)
{
	return draft_dir_remove(d->dir);
}

void draft_leave_directory(struct draft *d)
{
	log_warn("draft '%s' was not committed; what was written stays in '%s'", d->name,
		 d->dir->name);
}

const struct commit_driver directory_driver = {
	.begin = directory_begin,
	.store_name = store_name,
	.set_final = set_free_final,
	.commit = commit_whole,
	.publisher = &publish_by_rename,
	.open_finished = draft_open_finished,
	.remove = directory_remove,
	.leave = draft_leave_directory,
	.writable_of = 0222,
};

const struct commit_driver in_place_driver = {
	.check_new = draft_check_new,
	.begin = driver_in_place_begin,
	.store_name = store_name,
	.set_final = draft_keep_final,
	.commit = commit_whole,
	.publisher = &publish_by_marker,
	.open_finished = draft_open_finished,
	.remove = directory_remove,
	.leave = draft_leave_directory,
	.writable_of = 0222,
};

/* ---- a bucket ---- */

/* The files of the draft are removed from this machine. */
bool draft_moves_all(const struct plan *p)
{
	return true;
}

/*
 * A bucket has no known amount of space, and programs do not write where none is free. These are
 * the numbers of goofys (1 PiB, 1e9 files); gcsfuse has 1 PiB, too.
 */
void draft_space_of_bucket(struct statvfs *ret)
{
	ret->f_blocks = ret->f_bfree = ret->f_bavail = (1ull << 50) / ret->f_frsize;
	ret->f_files = ret->f_ffree = ret->f_favail = 1000000000;
}

int draft_refuse_replace(const char *path)
{
	return fail(-EINVAL, "'%s': a step in a bucket is not replaced", path);
}

const struct commit_driver bucket_driver = {
	.check_new = draft_check_new,
	.begin = draft_upload_begin,
	.store_name = store_name,
	.watch = draft_upload_watch,
	.set_final = draft_keep_final,
	.moves_chunks = draft_moves_all,
	.commit = commit_whole,
	.publisher = &publish_by_upload,
	.open_finished = draft_open_finished,
	.committed = draft_upload_end,
	.remove = draft_upload_end,
	.leave = draft_upload_leave,
	.writable = 0200,
	.space = draft_space_of_bucket,
	.check_replace = draft_refuse_replace,
	.threads = STORE_UPLOAD_THREADS,
};

const struct commit_driver mounted_driver = {
	.check_new = draft_check_new,
	.begin = draft_copy_begin,
	.store_name = store_name,
	.set_final = draft_keep_final,
	.moves_chunks = draft_moves_all,
	.commit = commit_whole,
	.publisher = &publish_by_copy,
	.open_finished = draft_open_finished,
	.committed = draft_upload_end,
	.remove = draft_upload_end,
	.leave = draft_upload_leave,
	.writable = 0200,
	.check_replace = draft_refuse_replace,
};
