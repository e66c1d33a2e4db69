/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - requests of the kernel over io_uring instead of /dev/fuse (Linux 6.14 and later).
 *
 * The kernel has one queue for each processor, and puts a request into that of the processor that
 * the caller runs on. A thread that is bound to the processor takes it out, serves it, and hands
 * over the reply and asks for the next request in one system call. So a small request needs no
 * interrupt to another processor, which costs more than most requests themselves. Bytes of a reply
 * are copied once more than through /dev/fuse, into a buffer that the kernel knows.
 *
 * The protocol is that of <linux/fuse.h>, 7.42 (FUSE_IO_URING_CMD_*). libfuse has it
 * from 3.18 on; here its requests are given to fuse_session_process_buf(), which every libfuse 3
 * has, and replies are taken from the function that libfuse calls in place of writev(). FORGET
 * and INTERRUPT, notices to the kernel, and everything up to INIT still go through /dev/fuse.
 *
 * It is the administrator who allows it, for the whole machine: /sys/module/fuse/parameters/
 * enable_uring.
 */
#ifndef PYTREEFS_FS_QUEUE_H
#define PYTREEFS_FS_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct fs;
struct iovec;
struct queues;

/*
 * Make the threads' rings and buffers, before the process confines itself. -EOPNOTSUPP with a note:
 * the kernel does not have it, or it is not enabled, or there are too many processors.
 */
int queues_new(struct fs *fs, struct queues **ret);
/* Threads that queues_start() will start. Accepts NULL: 0. */
unsigned queues_threads(const struct queues *q);
/* Serve requests, once the kernel has got the reply to INIT with FUSE_OVER_IO_URING in it. */
int queues_start(struct queues *q);
/*
 * After the loop has ended: waits for the threads, and gives the device up. Requests that come
 * later fail with ECANCELED, or when the connection ends.
 */
void queues_stop(struct queues *q);
/* Accepts NULL. */
void queues_free(struct queues *q);

/*
 * Whether this thread serves a request of a queue. Then its reply belongs into a buffer, and n
 * bytes of data that are written there need no further copy. NULL: it does not, or n is too much.
 */
void *queue_buffer(size_t n);
/* Take libfuse's reply to the request that this thread serves. False: it goes to /dev/fuse. */
bool queue_reply(const struct iovec *iov, int n, ssize_t *ret);

#endif
