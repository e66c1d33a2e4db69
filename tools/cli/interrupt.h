/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.h - Ctrl-C as a condition that is checked between two pieces of work.
 *
 * A command that has made something on disk removes it before it ends.
 */
#ifndef PYTREEFS_INTERRUPT_H
#define PYTREEFS_INTERRUPT_H

#include <stdbool.h>

/* From now on, SIGINT, SIGTERM and SIGHUP are remembered; a second one ends the program at once. */
void interrupt_catch(void);
/* Returns -EINTR with a note after a signal, else 0. Any thread may call this. */
int interrupt_check(void);

/* The same for struct write_env and others that pass an argument. */
int interrupt_check_arg(void *unused);

/*
 * Let interrupt_check() also call `check`, for another reason to stop. NULL: none. Call while no
 * thread works.
 */
void interrupt_also(int (*check)(void *arg), void *arg);

#endif
