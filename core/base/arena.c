/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - bump allocator over a list of blocks that double up to 1 MiB.
 */
#include "core/base/arena.h"

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/meter.h"

struct arena_block {
	struct arena_block *next;
	_Alignas(16) uint8_t data[];
};

static int arena_grow(struct arena *a, size_t n)
{
	size_t cap = a->cap ? MIN(a->cap * 2, (size_t)(1 * MiB)) : a->first ? a->first : 1024;
	struct arena_block *b;
	int r;

	cap = MAX(cap, n);
	r = a->metered ? meter_charge(sizeof(*b) + cap) : 0;
	if (r < 0) {
		err_refused(r);
		return -ENOMEM;
	}
	b = malloc(sizeof(*b) + cap);
	if (!b) {
		meter_release(a->metered ? sizeof(*b) + cap : 0);
		return -ENOMEM;
	}
	a->charged += a->metered ? sizeof(*b) + cap : 0;
	b->next = a->top;
	a->top = b;
	a->used = 0;
	a->cap = cap;
	a->total += sizeof(*b) + cap;
	return 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
	void *p;

	if (n > SIZE_MAX - 64)
		return NULL;
	/*
	 * Even an allocation of no bytes has an address, so NULL always means that memory is short.
	 */
	n = (MAX(n, (size_t)1) + 15) & ~(size_t)15;
	if (a->cap - a->used < n && arena_grow(a, n) < 0)
		return NULL;
	p = a->top->data + a->used;
	a->used += n;
	return p;
}

void *arena_calloc(struct arena *a, size_t count, size_t size)
{
	uint64_t n;
	void *p;

	if (!mul_fits(count, size, &n))
		return NULL;
	p = arena_alloc(a, n);
	if (p && n)
		memset(p, 0, n);
	return p;
}

uint8_t *arena_dup(struct arena *a, struct span s)
{
	uint8_t *p = s.n == SIZE_MAX ? NULL : arena_alloc(a, s.n + 1);

	if (!p)
		return NULL;
	if (s.n)
		memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return p;
}

int arena_keep(struct arena *a, struct span text, struct span *ret)
{
	uint8_t *copy = arena_dup(a, text);

	if (!copy)
		return fail(-ENOMEM, "cannot allocate %zu bytes", text.n);
	*ret = span_of(copy, text.n);
	return 0;
}

char *arena_str(struct arena *a, const char *s)
{
	return (char *)arena_dup(a, span_str(s));
}

void arena_release(struct arena *a)
{
	while (a->top) {
		struct arena_block *next = a->top->next;

		free(a->top);
		a->top = next;
	}
	meter_release(a->charged);
	*a = (struct arena){ .metered = a->metered, .first = a->first };
}

void arena_unmeter(struct arena *a)
{
	meter_release(a->charged);
	a->charged = 0;
	a->metered = false;
}
