/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_listing.c - collects the names of a directory for one listing, and opens several at once.
 */
#include <assert.h>
#include <dirent.h>

#include "core/base/array.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/pool.h"
#include "handlers/namespace/ns.h"

#define HELD 64 /* entries that are looked up at once */

/*
 * cp(1) copies in the order of the numbers: first the document of a tree, by which a draft knows
 * the format of the arrays that follow.
 */
uint64_t node_ino(const struct node *dir, struct span name)
{
	uint64_t ino = hash64(name, dir->ino * 0x9e3779b97f4a7c15);

	if (span_eq(name, span_str("_METADATA")))
		ino >>= 28;
	/* 0 is not a valid inode number, and 1 is that of the root. */
	return ino > 1 ? ino : ino + 2;
}

int listing_add(struct listing *l, const struct node *dir, struct span name, unsigned char type)
{
	int r;

	if (!array_reserve(l->entry, l->cap, l->n + 1))
		return fail(-ENOMEM, "cannot list %zu names", l->n + 1);
	l->entry[l->n] = (struct listing_entry){ .name = l->names.n,
						 .ino = node_ino(dir, name),
						 .type = type };
	r = buf_add_span(&l->names, name);
	if (r < 0)
		return r;
	r = buf_add_byte(&l->names, '\0');
	if (r < 0)
		return r;
	l->n++;
	return r;
}

int listing_add_dots(struct listing *l, const struct node *dir)
{
	int r = listing_add(l, dir, span_str("."), DT_DIR);

	return r < 0 ? r : listing_add(l, dir, span_str(".."), DT_DIR);
}

static int node_listing_by_name(const void *a, const void *b, void *names)
{
	const struct listing_entry *x = a, *y = b;

	return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

void listing_sort(struct listing *l, size_t from)
{
	if (from < l->n)
		qsort_r(l->entry + from, l->n - from, sizeof(*l->entry), node_listing_by_name,
			l->names.p);
}

/* ---- look-ups of several entries at once ---- */

struct look_up {
	struct node *dir, *node;
	const char *name;
};

/* An error is dropped: the caller looks the entry up again, and gets it then. */
static int node_listing_look_up(void *arg)
{
	struct look_up *u = arg;
	struct stat st;

	if (node_lookup(u->dir, span_str(u->name), &u->node) >= 0)
		node_stat(u->node, &st);
	err_clear();
	return 0;
}

static void release_held(struct listing *l)
{
	while (l->n_held)
		node_unref(l->held[--l->n_held], 1);
	free(take(l->held));
}

void listing_hold(struct listing *l, struct node *dir, size_t i)
{
	auto_free struct look_up *task = NULL;
	struct ckpt *ckpt = dir->ns->ckpt;
	size_t n = MIN(l->n - i, (size_t)HELD);

	assert(i >= 2 && i < l->n);
	if (!ckpt->env.in_store || dir->ops->lazy_list ||
	    (i >= l->held_from && i - l->held_from < l->n_held))
		return;
	release_held(l);
	task = calloc(n, sizeof(*task));
	l->held = calloc(n, sizeof(*l->held));
	if (!task || !l->held)
		return;
	for (size_t k = 0; k < n; k++)
		task[k] = (struct look_up){ .dir = dir, .name = listing_name(l, i + k) };
	pool_run(ckpt->pool, node_listing_look_up, task, sizeof(*task), n);
	for (size_t k = 0; k < n; k++)
		l->held[k] = task[k].node;
	l->held_from = i;
	l->n_held = n;
}

void listing_release(struct listing *l)
{
	release_held(l);
	free(l->entry);
	buf_release(&l->names);
	*l = (struct listing){ 0 };
}
