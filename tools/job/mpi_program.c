/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_program.c - starts the program with MPI for commands under mpirun.
 *
 * MPI costs every process that is linked with it memory and time, so the ordinary program is not.
 * When MPI is needed, `pytreefs-mpi` replaces it.
 */
#include "tools/job/mpi_program.h"

#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/job/peers.h"
#include "tools/job/rank_group.h"

int mpi_program(const struct cmd_args *a)
{
	char own[4096], *slash;
	ssize_t n;

	if (peers_mpi_is_there())
		return 0;
	n = readlink("/proc/self/exe", own, sizeof(own) - sizeof("pytreefs-mpi"));
	if (n < 0)
		return err_sys("cannot find", "pytreefs-mpi");
	own[n] = '\0';
	slash = strrchr(own, '/');
	strcpy(slash ? slash + 1 : own, "pytreefs-mpi");
	if (access(own, X_OK) < 0)
		return fail(-EOPNOTSUPP, "this pytreefs was built without MPI: there is no '%s'",
			    own);
	execv(own, a->argv);
	return err_sys("cannot start", own);
}

int mpi_rank_group(const struct cmd_args *a, struct rank_group **ret)
{
	struct peers *peers = NULL;
	int r;

	*ret = NULL;
	if (mpi_ranks() == 1)
		return 0;
	r = mpi_program(a);
	if (r < 0)
		return r;
	r = peers_mpi_open(a->cmd->name, &peers);
	if (r < 0)
		return r;
	r = group_new(peers, ret);
	if (r < 0)
		return r;
	(*ret)->error_status = cmd_error_status(a->cmd);
	return r;
}
