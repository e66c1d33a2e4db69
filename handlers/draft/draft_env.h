/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_env.h - what drafts need of whoever holds them: a mount, or a command that writes a
 * checkpoint.
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
 * This rank's part of a commit that the ranks of a job make together, whose items are planned; r:
 * what was wrong with them. The same result on all ranks when all have come; -ETIMEDOUT when one
 * has not.
 */
typedef int draft_commit_fn(struct draft *d, struct sealing_item *item, size_t n, const char *final,
			    struct span custom, int r, int64_t deadline);

struct draft_env {
	struct ckpt *ckpt;             /* borrowed */
	const struct options *options; /* borrowed */
	struct collective
		*collective; /* drafts are shared with the ranks of a job; NULL: one process */
	struct draft_uploads *uploads; /* SOURCE is a bucket (draft_upload.h); NULL: it is not */
	struct broker *broker;         /* runs on_commit=; NULL: this process may do so itself */
	draft_commit_fn *commit;       /* with collective: how they commit */
	pthread_mutex_t lock;          /* protects list, and what its holder keeps beside it */
	struct draft *list;
	atomic_ullong staged_bytes; /* of chunks that other ranks of the job give (kv_slice.h) */
};

/* Budgets that are "auto" become what is free now. Any thread. */
void draft_env_follow_memory(const struct draft_env *env);

#endif
