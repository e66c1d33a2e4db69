/* SPDX-License-Identifier: Apache-2.0 */
/* peers_none.c - replaces peers_mpi.c in a program without MPI. */
#include "core/job/peers.h"

bool peers_mpi_is_there(void)
{
	return false;
}

int peers_mpi_open(const char *name, struct peers **ret)
{
	return fail(-EOPNOTSUPP, "this pytreefs was built without MPI");
}
