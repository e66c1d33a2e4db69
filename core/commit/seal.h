/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal.h - one item of a draft made durable: arrays, then the files that describe them.
 */
#ifndef PYTREEFS_SEAL_H
#define PYTREEFS_SEAL_H

#include "core/commit/commit.h"

/* The item's directory is complete and durable when this returns 0. May be called again. */
int seal_item(struct commit *c, struct commit_item *item);
/* A file more of an item that is sealed: durable when this returns 0. */
int seal_file(struct commit *c, const struct commit_item *item, const struct commit_file *f);

#endif
