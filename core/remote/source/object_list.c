/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_list.c - one listing of a directory of a store.
 */
#include "core/remote/source/object_list.h"

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"

int object_list_new(const char *path, unsigned epoch, struct object_list **ret)
{
	struct object_list *l = calloc(1, sizeof(*l));

	if (l)
		l->path = strdup(path);
	if (!l || !l->path) {
		free(l);
		return fail(-ENOMEM, "cannot list '%s'", path);
	}
	atomic_init(&l->refs, 1);
	l->epoch = epoch;
	*ret = l;
	return 0;
}

static void list_entry_release(struct object_list_entry *e)
{
	free(e->name);
	free(e->tag);
}

int object_list_add(struct object_list *l, struct span name, const struct io_object *o)
{
	struct object_list_entry e;

	/* A file system cannot have such names, and readers of checkpoints never look for them. */
	if (!name.n || name.n > LIMIT_NAME_BYTES || memchr(name.p, 0, name.n) ||
	    span_eq(name, span_str(".")) || span_eq(name, span_str("..")))
		return 0;
	e = (struct object_list_entry){ .name = span_dup_str(name),
					.tag = strdup(o->tag),
					.is_dir = o->is_dir,
					.size = o->size,
					.mtime = o->mtime };
	if (!e.name || !e.tag || !array_reserve(l->entry, l->cap, l->n + 1)) {
		list_entry_release(&e);
		return fail(-ENOMEM, "cannot list '%s'", l->path);
	}
	l->entry[l->n++] = e;
	return 0;
}

static int list_by_name(const void *a, const void *b)
{
	const struct object_list_entry *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : (int)y->is_dir - (int)x->is_dir;
}

void object_list_finish(struct object_list *l)
{
	size_t n = 0;

	if (l->n)
		qsort(l->entry, l->n, sizeof(*l->entry), list_by_name);
	for (size_t i = 0; i < l->n; i++) {
		if (n && !strcmp(l->entry[n - 1].name, l->entry[i].name))
			list_entry_release(&l->entry[i]);
		else
			l->entry[n++] = l->entry[i];
	}
	l->n = n;
}

static int list_compare_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct object_list_entry *)entry)->name);
}

struct io_object object_list_get(const struct object_list_entry *e)
{
	struct io_object o = { .is_dir = e->is_dir, .size = e->size, .mtime = e->mtime };

	memcpy(o.tag, e->tag, MIN(strlen(e->tag), sizeof(o.tag) - 1));
	return o;
}

bool object_list_find(const struct object_list *l, const char *name, struct io_object *ret)
{
	const struct object_list_entry *e =
		l->n ? bsearch(name, l->entry, l->n, sizeof(*l->entry), list_compare_name) : NULL;

	if (e && ret)
		*ret = object_list_get(e);
	return e;
}

bool object_list_lacks(const struct object_list *l, const char *name)
{
	for (const char *const *k = l->asked; k && *k; k++)
		if (!strcmp(*k, name))
			return true;
	return !l->asked && !l->is_truncated;
}

struct io_object object_list_dir(const struct object_list *l)
{
	struct io_object dir = { .is_dir = true };

	for (size_t i = 0; i < l->n; i++)
		if (l->entry[i].mtime.tv_sec > dir.mtime.tv_sec)
			dir.mtime = l->entry[i].mtime;
	return dir;
}

void object_list_free(struct object_list *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	for (size_t i = 0; i < l->n; i++)
		list_entry_release(&l->entry[i]);
	free(l->entry);
	free(l->path);
	free(l);
}
