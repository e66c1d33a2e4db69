/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operations.h - how long the operations of the kernel took, and how many failed, for
 * `.pytreefs/metrics`.
 */
#ifndef PYTREEFS_FS_OPERATIONS_H
#define PYTREEFS_FS_OPERATIONS_H

#include <stdint.h>

struct ns;

/* Give the namespace the names of operations. */
void operations_init(struct ns *ns);
/* This thread begins with a request that it serves; opcode: of <linux/fuse.h>. */
void operation_begin(uint32_t opcode);
/* It has served it since clock_ns() was `since`. */
void operation_end(struct ns *ns, int64_t since);
/* It failed, and that was logged. */
void operation_failed(struct ns *ns);

#endif
