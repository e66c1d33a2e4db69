/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_ring.h - a ring of io_uring for the commands of a device (IORING_OP_URING_CMD).
 *
 * A command is 80 bytes that only the device's driver understands; it completes when the driver
 * says so, which may be never. A ring has at most one command under way and belongs to one thread.
 * It is made before the process confines itself, and takes nothing but such commands afterwards:
 * nothing else gets past the filter of system calls through it.
 */
#ifndef PYTREEFS_CORE_IO_COMMAND_RING_H
#define PYTREEFS_CORE_IO_COMMAND_RING_H

#include <stddef.h>
#include <stdint.h>

#define COMMAND_BYTES 80

struct command_ring;

/* -ENOSYS, -EPERM, -EINVAL: the kernel has no io_uring, or not the parts that this needs. */
int command_ring_new(struct command_ring **ret);
/*
 * Send a command to the device fd and wait until it completes. command: n <= COMMAND_BYTES bytes,
 * the rest is zeros; addr and len: the two other fields of a submission that a driver may read.
 * Returns the driver's result, or -ECANCELED after command_ring_end(). The thread that made the
 * first call makes all.
 */
int command_ring_run(struct command_ring *r, int fd, uint32_t op, const void *command, size_t n,
		     const void *addr, uint32_t len);
/* The command that is under way, unless it has just completed, and all later ones return
 * -ECANCELED. Any thread. */
void command_ring_end(struct command_ring *r);
/* After its thread's last call; the kernel cancels a command that is still under way. Accepts NULL.
 */
void command_ring_free(struct command_ring *r);

#endif
