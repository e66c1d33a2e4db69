/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_program.h - commands under mpirun. */
#ifndef PYTREEFS_MPI_PROGRAM_H
#define PYTREEFS_MPI_PROGRAM_H

#include "tools/cli/cmd.h"

/*
 * Replace the process by the program with MPI, which is installed beside this one: returns 0 in the
 * new program, and an error with the reason if that fails.
 */
int mpi_program(const struct cmd_args *a);

/*
 * Get the group of ranks if mpirun has started several processes; else *ret is NULL. Pass the
 * status of the command to group_end().
 */
struct rank_group;
int mpi_rank_group(const struct cmd_args *a, struct rank_group **ret);

#endif
