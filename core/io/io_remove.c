/*
 * io_remove.c - removing a whole directory, through the engine.
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

	if (asprintf(&path, "%s/%s", rm->path, name) < 0) {
		path = NULL;
		return fail(-ENOMEM, "cannot remove '%s'", name);
	}
	inner = (struct removal){ rm->dir, path, rm->depth + 1 };
	r = type == DT_DIR ? -EISDIR : io_dirop(rm->dir, IO_UNLINK, path, NULL, 0);
	/* Some file systems do not tell the type of an entry. */
	if (r == -EISDIR)
		r = remove_dir(&inner);
	return r == -ENOENT ? 0 : r;
}

static int remove_dir(const struct removal *rm)
{
	int r;

	if (rm->depth > LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "'%s' is deeper than %d directories", rm->path, LIMIT_TREE_DEPTH);
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
