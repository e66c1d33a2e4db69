/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays that grow by doubling.
 *
 * An array is three variables: a pointer, a count of elements and a capacity (size_t), all zero at
 * first; the owner frees the pointer.
 */
#ifndef PYTREEFS_ARRAY_H
#define PYTREEFS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Ensure room for `need` elements in all. Returns false when memory is short, and the array is then
 * unchanged: if (!array_reserve(l->node, l->cap, l->n + 1)) return fail(-ENOMEM, ...);
 */
#define array_reserve(array, cap, need) \
	array_reserve_size((void **)&(array), &(cap), (need), sizeof(*(array)))
bool array_reserve_size(void **array, size_t *cap, size_t need, size_t element_bytes);

#endif
