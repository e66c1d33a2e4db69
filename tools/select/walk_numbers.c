/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk_numbers.c - computes statistics of arrays, task by task.
 */
#include "tools/select/walk_numbers.h"

#include "core/base/err.h"
#include "core/base/log.h"

#define LARGE (1024 * GiB) /* a tebibyte: an hour at 300 MB/s */

int walk_numbers_begin(void *arg, struct walk_leaf *leaf)
{
	uint64_t bytes;

	/* Strings have no numbers. */
	if (leaf->value.kind != VALUE_ARRAY)
		return 0;
	bytes = leaf->value.array->meta.bytes;
	if (bytes >= LARGE)
		log_warn("'%s' has %llu elements, %llu GiB, all of which are decoded: this takes "
			 "hours; --only chooses other leaves",
			 leaf->path, (unsigned long long)leaf->value.array->meta.n_elements,
			 (unsigned long long)(bytes / GiB));
	leaf->state = calloc(leaf->n_tasks + 1, sizeof(struct numbers));
	return leaf->state ? 0 :
			     fail(-ENOMEM, "cannot sum up an array of %llu bytes in %llu tasks",
				  (unsigned long long)bytes, (unsigned long long)leaf->n_tasks);
}

static int add_tile(void *arg, struct walk_leaf *leaf, const struct tile *tile, void *bytes,
		    struct walk_worker *worker)
{
	numbers_add(arg, leaf->value.array->meta.dtype, bytes, tile->n);
	return 0;
}

int walk_numbers_task(void *arg, struct walk_leaf *leaf, uint64_t task, struct walk_worker *worker)
{
	return walk_tiles(leaf, task, worker, add_tile, (struct numbers *)leaf->state + task);
}
