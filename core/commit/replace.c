/* SPDX-License-Identifier: Apache-2.0 */
/* replace.c - exchange the names of a draft and of the checkpoint that it replaces. */
#include "core/commit/replace.h"

#include "core/base/err.h"
#include "core/step/detect.h"
#include "core/step/step_name.h"

/*
 * Exchange the names of the draft, which is called `from`, and of what has its final name. *ret_old
 * is the new name of that.
 */
static int exchange(struct draft_dir *d, const char *from, char **ret_old)
{
	auto_free char *old = strdup(from);
	struct err_note why;
	int r = old ? io_dirop(d->parent, IO_EXCHANGE, from, d->final, 0) :
		      fail(-ENOMEM, "cannot replace '%s'", d->final);

	if (r == -EINVAL) {
		/* The file system exchanges no names: rename both. */
		err_clear();
		free(take(old));
		r = draft_dir_move_away(d->parent, d->final, d->final, DRAFT_OLD, &old);
		if (r < 0)
			return r;
		r = io_dirop(d->parent, IO_RENAME_NEW, from, d->final, 0);
		if (r < 0) {
			err_save(r, &why);
			if (io_dirop(d->parent, IO_RENAME_NEW, old, d->final, 0) < 0)
				return fail(r, "%s; what was there is now '%s'", why.text, old);
			return err_restore(&why);
		}
	}
	if (r >= 0)
		*ret_old = take(old);
	return r;
}

/*
 * A directory of steps may not be replaced, unless it is empty, and neither may one that is taken
 * for a step only because of what is in it: it may be a project with checkpoints in it. st_nlink
 * does not tell whether there are directories, since it is always 1 on some file systems.
 */
int replace_check(struct io_dir *parent, const char *name, const struct stat *st, const char *path)
{
	enum shape shape;
	struct stat above;
	int r;

	if (!S_ISDIR(st->st_mode))
		return fail(-EEXIST, "'%s' is not a directory: only checkpoints are replaced",
			    path);
	r = io_stat(parent, ".", &above);
	if (r < 0)
		return r;
	if (st->st_dev != above.st_dev)
		return fail(-EBUSY,
			    "'%s' is a mount point: it cannot be replaced; unmount it, or choose "
			    "another name",
			    path);
	r = detect_shape(parent, name, NULL, &shape);
	if (r >= 0 && shape == SHAPE_ROOT) {
		r = io_dir_is_empty(parent, name);
	} else if (r >= 0 && shape == SHAPE_STEP) {
		r = detect_marked(parent, name, &shape);
		r = r < 0 ? r : shape == SHAPE_STEP;
	} else if (r >= 0) {
		r = 1;
	}
	if (r == -EINVAL || r == 0)
		return fail(-EEXIST, "'%s' is not a checkpoint: only those are replaced", path);
	return MIN(r, 0);
}

int replace_rename(struct draft_dir *d, char **ret_old)
{
	auto_free char *staged = NULL;
	enum draft_state state;
	struct err_note why;
	struct stat st;
	int r = io_stat(d->parent, d->final, &st);

	if (r < 0)
		return r;
	/* The target may have changed since the draft was begun. */
	r = draft_dir_state(d->parent, d->final, &state);
	if (r < 0)
		return r;
	if (state == DRAFT_LIVE)
		return fail(-EBUSY, "'%s' is being written by another process", d->final);
	r = replace_check(d->parent, d->final, &st, d->final);
	if (r < 0)
		return r;
	r = draft_dir_move_away(d->parent, d->name, d->final, DRAFT_REMOVED, &staged);
	if (r < 0)
		return r;
	r = exchange(d, staged, ret_old);
	if (r >= 0)
		return 0;
	/*
	 * Give the draft its name back, unless another writer has begun a draft of that name
	 * meanwhile. The draft then keeps this one, which its lock protects.
	 */
	err_save(r, &why);
	if (io_dirop(d->parent, IO_RENAME_NEW, staged, d->name, 0) >= 0)
		return err_restore(&why);
	r = fail(r, "%s; the draft is now '%s'", why.text, staged);
	free(d->name);
	d->name = take(staged);
	return r;
}

int replace_undo(struct draft_dir *d, const char *old)
{
	auto_free char *made = NULL;
	int r = exchange(d, old, &made);

	return r < 0 ? r : io_dirop(d->parent, IO_RENAME_NEW, made, d->name, 0);
}

int replace_end(struct draft_dir *d, const char *old)
{
	const char *mark = (const char *)step_name_rest(span_str(old)).p;
	auto_free char *gone = NULL;

	/* After a crash, gc removes what has such a name. */
	if (!strncmp(mark, DRAFT_OLD, strlen(DRAFT_OLD)))
		draft_dir_move_away(d->parent, old, d->final, DRAFT_REMOVED, &gone);
	return io_remove_tree(d->parent, gone ? gone : old);
}
