/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c - seal the items, write metadata and markers, rename, and sync the parent directory.
 *
 * Invariant: a reference is written only after its target is durable: values before nodes, nodes
 * before the manifest, arrays before `_METADATA`, items before the metadata of the step, all of
 * these before the rename, and the rename before success is reported. Every part may be repeated:
 * after a failed commit the draft remains usable.
 */
#include "core/commit/commit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/commit/replace.h"
#include "core/commit/seal.h"
#include "core/commit/step_copy.h"
#include "core/io/bucket_mount.h"
#include "core/step/step_meta.h"
#include "core/commit/tidy.h"

#define RENAME_TRIES 10 /* while another process makes and removes steps of that name */

int commit_check_deadline(const char *final, int64_t deadline_ns)
{
	if (deadline_ns && clock_ns() > deadline_ns)
		return fail(-ETIMEDOUT, "commit of '%s' took longer than commit_timeout", final);
	return 0;
}

static int check_deadline(const struct commit *c)
{
	return commit_check_deadline(c->draft->final, c->deadline_ns);
}

static int print_step_meta(const struct commit *c, struct buf *ret)
{
	auto_free struct step_item *items = calloc(c->n_items ? c->n_items : 1, sizeof(*items));
	struct step_meta m = {
		.kind = c->direct ? STEP_ITEMS_ONE : STEP_ITEMS_MAP,
		.items = items,
		.has_init = true,
		.has_commit = true,
		.init_ns = c->draft->init_ns,
		.commit_ns = clock_real_ns(),
		.custom = c->custom,
	};
	int r;

	if (!items)
		return fail(-ENOMEM, "cannot commit '%s'", c->draft->final);
	for (size_t i = 0; i < c->n_items; i++) {
		if (!c->items[i].handler.p)
			continue;
		if (c->direct)
			m.handler = c->items[i].handler;
		/* Of an item inside another, the handler is recorded for the outer one. */
		items[m.n_items++] =
			(struct step_item){ path_first(c->items[i].name), c->items[i].handler };
	}
	r = step_meta_print(&m, ret);
	if (r < 0 || ret->n <= LIMIT_STEP_FILE)
		return r;
	/* A document that readers would refuse is not written. */
	return fail(-EINVAL,
		    "'_CHECKPOINT_METADATA' of '%s' would have %zu bytes, the limit is %llu",
		    c->draft->final, ret->n, (unsigned long long)LIMIT_STEP_FILE);
}

int commit_write_marker(struct io_dir *dir, const struct io_dir *source, const char *where,
			const char *file)
{
	auto_buf text = { 0 };
	int r = buf_addf(&text, "Checkpoint commit was successful to %s/%s", source->path, where);

	return r < 0 ? r : io_write_file(dir, file, buf_span(&text));
}

static int mark_items(struct commit *c)
{
	int r;

	for (size_t i = 0; i < c->n_items; i++) {
		auto_free char *dir = span_dup_str(c->items[i].name);
		auto_free char *where = dir ? str_fmt("%s/%s", c->draft->name, dir) : NULL;
		auto_free char *file = dir ? str_fmt("%s/commit_success.txt", dir) : NULL;

		if (!where || !file)
			return fail(-ENOMEM, "cannot commit '%s'", c->draft->final);
		/*
		 * The checkpoint itself, or files beside its items; a directory that is not an
		 * item of Orbax has just the files that it had.
		 */
		if (!*dir || !c->items[i].handler.p)
			continue;
		r = commit_write_marker(c->draft->dir, c->ckpt->source, where, file);
		if (r < 0)
			return r;
		r = io_dirop(c->draft->dir, IO_SYNC_DIR, dir, NULL, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Write everything inside the draft, and make it durable. */
static int commit_prepare(struct commit *c)
{
	auto_buf meta = { 0 };
	int r = 0;

	for (size_t i = 0; i < c->n_items && r >= 0; i++) {
		r = seal_item(c, &c->items[i]);
		r = r < 0 ? r : check_deadline(c);
	}
	if (r >= 0 && c->finish)
		r = c->finish(c->finish_arg);
	if (r < 0)
		return r;
	r = mark_items(c);
	if (r < 0)
		return r;
	r = print_step_meta(c, &meta);
	if (r < 0)
		return r;
	r = io_write_file(c->draft->dir, "_CHECKPOINT_METADATA", buf_span(&meta));
	return r < 0 ? r : check_deadline(c);
}

/*
 * The step is complete and durable. Unused data that remains of the draft does no harm, and gc
 * removes a lock file.
 */
static void release_stores(struct commit *c)
{
	struct draft_dir *d = c->draft;
	int r = 0;

	for (size_t i = 0; i < c->n_items; i++) {
		r = tidy_item(&c->items[i]);
		if (r < 0)
			log_warn("cannot remove the unused values in '%s/%.*s': %s", d->final,
				 SPAN_ARG(c->items[i].name), err_text(r));
	}
	r = draft_dir_unmark(d);
	if (r < 0)
		log_warn("cannot remove '%s/%s': %s", d->final, DRAFT_LOCK_FILE, err_text(r));
}

/* *ret_old is the new name of what was replaced, allocated; NULL: nothing was there. */
static int rename_draft(struct commit *c, char **ret_old)
{
	struct draft_dir *d = c->draft;
	struct stat st;

	for (unsigned tries = 0;; tries++) {
		int r = io_dirop(d->parent, IO_RENAME_NEW, d->name, d->final, 0);

		if (r != -EEXIST || !c->replaces)
			return r;
		err_clear();
		r = replace_rename(d, ret_old);
		/* The checkpoint that is to be replaced may have been removed meanwhile. */
		if (r != -ENOENT || tries == RENAME_TRIES || io_stat(d->parent, d->name, &st) < 0)
			return r;
		err_clear();
	}
}

/* Whether what has the final name now is the draft. */
static int commit_check_place(const struct draft_dir *d)
{
	int r = draft_dir_is_it(d, d->final);

	return r == 0 ? draft_dir_lost(d) : MIN(r, 0);
}

/* The rename may or may not survive a power loss, so it is undone. */
static int renamed_unsynced(struct commit *c, const char *old, int r)
{
	struct draft_dir *d = c->draft;
	struct err_note note, second;
	int undo;

	err_save(r, &note);
	undo = old ? replace_undo(d, old) :
		     io_dirop(d->parent, IO_RENAME_NEW, d->final, d->name, 0);
	if (undo >= 0)
		return err_at(err_restore(&note), "'%s' could not be made durable", d->final);
	err_save(undo, &second);
	return fail(note.code,
		    "'%s' was renamed and could not be made durable (%s), and renaming it back "
		    "failed: %s%s%s%s",
		    c->draft->final, note.text, second.text, old ? "; what it replaced is '" : "",
		    old ? old : "", old ? "'" : "");
}

/*
 * The last actions if renaming is atomic. The lock file is removed after the rename; until then a
 * crash leaves a draft that is recognized as ours.
 */
static int rename_to_step(struct commit *c)
{
	struct draft_dir *d = c->draft;
	auto_free char *old = NULL;
	struct err_note why;
	int r = commit_write_marker(d->dir, c->ckpt->source, d->final, "commit_success.txt");

	if (r < 0)
		return r;
	r = io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);
	if (r < 0)
		return r;
	r = check_deadline(c);
	if (r < 0)
		return r;
	r = draft_dir_check(d);
	if (r < 0)
		return r;
	r = rename_draft(c, &old);
	if (r < 0)
		return r;
	r = old ? 0 : commit_check_place(d);
	if (r < 0) {
		/* The name had become that of another writer's draft, which gets it back. */
		err_save(r, &why);
		io_dirop(d->parent, IO_RENAME_NEW, d->final, d->name, 0);
		return err_restore(&why);
	}
	r = io_dirop(d->parent, IO_SYNC_DIR, ".", NULL, 0);
	if (r < 0)
		return renamed_unsynced(c, old, r);
	release_stores(c);
	r = old ? replace_end(d, old) : 0;
	if (r < 0)
		log_warn("'%s' is replaced, and what was there could not be removed: %s", d->final,
			 err_text(r));
	return 0;
}

static int put_marker_in_place(struct commit *c)
{
	struct draft_dir *d = c->draft;
	int r = io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);

	if (r < 0)
		return r;
	r = io_dirop(d->parent, IO_SYNC_DIR, ".", NULL, 0);
	if (r < 0)
		return r;
	r = draft_dir_check(d);
	if (r < 0)
		return r;
	r = commit_write_marker(d->dir, c->ckpt->source, d->final, "commit_success.txt");
	if (r < 0)
		return r;
	r = io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);
	/* Where locks do not reach other machines, these may have removed the directory. */
	return r < 0 ? r : commit_check_place(d);
}

/* If renaming is not atomic, the marker makes the step, and is written last. */
static int mark_in_place(struct commit *c)
{
	struct draft_dir *d = c->draft;
	int r = put_marker_in_place(c);

	if (r < 0) {
		struct err_note note;

		err_save(r, &note);
		io_dirop(d->dir, IO_UNLINK, "commit_success.txt", NULL, 0);
		return err_restore(&note);
	}
	release_stores(c);
	return 0;
}

/* ---- after a failed sync ---- */

static int write_names_in(void *dir, const char *path, unsigned char type)
{
	return type == DT_DIR ? io_rewrite_names_in(dir, path) : 0;
}

/*
 * A sync of a directory that failed may have lost names, so all names in the draft are written
 * again.
 */
static int mend_names(struct commit *c)
{
	uint64_t failed = atomic_load(&io_engine_stats(c->ckpt->io)->failed_dir_syncs);
	struct io_dir *dir = c->draft->dir;
	int r;

	if (failed == c->draft->failed_dir_syncs)
		return 0;
	trace(TRACE_STEP, "names of draft '%s' are written again", c->draft->name);
	/* Only a draft that is written in place keeps this name. */
	r = strcmp(c->draft->name, c->draft->final) ?
		    0 :
		    io_rewrite_name(c->draft->parent, c->draft->name);
	if (r < 0)
		return r;
	r = io_rewrite_names_in(dir, ".");
	if (r < 0)
		return r;
	r = io_walk(dir, ".", false, write_names_in, dir);
	if (r < 0)
		return r;
	c->draft->failed_dir_syncs = failed;
	return r;
}

static int commit_check_free(struct commit *c)
{
	struct stat st;
	int r = c->replaces ? -ENOENT : io_stat(c->draft->parent, c->draft->final, &st);

	if (r >= 0)
		return fail(-EEXIST, "there is a '%s' already", c->draft->final);
	return err_except(r, -ENOENT);
}

const struct commit_publisher publish_by_rename = { .check = commit_check_free,
						    .publish = rename_to_step };
const struct commit_publisher publish_by_marker = { .publish = mark_in_place };

static int prepare_and_publish(struct commit *c)
{
	int r = c->publisher->check ? c->publisher->check(c) : 0;

	if (r < 0)
		return r;
	r = mend_names(c);
	if (r < 0)
		return r;
	r = commit_prepare(c);
	return r < 0 ? r : c->publisher->publish(c);
}

int commit_run(struct commit *c)
{
	struct err_note why;
	int r, now;

	trace(TRACE_STEP, "commit '%s' as '%s': %zu items", c->draft->name, c->draft->final,
	      c->n_items);
	r = prepare_and_publish(c);
	if (r == -ENOENT) {
		/* Where the draft's directory is gone, say who has the step now. */
		err_save(r, &why);
		now = draft_dir_check(c->draft);
		r = now < 0 ? now : err_restore(&why);
	}
	trace(TRACE_STEP, "commit '%s': %s", c->draft->final, r < 0 ? err_text(r) : "done");
	return r;
}

/* Undo the rename of a step that could not be made durable. */
static int undo_move(struct ckpt *ckpt, const char *name, const char *to, int r)
{
	struct err_note note;
	int undo;

	err_save(r, &note);
	undo = io_dirop(ckpt->source, IO_RENAME_NEW, to, name, 0);
	r = err_restore(&note);
	return undo < 0 ? err_at(r, "'%s' is '%s' now, and could not be renamed back (%s)", name,
				 to, strerror(-undo)) :
			  err_at(r, "the removal of '%s' could not be made durable", name);
}

/* In place of the rename: with a lock file, and without the marker, it is an abandoned draft. */
static int delete_in_bucket(struct io_dir *source, const char *name)
{
	auto_free char *lock = str_fmt("%s/" DRAFT_LOCK_FILE, name);
	auto_free char *marker = str_fmt("%s/commit_success.txt", name);
	auto_of(io_file) struct io_file *f = NULL;
	struct err_note why;
	int r;

	if (!lock || !marker)
		return fail(-ENOMEM, "cannot delete '%s'", name);
	r = io_file_open(source, lock, O_WRONLY | O_CREAT | O_TRUNC, 0600, &f);
	if (r < 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(f->fd, LOCK_EX | LOCK_NB)) < 0)
		return fail(-EBUSY, "'%s' is being written by another mount or command", name);
	r = io_write_exact(f, "{}\n", 3, 0);
	r = r < 0 ? r : io_file_finish(f);
	r = r < 0 ? r : io_dirop(source, IO_UNLINK, marker, NULL, 0);
	if (r < 0 && r != -ENOENT) {
		/* Without it the step is listed as before. */
		err_save(r, &why);
		io_dirop(source, IO_UNLINK, lock, NULL, 0);
		return err_restore(&why);
	}
	err_clear();
	r = step_copy_remove(source, name, take(f));
	if (r < 0)
		log_warn("step '%s' is deleted, and what is left of it remains for `pytreefs gc`: "
			 "%s",
			 name, err_text(r));
	return 0;
}

int commit_delete(struct ckpt *ckpt, const char *name)
{
	auto_free char *gone = NULL;
	int r;

	if (ckpt->source->bucket)
		return delete_in_bucket(ckpt->source, name);
	r = draft_dir_move_away(ckpt->source, name, name, DRAFT_DELETED, &gone);
	if (r < 0)
		return r;
	r = io_dirop(ckpt->source, IO_SYNC_DIR, ".", NULL, 0);
	if (r < 0)
		return undo_move(ckpt, name, gone, r);
	/* From here on the step is deleted. gc recognizes the name of any remaining files. */
	r = io_remove_tree(ckpt->source, gone);
	if (r < 0)
		log_warn("step '%s' is deleted, and '%s' could not be removed: %s", name, gone,
			 err_text(r));
	return 0;
}

int commit_move_away(struct ckpt *ckpt, const char *name, const char *to_dir)
{
	const struct bucket_mount *b = ckpt->source->bucket;
	auto_free char *to = str_fmt("%s/%s", to_dir, name);
	auto_free char *mark =
		str_fmt("%.*s/" DETECT_DELETED_FILE, (int)strcspn(to_dir, "/"), to_dir);
	auto_of(io_file) struct io_file *f = NULL;
	int r;

	if (b)
		return fail(-EOPNOTSUPP,
			    "'%s' cannot be moved to '%s': %s does not rename a step as a whole",
			    name, to_dir, b->name);
	if (!to || !mark)
		return fail(-ENOMEM, "cannot move '%s'", name);
	r = io_mkdir(ckpt->source, to_dir, IO_DIR_MODE);
	if (r < 0)
		return r;
	/*
	 * Mark a directory for deleted steps, so that a root whose last step was moved away is
	 * still recognized. The mark is in the first component of to_dir, since the rest may belong
	 * to another user.
	 */
	r = io_file_open(ckpt->source, mark, O_WRONLY | O_CREAT | O_EXCL, IO_FILE_MODE, &f);
	r = err_except(MIN(r, 0), -EEXIST);
	if (r < 0)
		return r;
	r = io_dirop(ckpt->source, IO_RENAME_NEW, name, to, 0);
	if (r == -EXDEV)
		return fail(-EXDEV, "'%s' is on another file system than the checkpoints", to_dir);
	if (r < 0)
		return r;
	r = io_dirop(ckpt->source, IO_SYNC_DIR, to_dir, NULL, 0);
	if (r >= 0)
		r = io_dirop(ckpt->source, IO_SYNC_DIR, ".", NULL, 0);
	return r < 0 ? undo_move(ckpt, name, to, r) : 0;
}
