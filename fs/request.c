/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - takes a request of <linux/fuse.h> apart as far as other requests are concerned.
 */
#include "fs/request.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>

#include "core/base/mem.h"

static bool is_change(uint32_t opcode, const void *body, size_t n)
{
	const struct fuse_open_in *open = body;

	switch (opcode) {
	case FUSE_OPEN:
		return n >= sizeof(*open) && open->flags & O_TRUNC;
	case FUSE_SETATTR:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_CREATE:
	case FUSE_WRITE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
		return true;
	default:
		return false;
	}
}

struct request request_describe(int fd, const void *buf, size_t n)
{
	const struct fuse_in_header *h = buf;
	const void *body = h + 1;
	const struct fuse_copy_file_range_in *copy = body;
	struct request r = { .unique = h->unique,
			     .node = h->nodeid,
			     .fd = fd,
			     .opcode = h->opcode,
			     .pid = (pid_t)h->pid };

	n -= sizeof(*h);
	r.changes = is_change(r.opcode, body, n);
	/* Most requests for an open file begin with its handle, and renames with a directory. */
	if (n >= sizeof(uint64_t))
		memcpy(&r.handle, body, sizeof(r.handle));
	if (r.opcode == FUSE_RENAME || r.opcode == FUSE_RENAME2)
		r.other_node = r.handle;
	if (r.opcode == FUSE_COPY_FILE_RANGE && n >= sizeof(*copy))
		r.other_node = copy->nodeid_out;
	return r;
}

static bool uses(const struct request *r, uint64_t node)
{
	return node && (r->node == node || r->other_node == node);
}

static bool lists(const struct request *r)
{
	return r->opcode == FUSE_READDIR || r->opcode == FUSE_READDIRPLUS;
}

static bool forgets_what_is_used(const struct request *used, const void *buf, size_t n)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_batch_forget_in *in = (const void *)(h + 1);
	const struct fuse_forget_one *one = (const void *)(in + 1);

	if (n < sizeof(*h) + sizeof(*in))
		return false;
	n = MIN((n - sizeof(*h) - sizeof(*in)) / sizeof(*one), (size_t)in->count);
	while (n > 0)
		if (uses(used, one[--n].nodeid))
			return true;
	return false;
}

bool request_must_wait_for(const struct request *other, const struct request *r, const void *buf,
			   size_t n)
{
	switch (r->opcode) {
	case FUSE_BATCH_FORGET:
		return forgets_what_is_used(other, buf, n);
	case FUSE_FORGET:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		return uses(other, r->node);
	default:
		if (lists(r))
			return lists(other) && other->handle == r->handle;
		return r->changes && other->changes &&
		       (uses(other, r->node) || uses(other, r->other_node));
	}
}
