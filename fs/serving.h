/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serving.h - the request that a thread serves, for the function that writes its reply.
 *
 * libfuse calls an operation and later a function that writes the reply, and passes nothing of ours
 * from one to the other: both find it here.
 */
#ifndef PYTREEFS_FS_SERVING_H
#define PYTREEFS_FS_SERVING_H

#include <stdint.h>

struct queue_server;
struct server;

struct serving {
	struct server *server;      /* requests.c: this thread, once it has read a request */
	struct queue_server *queue; /* queue.c: the request came over io_uring; NULL: it did not */
	int64_t read_at;            /* request_reader.c: when it was read; INT64_MAX: none yet */
	uint32_t opcode; /* operations.c: of <linux/fuse.h>; 0: none, or without a name */
	int backing_id;  /* passthrough.c: for the reply to open(); 0: none */
};

/* Of the calling thread. */
struct serving *serving(void);

#endif
