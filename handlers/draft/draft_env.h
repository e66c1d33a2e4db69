/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_env.h - the environment of drafts: a mount, or a command that writes a checkpoint.
 */
#ifndef PYTREEFS_DRAFT_ENV_H
#define PYTREEFS_DRAFT_ENV_H

#include <pthread.h>

#include "core/sandbox/broker.h"
#include "core/step/ckpt.h"
#include "handlers/options/options.h"

struct draft;
struct draft_uploads;
struct collective;
struct sealing_item;

/*
 * Run this rank's part of a collective commit whose items are planned; r: the error of planning
 * them. All ranks get the same result when all take part; -ETIMEDOUT when one does not.
 */
typedef int draft_commit_fn(struct draft *d, struct sealing_item *item, size_t n, const char *final,
			    struct span custom, int r, int64_t deadline);

struct draft_env {
	struct ckpt *ckpt;             /* borrowed */
	const struct options *options; /* borrowed */
	struct collective
		*collective; /* the ranks of a job that share the drafts; NULL: one process */
	struct draft_uploads *uploads; /* set when SOURCE is a bucket (draft_upload.h); else NULL */
	struct broker *broker;         /* runs on_commit=; NULL: this process runs it */
	draft_commit_fn *commit;       /* commit of a shared draft; only with collective */
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
