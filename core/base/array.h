/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays that grow by doubling.
 *
 * An array is three variables: a pointer, a count of elements and a capacity (size_t), all zero at
 * first; the owner frees the pointer.
 *
 * Write the growth out instead where
 * - there is one array for each of very many objects, which have few elements: the first room is
 *   for eight;
 * - the array has its first elements elsewhere, such as in its struct, or grows together with
 *   another one, such as a hash table of its indices;
 * - a few elements are added in all: reallocarray() to one more needs no capacity.
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
/*
 * The same for an array of metadata: each element of the capacity is charged to the meter with that
 * many bytes, which the owner releases. Returns 0, or an error with a note.
 */
#define array_reserve_charged(array, cap, need, bytes) \
	array_reserve_charged_size((void **)&(array), &(cap), (need), sizeof(*(array)), (bytes))
int array_reserve_charged_size(void **array, size_t *cap, size_t need, size_t element_bytes,
			       size_t charged_bytes);
/* The order of strcmp(), for qsort() and bsearch() over an array of char *. */
int array_by_text(const void *a, const void *b);

#endif
