/* SPDX-License-Identifier: Apache-2.0 */
/* draft_verify.h - checks that a draft was written as planned. */
#ifndef PYTREEFS_DRAFT_VERIFY_H
#define PYTREEFS_DRAFT_VERIFY_H

#include "handlers/commit/draft_items.h"

/*
 * Check that every array of the planned items can be opened in the draft's directory, with its
 * shape and chunks.
 */
int draft_verify(struct draft *d, struct sealing_item *item, size_t n);

#endif
