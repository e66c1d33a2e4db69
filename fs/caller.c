/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller.c - what the program that waits for a reply is doing.
 *
 * The kernel looks a name up before it creates it, and answers O_EXCL itself when
 * the name is there. A file that the mount generates is there always; programs that
 * copy a checkpoint into a fresh directory still create it, with O_EXCL, because they
 * know that nobody else has put anything there. So such a caller is told that the
 * name is free. Where /proc does not tell, the name is there for everybody.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "fs/fs.h"

static int groups(void *arg, int n, gid_t *ret)
{
	return fuse_req_getgroups(arg, n, ret);
}

void caller_enter(fuse_req_t req, struct user *u)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	*u = (struct user){
		.uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask, .groups = groups, .arg = req
	};
	user_set(u);
}

void caller_leave(void)
{
	user_set(NULL);
}

bool caller_creates(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	unsigned long long arg[3] = { 0 };
	char path[64];
	bool creates = false;
	long call = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%ld/syscall", (long)ctx->pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fscanf(f, "%ld %llx %llx %llx", &call, &arg[0], &arg[1], &arg[2]) == 4) {
		const unsigned long long both = O_CREAT | O_EXCL;

		creates = call == SYS_openat && (arg[2] & both) == both;
#ifdef SYS_open
		creates |= call == SYS_open && (arg[1] & both) == both;
#endif
	}
	fclose(f);
	return creates;
}
