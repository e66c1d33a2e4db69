/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c - compares the kernel's offer with what is wanted, and completes the reply to INIT.
 */
#include "fs/init.h"

#include <string.h>
#include <sys/uio.h>

/* Stacked file systems that may lie below a backing file, plus one. With more, no overlay could lie
 * above the mount. */
#define STACK_DEPTH 1

/* Flags above bit 31 are in a second word, which both sides announce by FUSE_INIT_EXT. */
static uint32_t second_word(uint64_t flags)
{
	return (uint32_t)(flags >> 32);
}

void init_see_request(struct init *init, const void *buf, size_t n)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_init_in *in = (const void *)(h + 1);
	uint64_t offered;

	if (atomic_load_explicit(&init->started, memory_order_relaxed) || n < sizeof(*h) ||
	    h->opcode != FUSE_INIT)
		return;
	atomic_store(&init->started, true);
	if (n < sizeof(*h) + offsetof(struct fuse_init_in, flags2))
		return;
	offered = in->flags;
	/* Requests of kernels that have no second word of flags are shorter. */
	if (n >= sizeof(*h) + sizeof(*in) && offered & FUSE_INIT_EXT)
		offered |= (uint64_t)in->flags2 << 32;
	init->granted = init->wanted & offered;
	if (init->granted)
		atomic_store(&init->request, h->unique);
}

bool init_complete_reply(struct init *init, struct iovec *iov, int n)
{
	uint64_t request = atomic_load_explicit(&init->request, memory_order_relaxed);
	const struct fuse_out_header *h = iov[0].iov_base;
	struct fuse_init_out *out;

	if (!request || n < 2 || iov[0].iov_len < sizeof(*h) || h->unique != request)
		return false;
	atomic_store(&init->request, 0);
	out = iov[1].iov_base;
	if (h->error || iov[1].iov_len < sizeof(*out)) {
		init->granted = 0;
		return true;
	}
	out->flags |= (uint32_t)init->granted;
	if (second_word(init->granted)) {
		out->flags |= FUSE_INIT_EXT;
		out->flags2 |= second_word(init->granted);
	}
	/* The word after it, max_stack_depth since protocol 7.40. */
	if (init->granted & FUSE_PASSTHROUGH)
		memcpy(&out->flags2 + 1, &(uint32_t){ STACK_DEPTH }, sizeof(uint32_t));
	return true;
}
