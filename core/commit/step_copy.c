/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_copy.c - copies the files of a draft one after the other, the marker last.
 */
#include "core/commit/step_copy.h"

#include <dirent.h>
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/commit/draft_dir.h"
#include "core/io/bucket_mount.h"

struct level {
	const struct step_copy *c;
	struct io_dir *to;
	const char *rel; /* the directory that is being copied */
};

static int copy_file(const struct level *l, const char *rel)
{
	auto_of(io_file) struct io_file *from = NULL, *to = NULL;
	int r = l->c->check(l->c->arg);

	if (r < 0)
		return r;
	r = io_file_open(l->c->from, rel, O_RDONLY, 0, &from);
	if (r < 0)
		return r;
	r = io_file_open(l->to, rel, O_WRONLY | O_CREAT | O_EXCL, IO_FILE_MODE, &to);
	if (r < 0)
		return r;
	r = io_copy_range(from, to, 0, from->size);
	return r < 0 ? r : io_file_finish(to);
}

/* The depth is bounded, since only drafts of our own making are copied. */
static int copy_entry_own(void *arg, const char *name, unsigned char type)
{
	const struct level *up = arg;
	auto_free char *rel = NULL;
	struct level below = *up;
	int r;

	if (!strcmp(name, DRAFT_LOCK_FILE))
		return 0;
	r = path_join(up->rel, span_str(name), &rel);
	if (r < 0)
		return fail(r, "cannot copy '%s'", name);
	if (type != DT_DIR)
		return copy_file(up, rel);
	below.rel = rel;
	r = io_dirop(up->to, IO_MKDIR, rel, NULL, up->c->dir_mode);
	return r < 0 ? r : io_list(up->c->from, rel, copy_entry_own, &below);
}

static int copy_write_marker(const struct step_copy *c, struct io_dir *to)
{
	auto_buf text = { 0 };
	int r = buf_addf(&text, "Checkpoint commit was successful to %s/%s", c->source->path,
			 c->final);

	if (r < 0)
		return r;
	r = c->check(c->arg);
	return r < 0 ? r : io_write_file(to, "commit_success.txt", buf_span(&text));
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
	struct level top = { .c = c, .to = place->dir, .rel = "." };
	int r = io_list(c->from, ".", copy_entry_own, &top);

	if (r < 0)
		return r;
	r = draft_dir_check(place);
	if (r < 0)
		return r;
	r = copy_write_marker(c, place->dir);
	/* Locks do not reach other machines, which may have taken the place. */
	return r < 0 ? r : draft_dir_check(place);
}

int step_copy_run(const struct step_copy *c)
{
	auto_of(draft_dir) struct draft_dir *place = NULL;
	struct err_note why;
	int r = draft_dir_begin(c->source, c->final, c->final, c->dir_mode, &place);

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
