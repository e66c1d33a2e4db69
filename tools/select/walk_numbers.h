/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk_numbers.h - the steps of a walk that sums up arrays (tools/scan/numbers.h).
 *
 * They are members of struct walk_ops, and do not look at their arg. The state of a leaf is one
 * struct numbers for each of its tasks, to be merged in the order of the tasks and freed by the
 * walk's end(); NULL for what is not an array.
 */
#ifndef PYTREEFS_WALK_NUMBERS_H
#define PYTREEFS_WALK_NUMBERS_H

#include "tools/scan/numbers.h"
#include "tools/select/walk.h"

int walk_numbers_begin(void *arg, struct walk_leaf *leaf);
int walk_numbers_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker);

#endif
