/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h - what is in the object that claims a place in a bucket: who writes there.
 */
#ifndef PYTREEFS_CORE_STORE_CLAIM_H
#define PYTREEFS_CORE_STORE_CLAIM_H

#include "core/base/buf.h"

/* Of this process, unlike any other's; appended. */
int claim_make(struct buf *ret);
/* Whether the process that made it lives: 1, 0, or -1 when it is not one of this machine. */
int claim_is_live(struct span text);
/* Who made it, for messages: "process 12 of HOST". */
void claim_show(struct span text, char *ret, size_t max);

#endif
