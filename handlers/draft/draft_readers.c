/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_readers.c - lets programs that have a file open read it after a commit has moved its
 * chunks.
 *
 * The chunks of parts become chunks of the whole array, arrays of the legacy file have no chunks in
 * the step, and ranks rename the files of arrays that are directories.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "handlers/draft/draft_file.h"

/* Called with the file's lock held. */
static void retain(struct draft_file *f)
{
	int r;

	/* Contents at other places are not touched by the commit. */
	if (!f->readers || f->place != PLACE_STORED || f->retained)
		return;
	r = draft_file_copy_contents(f, &f->retained);
	if (r < 0) {
		log_warn("'%s' is open, and cannot be read after the commit: %s", f->node->name,
			 err_text(r));
		err_clear();
	}
}

int draft_file_used(struct draft_file *f, bool begins)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	f->readers += begins ? 1 : -1;
	if (begins && f->moving)
		retain(f);
	if (begins && f->moved)
		return fail(-ESTALE, "'%s' is part of a committed array now", f->node->name);
	return 0;
}

void draft_file_keep(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	f->moving = true;
	retain(f);
}

void draft_file_moved(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	f->moving = false;
	if (f->place == PLACE_STORED && f->retained) {
		draft_arrays_release(f);
		buf_release(&f->head);
		f->staged = take(f->retained);
		f->place = PLACE_STAGED;
	} else if (f->place == PLACE_STORED) {
		f->moved = true;
	}
}

void draft_file_stays(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	f->moving = false;
	io_file_unref(take(f->retained));
}
