/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_remove.c - remove a whole directory, and rewrite its names, through the engine.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io.h"

struct removal {
	struct io_dir *dir;
	const char *path;
	unsigned depth;
};

static int remove_dir(const struct removal *rm);

static int remove_entry(void *arg, const char *name, unsigned char type)
{
	const struct removal *rm = arg;
	auto_free char *path = NULL;
	struct removal inner;
	int r;

	path = str_fmt("%s/%s", rm->path, name);
	if (!path)
		return fail(-ENOMEM, "cannot remove '%s'", name);
	inner = (struct removal){ rm->dir, path, rm->depth + 1 };
	r = type == DT_DIR ? -EISDIR : io_dirop(rm->dir, IO_UNLINK, path, NULL, 0);
	/* Some file systems do not report the type of an entry. */
	if (r == -EISDIR)
		r = remove_dir(&inner);
	return r == -ENOENT ? 0 : r;
}

static int remove_dir(const struct removal *rm)
{
	int r;

	if (rm->depth > LIMIT_DIR_DEPTH)
		return fail(-EFBIG, "'%s' is deeper than %d directories", rm->path,
			    LIMIT_DIR_DEPTH);
	r = io_list(rm->dir, rm->path, remove_entry, (void *)(uintptr_t)rm);
	return r < 0 ? r : io_dirop(rm->dir, IO_RMDIR, rm->path, NULL, 0);
}

int io_remove_tree(struct io_dir *dir, const char *rel)
{
	struct removal rm = { dir, rel, 0 };
	int r = io_dirop(dir, IO_UNLINK, rel, NULL, 0);

	if (r == -EISDIR || r == -EPERM)
		r = remove_dir(&rm);
	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	return r;
}

static int add_name(void *arg, const char *name, unsigned char type)
{
	(void)type;
	return buf_add(arg, name, strlen(name) + 1);
}

int io_remove_entries(struct io_dir *dir, const char *rel,
		      bool (*keeps)(void *arg, const char *name), void *arg)
{
	auto_buf names = { 0 };
	int r = io_list(dir, rel, add_name, &names);

	for (size_t at = 0; at < names.n && r >= 0; at += strlen((char *)names.p + at) + 1) {
		const char *name = (char *)names.p + at;
		auto_free char *path = NULL;

		if (keeps(arg, name))
			continue;
		path = strcmp(rel, ".") ? str_fmt("%s/%s", rel, name) : strdup(name);
		r = path ? io_remove_tree(dir, path) : fail(-ENOMEM, "cannot remove '%s'", name);
	}
	return r;
}

/* ---- rewriting names ---- */

#define AGAIN ".pytreefs-again"

int io_rewrite_name(struct io_dir *dir, const char *rel)
{
	struct span own = span_str(rel);
	bool is_there = span_ends(own, span_str(AGAIN));
	auto_free char *name = NULL, *other = NULL;
	int r = 0;

	if (is_there)
		own.n -= strlen(AGAIN);
	name = span_dup_str(own);
	other = name ? str_fmt("%s" AGAIN, name) : NULL;
	if (!other)
		return fail(-ENOMEM, "cannot write the name of '%s' again", rel);
	if (!is_there)
		r = io_dirop(dir, IO_RENAME_NEW, name, other, 0);
	return r < 0 ? r : io_dirop(dir, IO_RENAME_NEW, other, name, 0);
}

int io_rewrite_names_in(struct io_dir *dir, const char *rel)
{
	auto_buf names = { 0 };
	int r = io_list(dir, rel, add_name, &names);

	for (size_t at = 0; at < names.n && r >= 0; at += strlen((char *)names.p + at) + 1) {
		auto_free char *path = NULL;

		path = str_fmt("%s/%s", rel, (char *)names.p + at);
		if (!path)
			return fail(-ENOMEM, "cannot write the names in '%s' again", rel);
		r = io_rewrite_name(dir, path);
	}
	return r;
}
