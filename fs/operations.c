/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations.c - counts what a thread serves.
 *
 * The operation is the thread's, since a failure is reported where only its errno is known.
 */
#include "fs/operations.h"

#include <linux/fuse.h>

#include "core/base/clock.h"
#include "handlers/namespace/ns.h"
#include "fs/serving.h"

/* Those that programs wait for; [0] is all others. */
static const char *const names[NS_OPERATIONS] = {
	[0] = "other",
	[FUSE_LOOKUP] = "lookup",
	[FUSE_GETATTR] = "getattr",
	[FUSE_SETATTR] = "setattr",
	[FUSE_READLINK] = "readlink",
	[FUSE_MKDIR] = "mkdir",
	[FUSE_UNLINK] = "unlink",
	[FUSE_RMDIR] = "rmdir",
	[FUSE_RENAME] = "rename",
	[FUSE_OPEN] = "open",
	[FUSE_READ] = "read",
	[FUSE_WRITE] = "write",
	[FUSE_STATFS] = "statfs",
	[FUSE_RELEASE] = "release",
	[FUSE_FSYNC] = "fsync",
	[FUSE_SETXATTR] = "setxattr",
	[FUSE_GETXATTR] = "getxattr",
	[FUSE_LISTXATTR] = "listxattr",
	[FUSE_FLUSH] = "flush",
	[FUSE_OPENDIR] = "opendir",
	[FUSE_READDIR] = "readdir",
	[FUSE_CREATE] = "create",
	[FUSE_READDIRPLUS] = "readdir",
	[FUSE_RENAME2] = "rename",
	[FUSE_LSEEK] = "lseek",
	[FUSE_COPY_FILE_RANGE] = "copy_file_range",
};

void operations_init(struct ns *ns)
{
	for (size_t i = 0; i < NS_OPERATIONS; i++)
		ns->operation[i].name = names[i];
}

void operation_begin(uint32_t opcode)
{
	static const struct {
		uint32_t from, to;
	} same[] = { { FUSE_READDIRPLUS, FUSE_READDIR }, { FUSE_RENAME2, FUSE_RENAME } };

	opcode = opcode < NS_OPERATIONS && names[opcode] ? opcode : 0;
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		if (opcode == same[i].from)
			opcode = same[i].to;
	serving()->opcode = opcode;
}

void operation_end(struct ns *ns, int64_t since)
{
	struct ns_operation *o = &ns->operation[serving()->opcode];
	uint64_t took = (uint64_t)MAX(clock_ns() - since, (int64_t)0), limit = NS_DURATION_FIRST;
	size_t i = 0;

	for (; i < NS_DURATIONS && took > limit; i++)
		limit *= NS_DURATION_FACTOR;
	atomic_fetch_add_explicit(&o->took[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&o->nanoseconds, took, memory_order_relaxed);
	serving()->opcode = 0;
}

void operation_failed(struct ns *ns)
{
	atomic_fetch_add_explicit(&ns->errors, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&ns->operation[serving()->opcode].errors, 1,
				  memory_order_relaxed);
}
