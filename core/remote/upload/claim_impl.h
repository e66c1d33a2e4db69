/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim_impl.h - functions of claim.c for its tests.
 */
#ifndef PYTREEFS_CORE_STORE_CLAIM_IMPL_H
#define PYTREEFS_CORE_STORE_CLAIM_IMPL_H

#include "core/base/buf.h"

/* claim_is_live() on a machine of this identity; "": it has none. */
int claim_is_live_on(struct span text, const char *machine);

#endif
