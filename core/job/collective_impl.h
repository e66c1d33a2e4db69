/* SPDX-License-Identifier: Apache-2.0 */
/* collective_impl.h - shared by collective.c and collective_rank.c. */
#ifndef PYTREEFS_COLLECTIVE_IMPL_H
#define PYTREEFS_COLLECTIVE_IMPL_H

#include "core/job/collective.h"

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
