/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller.c - finds out what the program that waits for a reply is doing.
 *
 * The kernel looks a name up before it creates it, and answers O_EXCL itself if the name exists. A
 * generated file of a mount always exists, but programs that copy a checkpoint into a fresh
 * directory create it with O_EXCL, since no other program can have put anything there. Such a
 * caller gets the reply that the name does not exist. Where /proc does not show what the caller
 * does, the name exists for all callers.
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

	/* This process may not inspect others. */
	snprintf(pid, sizeof(pid), "%ld", (long)fuse_req_ctx(req)->pid);
	return broker_ask(&fs->broker, BROKER_IS_CREATING, pid, NULL, 0) == 1;
}
