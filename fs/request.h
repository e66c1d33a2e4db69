/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - which request it is, and the nodes and the open file that it uses.
 */
#ifndef PYTREEFS_FS_REQUEST_H
#define PYTREEFS_FS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct request {
	uint64_t unique;           /* 0: none */
	uint64_t node, other_node; /* 0: none */
	uint64_t handle;
	int64_t since; /* clock_ns() when a thread began to serve it */
	int fd;
	uint32_t opcode;
	pid_t pid;
	bool changes;
};

/* buf: what read(2) of the device fd has given, at least a header. */
struct request request_describe(int fd, const void *buf, size_t n);
/*
 * Whether the kernel would not have sent `r`, which is in buf, before the answer to the other one,
 * which it has got although that one is still being served.
 */
bool request_must_wait_for(const struct request *other, const struct request *r, const void *buf,
			   size_t n);

#endif
