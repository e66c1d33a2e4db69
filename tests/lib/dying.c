/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dying.c - LD_PRELOAD: the rank of the number DYING_RANK is killed in MPI_Finalize, and the others
 * never come back from it. With OpenMPI's own that is so at some moments only: mpirun may have
 * noticed the death.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Finalize(void)
{
	const char *dying = getenv("DYING_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");

	if (dying && rank && !strcmp(dying, rank))
		kill(getpid(), SIGKILL);
	for (;;)
		pause();
}
