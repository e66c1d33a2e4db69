/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_listing.c - collects the names of a directory for one listing.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "handlers/namespace/node.h"

int listing_add(struct listing *l, const struct node *dir, struct span name, unsigned char type)
{
	int r;

	if (!array_reserve(l->entry, l->cap, l->n + 1))
		return fail(-ENOMEM, "cannot list %zu names", l->n + 1);
	l->entry[l->n] = (struct listing_entry){ .name = l->names.n,
						 .ino = node_ino(dir, name),
						 .type = type };
	r = buf_add_span(&l->names, name);
	if (r >= 0)
		r = buf_add_byte(&l->names, '\0');
	if (r >= 0)
		l->n++;
	return r;
}

static int by_name(const void *a, const void *b, void *names)
{
	const struct listing_entry *x = a, *y = b;

	return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

void listing_sort(struct listing *l, size_t from)
{
	if (from < l->n)
		qsort_r(l->entry + from, l->n - from, sizeof(*l->entry), by_name, l->names.p);
}

void listing_release(struct listing *l)
{
	free(l->entry);
	buf_release(&l->names);
	*l = (struct listing){ 0 };
}
