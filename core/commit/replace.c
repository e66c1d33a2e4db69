/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.c - exchange the names of a draft and of the checkpoint that it replaces.
 */
#include "core/commit/replace.h"

#include "core/base/err.h"
#include "core/step/detect.h"
#include "core/step/step_name.h"

/* Exchange by renames. *ret_old is the new name of what had the final name. */
static int rename_both(struct draft_dir *d, const char *from, char **ret_old)
{
	auto_free char *old = NULL;
	struct err_note why;
	int r = draft_dir_move_away(d->parent, d->final, d->final, DRAFT_OLD, &old);

	if (r < 0)
		return r;
	r = io_dirop(d->parent, IO_RENAME_NEW, from, d->final, 0);
	if (r < 0) {
		err_save(r, &why);
		if (io_dirop(d->parent, IO_RENAME_NEW, old, d->final, 0) < 0)
			return fail(r, "%s; what was there is now '%s'", why.text, old);
		return err_restore(&why);
	}
	*ret_old = take(old);
	return 0;
}

static int exchange(struct draft_dir *d, const char *from, char **ret_old)
{
	char *old = strdup(from);
	int r = old ? io_dirop(d->parent, IO_EXCHANGE, from, d->final, 0) :
		      fail(-ENOMEM, "cannot replace '%s'", d->final);

	if (r < 0)
		free(old);
	else
		*ret_old = old;
	if (r != -EINVAL)
		return r;
	err_clear();
	return rename_both(d, from, ret_old);
}

/*
 * Give the draft its name back, unless another writer has begun a draft of that name meanwhile. The
 * draft then keeps this one, which its lock protects.
 */
static int rename_back(struct draft_dir *d, char **from, int r)
{
	struct err_note why;

	err_save(r, &why);
	if (io_dirop(d->parent, IO_RENAME_NEW, *from, d->name, 0) >= 0)
		return err_restore(&why);
	r = fail(r, "%s; the draft is now '%s'", why.text, *from);
	free(d->name);
	d->name = take(*from);
	return r;
}

/*
 * Whether what was detected may be replaced as a whole: 1 or 0. A directory of steps may not be,
 * unless it is empty, and neither may one that is taken for a step only because of what is in it:
 * it may be a project with checkpoints in it. st_nlink does not tell whether there are directories,
 * since it is always 1 on some file systems.
 */
static int is_replaceable(struct io_dir *parent, const char *name, enum shape shape)
{
	int r;

	if (shape == SHAPE_ROOT)
		return io_dir_is_empty(parent, name);
	if (shape != SHAPE_STEP)
		return 1;
	r = detect_marked(parent, name, &shape);
	return r < 0 ? r : shape == SHAPE_STEP;
}

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
	if (r >= 0)
		r = is_replaceable(parent, name, shape);
	if (r == -EINVAL || r == 0)
		return fail(-EEXIST, "'%s' is not a checkpoint: only those are replaced", path);
	return MIN(r, 0);
}

/* The target may have changed since the draft was begun. */
static int replace_check_final(struct draft_dir *d)
{
	enum draft_state state;
	struct stat st;
	int r = io_stat(d->parent, d->final, &st);

	if (r < 0)
		return r;
	r = draft_dir_state(d->parent, d->final, &state);
	if (r < 0)
		return r;
	if (state == DRAFT_LIVE)
		return fail(-EBUSY, "'%s' is being written by another process", d->final);
	return replace_check(d->parent, d->final, &st, d->final);
}

int replace_rename(struct draft_dir *d, char **ret_old)
{
	auto_free char *staged = NULL;
	int r = replace_check_final(d);

	if (r < 0)
		return r;
	r = draft_dir_move_away(d->parent, d->name, d->final, DRAFT_REMOVED, &staged);
	if (r < 0)
		return r;
	r = exchange(d, staged, ret_old);
	return r < 0 ? rename_back(d, &staged, r) : 0;
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
