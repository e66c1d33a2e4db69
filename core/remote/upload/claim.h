/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h - the content of an object that claims a place in a bucket: the writer's process.
 */
#ifndef PYTREEFS_CORE_STORE_CLAIM_H
#define PYTREEFS_CORE_STORE_CLAIM_H

#include "core/base/buf.h"

/* Append a claim of this process; no two claims are equal. */
int claim_make(struct buf *ret);
/* Lines that may follow a claim, in this order: its step is being committed; */
#define CLAIM_COMMITTING "committing\n"
/* and before that: its writer does not wait for the result, and counts as one that has ended. */
#define CLAIM_ENDED "ended\n"

/* Whether a claim has the first line. */
bool claim_is_committing(struct span text);
/*
 * Whether the process of a claim lives: 1, 0, or -1 when it may be one of another machine. A claim
 * of another boot is 0 only where this machine's identity is known and is the claim's.
 */
int claim_is_live(struct span text);
/* The same on a machine of this identity; "": it has none. */
int claim_is_live_on(struct span text, const char *machine);
/* Describe the process of a claim for messages: "process 12 of HOST". */
void claim_show(struct span text, char *ret, size_t max);

#endif
