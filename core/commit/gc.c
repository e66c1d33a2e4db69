/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.c - search for files that dead writers left.
 *
 * Drafts are recognized by their names and by the lock file in them
 * (draft_dir.h). A draft of atomicity=commit_file has the name of a step; it
 * contains the lock file but no marker.
 */
#include "core/commit/gc.h"

#include <dirent.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/commit/commit.h"
#include "core/commit/draft_dir.h"
#include "core/commit/replace.h"
#include "core/step/children.h"
#include "core/step/step.h"
#include "core/step/step_name.h"

const char *gc_kind_text(enum gc_kind kind)
{
	static const char *const texts[] = {
		[GC_DRAFT] = "abandoned draft",
		[GC_COPY] = "part of a step, whose writer may be on another machine; `gc --all "
			    "--older-than 1d` removes it once it has not changed for a day",
		[GC_BEGUN] = "draft that was never begun in full",
		[GC_DELETED] = "rest of a deleted step",
		[GC_LOCK] = "lock file of a commit that was interrupted",
		[GC_FOREIGN] = "temporary directory of another program, such as Orbax; `gc --all "
			       "--older-than 1d` removes it once it has not changed for a day",
		[GC_LIVE] = "held by a living writer",
		[GC_COMMITTING] = "its writer ended while it committed, which may take effect yet; "
				  "`pytreefs gc` removes it ten minutes after that",
		[GC_UNCLAIMED] = "objects of ranks of a job that ended; `gc --all --older-than 1d` "
				 "removes them once they have not changed for a day",
		[GC_OLD] = "checkpoint whose replacement was interrupted; rename it to the name of "
			   "its step to use it",
	};

	return texts[kind];
}

/* ---- size and age ---- */

struct measure {
	struct io_dir *dir;
	const char *path;
	unsigned depth;
	uint64_t bytes;
	int64_t newest_ns;
};

static int measure_entry(void *arg, const char *name, unsigned char type)
{
	struct measure *up = arg;
	auto_free char *path = NULL;
	struct stat st;
	int r;

	(void)type;
	path = str_fmt("%s/%s", up->path, name);
	if (!path)
		return fail(-ENOMEM, "cannot look at '%s'", name);
	r = io_stat(up->dir, path, &st);
	if (r < 0) {
		/* A dangling link, or an entry that is being removed by another process. */
		err_clear();
		return 0;
	}
	up->bytes += (uint64_t)st.st_blocks * 512;
	up->newest_ns = MAX(up->newest_ns, clock_ns_of(st.st_mtim));
	if (S_ISDIR(st.st_mode) && up->depth < LIMIT_TREE_DEPTH) {
		struct measure in = { up->dir, path, up->depth + 1, up->bytes, up->newest_ns };

		r = io_list(up->dir, path, measure_entry, &in);
		up->bytes = in.bytes;
		up->newest_ns = in.newest_ns;
	}
	return err_except(r, -ENOENT);
}

static int gc_measure(struct io_dir *dir, const char *path, struct measure *ret)
{
	struct stat st;
	int r = io_stat(dir, path, &st);

	*ret = (struct measure){ .dir = dir, .path = path };
	if (r < 0)
		return r;
	ret->newest_ns = clock_ns_of(st.st_mtim);
	ret->bytes = (uint64_t)st.st_blocks * 512;
	return S_ISDIR(st.st_mode) ? io_list(dir, path, measure_entry, ret) : 0;
}

/* ---- one directory ---- */

/*
 * Classify a checkpoint that was renamed to be replaced, and may be the only one: it goes when a
 * directory has its name that is not a draft.
 */
static int kind_of_old(struct io_dir *dir, const char *path, const char *name, enum gc_kind *ret)
{
	struct span final = step_name_final(span_str(name));
	auto_free char *at =
		str_fmt("%.*s%.*s", (int)(strlen(path) - strlen(name)), path, SPAN_ARG(final));
	enum draft_state state = DRAFT_ABANDONED;
	struct stat st;
	int r = at ? io_stat(dir, at, &st) : fail(-ENOMEM, "cannot look at '%s'", path);

	if (r >= 0 && S_ISDIR(st.st_mode))
		r = draft_dir_state(dir, at, &state);
	*ret = r >= 0 && state == DRAFT_FOREIGN ? GC_DELETED : GC_OLD;
	return err_except(r, -ENOENT);
}

/* Classify a temporary directory. */
static int kind_of_tmp(struct io_dir *dir, const char *path, const char *name, enum gc_kind *ret)
{
	/* The span extends to the end of the name, which is NUL-terminated. */
	const char *behind = (const char *)step_name_rest(span_str(name)).p;
	enum draft_state state;
	int r;

	if (!strncmp(behind, DRAFT_OLD, strlen(DRAFT_OLD)))
		return kind_of_old(dir, path, name, ret);
	r = draft_dir_state(dir, path, &state);
	if (r < 0)
		return r;
	if (state != DRAFT_FOREIGN)
		*ret = state == DRAFT_LIVE ? GC_LIVE : GC_DRAFT;
	else if (!strncmp(behind, DRAFT_DELETED, strlen(DRAFT_DELETED)) ||
		 strstr(behind, DRAFT_REMOVED))
		*ret = GC_DELETED;
	else
		*ret = strstr(behind, DRAFT_BEGUN) ? GC_BEGUN : GC_FOREIGN;
	return 0;
}

/*
 * Classify a directory with the name of a step by its lock file: returns 1, or 0 when there is
 * none.
 */
static int kind_of_step(struct io_dir *dir, const char *path, enum gc_kind *ret)
{
	enum draft_state state;
	int r = draft_dir_state(dir, path, &state);

	if (r < 0 || state == DRAFT_FOREIGN)
		return r;
	r = step_has_marker(dir, path);
	if (r < 0)
		return r;
	*ret = state == DRAFT_LIVE ? GC_LIVE : r ? GC_LOCK : dir->bucket ? GC_COPY : GC_DRAFT;
	return 1;
}

/*
 * A writer may still want back what it was about to replace or delete, or have put its draft there
 * since. It is renamed first, so either the writer or gc gets all of it.
 */
static int remove_deleted(struct io_dir *dir, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct span final = step_name_final(span_str(name));
	auto_free char *text = span_dup_str(final), *rest = NULL, *gone = NULL;
	auto_free char *above = slash ? span_dup_str(span_of(path, (size_t)(slash - path))) : NULL;
	enum draft_state state;
	int r = text && (above || !slash) ? draft_dir_name_now(text, DRAFT_REMOVED, &rest) :
					    -ENOMEM;

	if (r < 0)
		return r;
	gone = str_fmt("%.*s%s", (int)(name - path), path, rest);
	r = gone ? io_dirop(dir, IO_RENAME_NEW, path, gone, 0) : -ENOMEM;
	if (r < 0)
		return r == -ENOENT ? -EBUSY : r;
	r = draft_dir_state(dir, gone, &state);
	if (r < 0)
		return r;
	if (state == DRAFT_LIVE) {
		r = io_dirop(dir, IO_RENAME_NEW, gone, path, 0);
		return r < 0 ? r : -EBUSY;
	}
	/* The new step has its name for good before anything of the old one is removed. */
	r = io_dirop(dir, IO_SYNC_DIR, slash ? above : ".", NULL, 0);
	return r < 0 ? r : io_remove_tree(dir, gone);
}

static int remove_found(struct io_dir *dir, const char *path, enum gc_kind kind)
{
	int r;

	if (kind == GC_DELETED || kind == GC_BEGUN)
		return remove_deleted(dir, path);
	if (kind == GC_FOREIGN)
		return io_remove_tree(dir, path);
	/* Of a step that has its marker, only the lock file is removed: -EEXIST. */
	r = draft_dir_remove_abandoned(dir, path);
	return r == -EEXIST ? 0 : r;
}

static void deal_with(struct io_dir *dir, const struct gc_opts *o, const char *path,
		      enum gc_kind kind)
{
	struct gc_found f = { .path = path, .kind = kind };
	struct measure m = { 0 };
	bool may_live = kind == GC_FOREIGN || kind == GC_COPY;
	int64_t least = kind == GC_BEGUN ? DRAFT_BEGUN_NS : may_live ? o->older_than_ns : 0;
	int r = kind == GC_LOCK ? 0 : gc_measure(dir, path, &m);

	f.bytes = r < 0 ? 0 : m.bytes;
	f.removed = kind != GC_LIVE && kind != GC_OLD && (!may_live || o->foreign) && r >= 0 &&
		    !clock_is_near(m.newest_ns, least);
	if (least && r >= 0 && m.newest_ns > clock_real_ns())
		f.future_ns = m.newest_ns;
	if (f.removed && !o->dry_run)
		r = remove_found(dir, path, kind);
	/* Its writer returned, or another process removed it first. */
	if (r == -EBUSY) {
		f.kind = GC_LIVE;
		r = 0;
		f.removed = false;
	}
	if (r < 0) {
		f.removed = false;
		f.failed = r;
	}
	/* Its writer, or another process, renamed or removed it meanwhile. */
	if (r != -ENOENT)
		o->each(o->arg, &f);
	err_clear();
}

/* ---- all directories ---- */

static int gc_look_in(struct io_dir *source, const struct gc_opts *o, const char *at,
		      unsigned depth);

static int gc_look_at(struct io_dir *source, const struct gc_opts *o, const char *at,
		      const char *name, unsigned depth)
{
	auto_free char *path = NULL;
	enum gc_kind kind = GC_FOREIGN;
	int r;

	path = str_fmt("%s%s%s", strcmp(at, ".") ? at : "", strcmp(at, ".") ? "/" : "", name);
	if (!path)
		return fail(-ENOMEM, "cannot look at '%s'", name);
	if (step_name_is_tmp(span_str(name))) {
		r = kind_of_tmp(source, path, name, &kind);
		if (r >= 0)
			deal_with(source, o, path, kind);
	} else {
		r = kind_of_step(source, path, &kind);
		if (r > 0)
			deal_with(source, o, path, kind);
		/* In the mount of a step, drafts are items. */
		if (r == 0 && depth == 0)
			r = gc_look_in(source, o, path, depth + 1);
	}
	if (r < 0) {
		struct gc_found f = { .path = path, .kind = GC_FOREIGN, .failed = r };

		/* It was removed meanwhile, or is not a directory. */
		if (r != -ENOENT && r != -ENOTDIR)
			o->each(o->arg, &f);
		err_clear();
	}
	return 0;
}

static int gc_look_in(struct io_dir *source, const struct gc_opts *o, const char *at,
		      unsigned depth)
{
	auto_children c = { 0 };
	int r = children_list(source, at, true, &c);

	children_sort(&c);
	for (size_t i = 0; i < c.n && r >= 0; i++)
		if (c.child[i].type == DT_DIR || c.child[i].type == DT_UNKNOWN)
			r = gc_look_at(source, o, at, c.child[i].name, depth);
	return r;
}

int gc_run(struct io_dir *source, const struct gc_opts *o)
{
	int r = gc_look_in(source, o, ".", 0);

	/* If a removal is lost in a power loss, the next run finds the directory again. */
	return r < 0 || o->dry_run ? r : io_dirop(source, IO_SYNC_DIR, ".", NULL, 0);
}
