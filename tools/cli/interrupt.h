/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.h - Ctrl-C as a question that is asked between two pieces of work.
 *
 * A command that has made something on the disk takes it away again before it ends.
 */
#ifndef PYTREEFS_INTERRUPT_H
#define PYTREEFS_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP are remembered; the second one ends the program at once. */
void interrupt_catch(void);
/* -EINTR when one came, with a note; else 0. Any thread. */
int interrupt_check(void);

/*
 * Asked by interrupt_check() from then on, too: what other reason there is to stop. NULL: none. Set
 * while nobody works.
 */
void interrupt_also(int (*check)(void *arg), void *arg);

#endif
