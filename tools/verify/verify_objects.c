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

struct object_listing {
	const struct verify_tree *t;
	const struct zarr *z;
	struct verify_objects *ret;
};

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
	static const char *const metadata[] = { ".zarray", "zarr.json", ".zattrs", ".zgroup" };
	struct span name = span_from(key, l->z->prefix_len);
	const struct zarr_meta *m = &l->z->meta;
	uint64_t index[LIMIT_RANK], number = 0;

	for (size_t i = 0; i < ARRAY_LEN(metadata); i++)
		if (span_eq(name, span_str(metadata[i])))
			return 0;
	if (!zarr_chunk_key_parse(m, name, index)) {
		if (is_of_other(l, key, name))
			return 0;
		o->n_strange++;
		if (!o->strange)
			o->strange = span_dup_str(key);
		return 0;
	}
	if (!array_reserve(o->object, o->cap, o->n + 1))
		return fail(-ENOMEM, "cannot list %zu chunks", o->n + 1);
	for (unsigned i = 0; i < m->rank; i++)
		number = number * m->grid[i] + index[i];
	o->object[o->n++] = number;
	return 0;
}

static int objects_by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int verify_objects_list(const struct verify_tree *t, struct zarr *z, struct verify_objects *ret)
{
	struct object_listing l = { t, z, ret };
	size_t most;
	int r;

	ret->grid = zarr_meta_objects(&z->meta);
	if (!z->kv->no_list) {
		r = kv_list(z->kv, span_of(z->prefix, z->prefix_len), objects_add, &l);
		if (r >= 0 && ret->n)
			qsort(ret->object, ret->n, sizeof(*ret->object), objects_by_number);
		return r;
	}
	/* Every object of the grid is looked for when it is to be decoded. */
	ret->is_guessed = true;
	most = (size_t)MIN(ret->grid, (uint64_t)GUESSED_MAX);
	if (!array_reserve(ret->object, ret->cap, most))
		return fail(-ENOMEM, "cannot list %zu chunks", most);
	for (; ret->n < most; ret->n++)
		ret->object[ret->n] = ret->n;
	return 0;
}

void verify_objects_release(struct verify_objects *o)
{
	free(o->object);
	free(o->strange);
}
