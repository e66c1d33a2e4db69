/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_root.c - creates the directory of a first step, and removes it if the step fails.
 */
#include "tools/convert/new_root.h"

#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "tools/convert/atomic_step.h"

void new_root_release(struct new_root *n)
{
	io_dir_close(n->above);
	io_engine_close(n->io);
	free(n->name);
}

int new_root_make(struct cmd_args *a, const char *path, struct new_root *ret)
{
	auto_of(io_dir) struct io_dir *above = NULL;
	auto_free char *dir = NULL;
	struct stat st;
	int r;

	/* In a bucket, directories exist only as parts of names. */
	if (path_is_url(path) || stat(path, &st) == 0)
		return 0;
	r = path_split(path, &dir, &ret->name);
	if (r >= 0)
		r = path_check_latest(path);
	if (r >= 0)
		r = io_engine_open(a->options.io, &ret->io);
	if (r >= 0)
		r = io_dir_open(ret->io, dir, &above);
	if (r >= 0)
		r = io_dirop(above, IO_MKDIR, ret->name, NULL, IO_DIR_MODE);
	/* Another rank has created it. */
	if (r == -EEXIST) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	ret->above = take(above);
	return io_dirop(ret->above, IO_SYNC_DIR, ".", NULL, 0);
}

void new_root_remove(struct new_root *n)
{
	struct err_note why;

	if (!n->above)
		return;
	err_peek(&why);
	io_dirop(n->above, IO_RMDIR, n->name, NULL, 0);
	err_restore(&why);
}
