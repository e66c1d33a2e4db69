/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_root.c - creates the directories of a first step, and removes them if the step fails.
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
	free(n->names);
	*n = (struct new_root){ 0 };
}

/* The names of what does not exist of path, "run/checkpoints", and the directory in which they are.
 */
static int new_root_missing(const char *path, char **ret_above, char **ret_names)
{
	auto_free char *above = strdup(path);
	auto_free char *names = NULL;
	struct stat st;

	while (above && stat(above, &st) < 0 && errno == ENOENT) {
		auto_free char *dir = NULL;
		auto_free char *name = NULL;
		auto_free char *rest = take(names);
		int r = path_check_link(above);

		if (r < 0)
			return r;
		r = path_check_latest(above);
		if (r < 0)
			return r;
		r = path_split(above, &dir, &name);
		if (r < 0)
			return r;
		names = str_fmt("%s/%s", name, rest ? rest : "");
		free(above);
		above = names ? take(dir) : NULL;
	}
	if (!above)
		return fail(-ENOMEM, "cannot make '%s'", path);
	*ret_above = take(above);
	*ret_names = take(names);
	return 0;
}

int new_root_make(struct cmd_args *a, const char *path, struct new_root *ret)
{
	auto_free char *dir = NULL;
	int r;

	/* In a bucket, directories exist only as parts of names. */
	if (path_is_url(path))
		return 0;
	r = new_root_missing(path, &dir, &ret->names);
	if (r < 0 || !ret->names)
		return r;
	r = io_engine_open(a->options.io, &ret->io);
	if (r < 0)
		return r;
	r = io_dir_open(ret->io, dir, &ret->above);
	if (r < 0)
		return r;
	/* One by one: what another process or rank makes meanwhile is not ours. */
	for (char *at = ret->names; (at = strchr(at, '/')); at++) {
		*at = '\0';
		r = io_dirop(ret->above, IO_MKDIR, ret->names, NULL, IO_DIR_MODE);
		if (r < 0 && r != -EEXIST)
			return err_at(r, "in '%s'", dir);
		*at = '/';
		if (r == -EEXIST) {
			ret->others = (size_t)(at - ret->names);
			err_clear();
		}
	}
	r = io_sync_parents(ret->above, ret->names);
	return r < 0 ? r : io_dirop(ret->above, IO_SYNC_DIR, ".", NULL, 0);
}

void new_root_remove(struct new_root *n)
{
	struct err_note why;
	char *slash;

	if (!n->above)
		return;
	err_peek(&why);
	while ((slash = strrchr(n->names, '/')) && (size_t)(slash - n->names) > n->others) {
		*slash = '\0';
		io_dirop(n->above, IO_RMDIR, n->names, NULL, 0);
	}
	err_restore(&why);
}
