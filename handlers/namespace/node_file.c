/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_file.c - open files of the mount: the part that is the same for all kinds of nodes.
 */
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/namespace/node.h"

int file_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	trace(TRACE_LEAF, "read '%s' %llu+%zu", f->node->name, (unsigned long long)off, n);
	return f->ops->read(f, off, n, g);
}

int file_seek(struct file *f, uint64_t off, int whence, uint64_t *ret)
{
	struct stat st;
	int r = node_stat(f->node, &st);

	if (r < 0)
		return r;
	if (off >= (uint64_t)st.st_size)
		return -ENXIO;
	if (f->ops->seek)
		return f->ops->seek(f, off, whence, ret);
	*ret = whence == SEEK_DATA ? off : (uint64_t)st.st_size;
	return 0;
}

ssize_t file_write(struct file *f, uint64_t off, const void *p, size_t n)
{
	trace(TRACE_LEAF, "write '%s' %llu+%zu", f->node->name, (unsigned long long)off, n);
	return f->ops->write ? f->ops->write(f, off, p, n) :
			       fail(-EBADF, "'%s' is not open for writing", f->node->name);
}

/* The only copy without reading bytes is that of a whole leaf into an empty file. */
ssize_t file_copy(struct file *from, uint64_t from_off, struct file *to, uint64_t to_off,
		  uint64_t n)
{
	struct zarr *z = from->ops->array ? from->ops->array(from) : NULL;
	struct stat st;
	ssize_t r;

	if (from_off == 0 && to->ops->copied)
		to->ops->copied(to, from->node);
	if (!z || !to->ops->copy_array || from_off != 0 || node_stat(from->node, &st) < 0 ||
	    n < (uint64_t)st.st_size)
		return -EOPNOTSUPP;
	r = to->ops->copy_array(to, to_off, z);
	trace(TRACE_LEAF, "copy '%s' to '%s': %zd", from->node->name, to->node->name, r);
	return r > 0 ? (ssize_t)st.st_size : r < 0 ? r : -EOPNOTSUPP;
}

int file_flush(struct file *f)
{
	return f->ops->flush ? f->ops->flush(f) : 0;
}

int file_sync(struct file *f)
{
	return f->ops->sync ? f->ops->sync(f) : 0;
}
