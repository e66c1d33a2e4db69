/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aggregate.h - values inside a legacy aggregate file, as arrays.
 */
#ifndef PYTREEFS_AGGREGATE_H
#define PYTREEFS_AGGREGATE_H

#include "core/step/item.h"

/*
 * Make a store that holds one array, with an empty prefix, for the aggregate value of a leaf; its
 * data stays in the file. -EOPNOTSUPP for a dtype that is not supported.
 */
int aggregate_store(struct item *item, const struct aggregate *a, struct kv **ret);

#endif
