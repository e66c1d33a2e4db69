/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_crash.h - an I/O engine that simulates a power loss; io_crash.c describes it.
 */
#ifndef PYTREEFS_IO_CRASH_H
#define PYTREEFS_IO_CRASH_H

/*
 * From now on, "fault(crash:MODE@N):..." opens this engine. Call once, before any engine is opened.
 */
void io_crash_register(void);
/* Returns how often the disk after a power loss could not be made, which makes a test invalid. */
unsigned io_crash_failures(void);

#endif
