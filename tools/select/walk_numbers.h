/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk_numbers.h - the operations of a walk that computes statistics of arrays
 * (tools/scan/numbers.h).
 *
 * They are members of struct walk_ops, and ignore their arg. The state of a leaf is one struct
 * numbers for each task, which the walk's end() merges in the order of the tasks and frees; NULL
 * for leaves that are not arrays.
 */
#ifndef PYTREEFS_WALK_NUMBERS_H
#define PYTREEFS_WALK_NUMBERS_H

#include "tools/scan/numbers.h"
#include "tools/select/walk.h"

int walk_numbers_begin(void *arg, struct walk_leaf *leaf);
int walk_numbers_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker);

#endif
