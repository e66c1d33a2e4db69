/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller.c - finds out what the program that waits for a reply is doing.
 *
 * The kernel looks a name up before it creates it, and answers O_EXCL itself if the name exists. A
 * generated file of a mount always exists, but programs that copy a checkpoint into a fresh
 * directory create it with O_EXCL, since no other program can have put anything there. Such a
 * caller gets the reply that the name does not exist. Where /proc does not show what the caller
 * does, the name exists for all callers.
 *
 * A caller that waits does not act on signals: /proc shows which of them have come.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
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

static uint64_t bits(const int *numbers, size_t n)
{
	uint64_t all = 0;

	for (size_t i = 0; i < n; i++)
		all |= UINT64_C(1) << (numbers[i] - 1);
	return all;
}

uint64_t caller_signals(pid_t pid)
{
	static const int harmless[] = { SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
					SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
	static const char *const keys[] = { "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:" };
	enum { THREAD, PROCESS, BLOCKED, IGNORED, HANDLED };
	const uint64_t kill = bits((int[]){ SIGKILL }, 1);
	unsigned long long mask[ARRAY_LEN(keys)] = { 0 }, came;
	char line[256];
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%ld/status", (long)pid);
	f = pid > 0 ? fopen(line, "re") : NULL;
	if (!f)
		return ~kill;
	while (fgets(line, sizeof(line), f))
		for (size_t i = 0; i < ARRAY_LEN(keys); i++)
			if (!strncmp(line, keys[i], strlen(keys[i])))
				sscanf(line + strlen(keys[i]), "%llx", &mask[i]);
	fclose(f);
	came = (mask[THREAD] | mask[PROCESS]) & ~mask[BLOCKED];
	if (came & ~(mask[HANDLED] | mask[IGNORED] | bits(harmless, ARRAY_LEN(harmless))))
		came |= kill;
	return came;
}
