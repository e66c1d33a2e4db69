/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_objects.c - which objects of an array are stored, by a listing of its keys where there is
 * one.
 */
#include "tools/verify/verify.h"

#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/err.h"

/* The most objects of an array that are looked for without a listing: 8 MiB of numbers. */
#define GUESSED_MAX (1 << 20)

static uint64_t objects_number_of(const struct zarr_meta *m, const uint64_t *index)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < m->rank; i++)
		n = n * m->grid[i] + index[i];
	return n;
}

struct object_listing {
	const struct verify_tree *t;
	const struct zarr *z;
	struct verify_objects *ret;
};

static bool objects_is_metadata(struct span name)
{
	static const char *const names[] = { ".zarray", "zarr.json", ".zattrs", ".zgroup" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(name, span_str(names[i])))
			return true;
	return false;
}

/*
 * Whether a key that is not of a chunk belongs to another leaf, whose name continues this one's,
 * or, beside a bare leaf stored in directories, to the item.
 */
static bool is_of_other(const struct object_listing *l, struct span key, struct span name)
{
	if (l->z->prefix_len == 0 && l->z->kv != l->t->item->kv)
		return true;
	if (l->z->prefix_len == 0 && !l->t->item->is_ocdbt)
		return name.n > 0 && !span_starts(name, span_str("c/")) &&
		       !(name.p[0] >= '0' && name.p[0] <= '9');
	return verify_has_owner(l->t, key, l->z->prefix_len);
}

static int objects_add(void *arg, struct span key, uint64_t len)
{
	struct object_listing *l = arg;
	struct verify_objects *o = l->ret;
	struct span name = span_from(key, l->z->prefix_len);
	uint64_t index[LIMIT_RANK];

	if (objects_is_metadata(name))
		return 0;
	if (!zarr_chunk_key_parse(&l->z->meta, name, index)) {
		if (is_of_other(l, key, name))
			return 0;
		o->n_strange++;
		if (!o->strange)
			o->strange = span_dup_str(key);
		return 0;
	}
	if (!array_reserve(o->object, o->cap, o->n + 1))
		return fail(-ENOMEM, "cannot list %zu chunks", o->n + 1);
	o->object[o->n++] = objects_number_of(&l->z->meta, index);
	return 0;
}

static int objects_by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Without a listing: every object of the grid is looked for when it is to be decoded. */
static int guess(struct verify_objects *o)
{
	size_t n = (size_t)MIN(o->grid, (uint64_t)GUESSED_MAX);

	o->is_guessed = true;
	if (!array_reserve(o->object, o->cap, n))
		return fail(-ENOMEM, "cannot list %zu chunks", n);
	for (; o->n < n; o->n++)
		o->object[o->n] = o->n;
	return 0;
}

int verify_objects_list(const struct verify_tree *t, struct zarr *z, struct verify_objects *ret)
{
	struct object_listing l = { t, z, ret };
	int r;

	ret->grid = zarr_meta_objects(&z->meta);
	if (z->kv->no_list)
		return guess(ret);
	r = kv_list(z->kv, span_of(z->prefix, z->prefix_len), objects_add, &l);
	if (r < 0)
		return r;
	if (ret->n)
		qsort(ret->object, ret->n, sizeof(*ret->object), objects_by_number);
	return r;
}

void verify_objects_release(struct verify_objects *o)
{
	free(o->object);
	free(o->strange);
}
