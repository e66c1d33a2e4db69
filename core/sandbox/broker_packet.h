/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_packet.h - one packet between a mount and its broker: bytes, and descriptors of files.
 */
#ifndef PYTREEFS_CORE_SANDBOX_BROKER_PACKET_H
#define PYTREEFS_CORE_SANDBOX_BROKER_PACKET_H

#include <stddef.h>
#include <sys/types.h>

#define BROKER_FILES_MAX 2 /* files of one packet */

/*
 * Send n bytes, and at most BROKER_FILES_MAX files, which stay open. 0, or -errno without a note.
 */
int broker_packet_send(int socket, const void *p, size_t n, const int *files, unsigned n_files);
/*
 * Receive at most `max` bytes, and the files, which the caller closes; -1: none. Returns the number
 * of bytes, 0 when the other process is gone, or -errno without a note.
 */
ssize_t broker_packet_receive(int socket, void *p, size_t max, int ret_files[BROKER_FILES_MAX]);

#endif
