/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.h - flags of INIT that the kernel knows and an older libfuse does not.
 *
 * libfuse passes on the flags that it has names for. The others are put into its reply to INIT on
 * the way to the kernel, when the kernel has offered them: with libfuse 3.14 this makes features of
 * Linux 6.18 available, and FUSE_PARALLEL_DIROPS, which it forgets. A newer libfuse that sets such
 * a flag by itself is not contradicted.
 */
#ifndef PYTREEFS_FS_INIT_H
#define PYTREEFS_FS_INIT_H

#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iovec;

/* By the version of the protocol that brought them; the header may be older than the kernel. */
#ifndef FUSE_DIRECT_IO_ALLOW_MMAP
#define FUSE_DIRECT_IO_ALLOW_MMAP (UINT64_C(1) << 36) /* 7.39 */
#endif
#ifndef FUSE_PASSTHROUGH
#define FUSE_PASSTHROUGH (UINT64_C(1) << 37) /* 7.40 */
#endif
#ifndef FUSE_OVER_IO_URING
#define FUSE_OVER_IO_URING (UINT64_C(1) << 41) /* 7.42 */
#endif

struct init {
	uint64_t wanted;       /* set before the first request */
	uint64_t granted;      /* of these, what the kernel offers: final before INIT's reply */
	atomic_bool started;   /* INIT has been seen */
	atomic_ullong request; /* the request whose reply is to be completed; 0: none */
};

/* Every request that the kernel sends, before libfuse sees it. */
void init_see_request(struct init *init, const void *buf, size_t n);
/* Every reply that libfuse writes, before the kernel sees it. True: it is that to INIT. */
bool init_complete_reply(struct init *init, struct iovec *iov, int n);

#endif
