/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_dir.c - the operations of a directory, by its table: local (io.c), or of a store (io_store.c).
 */
#include <fcntl.h>

#include "core/io/io_engine.h"

int io_dir_sub(struct io_dir *dir, const char *rel, struct io_dir **ret)
{
	return dir->ops->sub(dir, rel, ret);
}

int io_file_open(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		 struct io_file **ret)
{
	return dir->ops->open(dir, rel, flags, mode, NULL, ret);
}

int io_file_open_range(struct io_dir *dir, const char *rel, uint64_t off, size_t n,
		       struct io_file **ret)
{
	const struct io_want want = { off, n };

	return dir->ops->open(dir, rel, O_RDONLY, 0, n ? &want : NULL, ret);
}

int io_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to, unsigned mode)
{
	return dir->ops->dirop(dir, op, from, to, mode);
}

int io_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg)
{
	return dir->ops->list(dir, rel, each, arg);
}

int io_stat(struct io_dir *dir, const char *rel, struct stat *ret)
{
	return dir->ops->stat(dir, rel, ret);
}

int io_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret, unsigned *ret_group,
		unsigned *ret_other)
{
	return dir->ops->stat_acl(dir, rel, ret, ret_group, ret_other);
}
