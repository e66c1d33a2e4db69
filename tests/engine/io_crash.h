/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_crash.h - an I/O engine that simulates a power loss; io_crash.c describes it.
 */
#ifndef PYTREEFS_IO_CRASH_H
#define PYTREEFS_IO_CRASH_H

/* After this call "fault(crash:MODE@N):..." opens the engine. Called once, before any engine is
 * opened. */
void io_crash_register(void);
/* Power losses of this process whose disk could not be made: what was found after them says
 * nothing. */
unsigned io_crash_failures(void);

#endif
