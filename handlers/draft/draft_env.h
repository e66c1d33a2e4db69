/* SPDX-License-Identifier: Apache-2.0 */
/* draft_env.h - the environment of drafts: a mount, or a command that writes a checkpoint. */
#ifndef PYTREEFS_DRAFT_ENV_H
#define PYTREEFS_DRAFT_ENV_H

#include <pthread.h>

#include "core/sandbox/broker.h"
#include "core/step/ckpt.h"
#include "handlers/options/options.h"

struct collective;
struct commit_driver;
struct draft;
struct draft_uploads;

struct draft_env {
	struct ckpt *ckpt;             /* borrowed */
	const struct options *options; /* borrowed */
	const struct commit_driver *driver;
	/* Of drivers: the ranks of a job that share the drafts, and uploads to a bucket. */
	struct collective *collective;
	struct draft_uploads *uploads;
	struct broker *broker; /* runs on_commit=; NULL: this process runs it */
	/* protects list, and further members of the struct that embeds this one */
	pthread_mutex_t lock;
	struct draft *list;
	/*
	 * Number of files that are open and that a draft stores as they are: a new file may be a
	 * copy of one, with a name that is not one of a leaf ("50%.txt"), or with that of an item
	 * ("config.json" beside "config"). The commit checks the names.
	 */
	atomic_uint others_read;
	/* bytes of chunks that other ranks of the job will write (kv_slice.h) */
	atomic_ullong staged_bytes;
};

/*
 * Set budgets that are "auto" according to the memory that is free now. Any thread may call this.
 */
void draft_env_follow_memory(const struct draft_env *env);

#endif
