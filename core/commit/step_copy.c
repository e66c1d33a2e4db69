/* SPDX-License-Identifier: Apache-2.0 */
/* step_copy.c - copies the files of a draft one after the other, the marker last. */
#include "core/commit/step_copy.h"

#include <dirent.h>
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/commit/commit.h"
#include "core/io/bucket_mount.h"

struct copying {
	const struct step_copy *c;
	struct io_dir *to;
};

static int copy_entry_own(void *arg, const char *path, unsigned char type)
{
	const struct copying *copy = arg;
	const struct step_copy *c = copy->c;
	auto_of(io_file) struct io_file *from = NULL, *to = NULL;
	int r;

	if (!strcmp(path_last(path), DRAFT_LOCK_FILE))
		return 1;
	if (type == DT_DIR)
		return io_dirop(copy->to, IO_MKDIR, path, NULL, c->dir_mode);
	r = c->check(c->arg);
	if (r < 0)
		return r;
	r = io_file_open(c->from, path, O_RDONLY, 0, &from);
	if (r < 0)
		return r;
	r = io_file_open(copy->to, path, O_WRONLY | O_CREAT | O_EXCL, IO_FILE_MODE, &to);
	if (r < 0)
		return r;
	r = io_copy_range(from, to, 0, from->size);
	return r < 0 ? r : io_file_finish(to);
}

static bool is_lock_file(void *arg, const char *name)
{
	return !strcmp(name, DRAFT_LOCK_FILE);
}

int step_copy_remove(struct io_dir *source, const char *name, struct io_file *lock)
{
	auto_of(io_file) struct io_file *held = lock;
	auto_of(io_dir) struct io_dir *dir = NULL;
	int r = io_dir_sub(source, name, &dir);

	if (r < 0)
		return r;
	r = io_remove_entries(dir, ".", is_lock_file, NULL);
	if (!source->bucket->uploads_later)
		io_file_unref(take(held));
	return r < 0 ? r : io_remove_tree(source, name);
}

/*
 * Remove what was copied, the marker first, which may be there though its writing failed. What
 * belongs to another writer by now stays.
 */
static void copy_undo(const struct step_copy *c, struct draft_dir *place)
{
	int r = draft_dir_check(place);

	if (r == -EEXIST || r == -EBUSY)
		return;
	if (r >= 0)
		r = io_dirop(place->dir, IO_UNLINK, "commit_success.txt", NULL, 0);
	if (r >= 0 || r == -ENOENT)
		r = step_copy_remove(c->source, c->final, take(place->lock));
	if (r < 0)
		log_warn("'%s/%s' is incomplete, and remains for `pytreefs gc`: %s",
			 c->source->path, c->final, err_text(r));
}

static int copy_into(const struct step_copy *c, struct draft_dir *place)
{
	struct copying copy = { c, place->dir };
	int r = io_walk(c->from, ".", false, copy_entry_own, &copy);

	if (r < 0)
		return r;
	r = draft_dir_check(place);
	if (r < 0)
		return r;
	r = c->check(c->arg);
	if (r < 0)
		return r;
	r = commit_write_marker(place->dir, c->source, c->final, "commit_success.txt");
	/* Locks do not reach other machines, which may have taken the place. */
	return r < 0 ? r : draft_dir_check(place);
}

int step_copy_run(const struct step_copy *c)
{
	auto_of(draft_dir) struct draft_dir *place = NULL;
	struct err_note why;
	int r = draft_dir_begin(c->source, c->final, c->final, c->dir_mode, false, &place);

	if (r < 0)
		return r;
	r = copy_into(c, place);
	if (r < 0) {
		err_save(r, &why);
		copy_undo(c, place);
		return err_restore(&why);
	}
	r = draft_dir_unmark(place);
	if (r < 0)
		log_warn("cannot remove '%s/%s/" DRAFT_LOCK_FILE "': %s", c->source->path, c->final,
			 err_text(r));
	return 0;
}
