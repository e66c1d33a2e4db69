/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective_impl.h - what collective.c and collective_rank.c share.
 */
#ifndef PYTREEFS_COLLECTIVE_IMPL_H
#define PYTREEFS_COLLECTIVE_IMPL_H

#include "core/job/collective.h"

struct record;

struct collective {
	struct peers *peers;
	struct io_dir *source;
	int primary;
	bool *active;
	unsigned n_active;
	peers_serve_fn *other;
	void *other_arg;

	pthread_mutex_t lock;   /* protects all below */
	struct record *records; /* of the primary */
	uint64_t last_epoch;
};

struct collective_entry {
	unsigned attempt; /* to take part in; decided: known to the rank from now on */
	bool decided;     /* without this rank, with that result */
	struct err_note result;
};
/* The primary: which attempt a rank takes part in that has called now, and whose draft has the name
 * of attempt named. */
int collective_enter(struct collective *j, int rank, const struct collective_member *m,
		     unsigned named, struct collective_entry *ret);

#endif
