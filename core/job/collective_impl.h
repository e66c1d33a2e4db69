/* SPDX-License-Identifier: Apache-2.0 */
/* collective_impl.h - shared by collective.c and collective_rank.c. */
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
	const struct collective_place_ops *place;
	void *place_arg;
	peers_serve_fn *other;
	void *other_arg;

	pthread_mutex_t lock;   /* protects all members below */
	struct record *records; /* only in the primary */
	uint64_t last_epoch;
};

struct collective_entry {
	/*
	 * the attempt to take part in; or, if decided, the last attempt whose result the rank now
	 * knows
	 */
	unsigned attempt;
	bool decided;   /* the attempt was decided without this rank, with that result */
	bool undecided; /* and the step may be there although the result is an error */
	struct err_note result;
};
/*
 * Primary: determine the attempt that a rank takes part in which has called now, and whose draft
 * has the name for attempt `named`.
 */
void collective_enter(struct collective *j, int rank, const struct collective_member *m,
		      unsigned named, struct collective_entry *ret);

#endif
