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
#include <stdio.h>

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
	struct fs *fs = fuse_req_userdata(req);
	char pid[24];

	/* This process may look at no other. */
	snprintf(pid, sizeof(pid), "%ld", (long)fuse_req_ctx(req)->pid);
	return broker_ask(&fs->broker, BROKER_IS_CREATING, pid, NULL, 0) == 1;
}
