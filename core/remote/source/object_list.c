/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_list.c - listings of a store's directories, and the last ones, which are kept.
 */
#include "core/remote/source/object_list.h"

#include "core/base/array.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/limits.h"

#define LISTINGS_MAX 512
#define ENTRIES_MAX 100000 /* of all kept listings */

int object_list_new(const char *path, struct object_list **ret)
{
	struct object_list *l = calloc(1, sizeof(*l));

	if (l)
		l->path = strdup(path);
	if (!l || !l->path) {
		free(l);
		return fail(-ENOMEM, "cannot list '%s'", path);
	}
	l->refs = 1;
	*ret = l;
	return 0;
}

int object_list_add(struct object_list *l, struct span name, const struct io_object *o)
{
	struct object_list_entry *e;

	/* A file system cannot have such names, and readers of checkpoints never look for them. */
	if (!name.n || name.n > LIMIT_NAME_BYTES || memchr(name.p, 0, name.n) ||
	    span_eq(name, span_str(".")) || span_eq(name, span_str("..")))
		return 0;
	if (!array_reserve(l->entry, l->cap, l->n + 1))
		return fail(-ENOMEM, "cannot list '%s'", l->path);
	e = &l->entry[l->n];
	*e = (struct object_list_entry){ .name = span_dup_str(name),
					 .tag = strdup(o->tag),
					 .is_dir = o->is_dir,
					 .size = o->size,
					 .mtime = o->mtime };
	if (!e->name || !e->tag) {
		free(e->name);
		free(e->tag);
		return fail(-ENOMEM, "cannot list '%s'", l->path);
	}
	l->n++;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct object_list_entry *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : (int)y->is_dir - (int)x->is_dir;
}

void object_list_finish(struct object_list *l)
{
	size_t n = 0;

	if (l->n)
		qsort(l->entry, l->n, sizeof(*l->entry), by_name);
	for (size_t i = 0; i < l->n; i++) {
		if (n && !strcmp(l->entry[n - 1].name, l->entry[i].name)) {
			free(l->entry[i].name);
			free(l->entry[i].tag);
		} else {
			l->entry[n++] = l->entry[i];
		}
	}
	l->n = n;
}

static int compare_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct object_list_entry *)entry)->name);
}

bool object_list_find(const struct object_list *l, const char *name, struct io_object *ret)
{
	const struct object_list_entry *e =
		l->n ? bsearch(name, l->entry, l->n, sizeof(*l->entry), compare_name) : NULL;

	if (!e)
		return false;
	*ret = (struct io_object){ .is_dir = e->is_dir, .size = e->size, .mtime = e->mtime };
	memcpy(ret->tag, e->tag, MIN(strlen(e->tag), sizeof(ret->tag) - 1));
	return true;
}

bool object_list_lacks(const struct object_list *l, const char *name)
{
	for (const char *const *k = l->asked; k && *k; k++)
		if (!strcmp(*k, name))
			return true;
	return !l->is_partial;
}

struct timespec object_list_newest(const struct object_list *l)
{
	struct timespec t = { 0 };

	for (size_t i = 0; i < l->n; i++)
		if (l->entry[i].mtime.tv_sec > t.tv_sec)
			t = l->entry[i].mtime;
	return t;
}

void object_list_free(struct object_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++) {
		free(l->entry[i].name);
		free(l->entry[i].tag);
	}
	free(l->entry);
	free(l->path);
	free(l);
}

/* ---- the last listings ---- */

void object_lists_init(struct object_lists *c, unsigned lifetime_ms)
{
	*c = (struct object_lists){ .lifetime_ns = (int64_t)lifetime_ms * 1000000 };
	pthread_mutex_init(&c->lock, NULL);
}

void object_lists_release(struct object_lists *c)
{
	object_lists_drop(c);
	pthread_mutex_destroy(&c->lock);
}

/* Called with the lock held. */
static void unref(struct object_list *l)
{
	if (--l->refs == 0)
		object_list_free(l);
}

/* Drop listings that are too old or too many, and those of `path`. Called with the lock held. */
static void drop_some(struct object_lists *c, const char *path)
{
	int64_t now = clock_ns();
	size_t n = 0, entries = 0;

	for (struct object_list **at = &c->newest; *at;) {
		struct object_list *l = *at;

		n++;
		entries += l->n;
		if (n < LISTINGS_MAX && entries < ENTRIES_MAX && l->expires > now &&
		    strcmp(l->path, path) != 0) {
			at = &l->next;
			continue;
		}
		n--;
		entries -= l->n;
		*at = l->next;
		unref(l);
	}
}

struct object_list *object_lists_get(struct object_lists *c, const char *path)
{
	struct object_list *found = NULL;
	int64_t now = clock_ns();

	pthread_mutex_lock(&c->lock);
	for (struct object_list *l = c->newest; l && !found; l = l->next)
		if (l->expires > now && !strcmp(l->path, path))
			found = l;
	if (found)
		found->refs++;
	pthread_mutex_unlock(&c->lock);
	return found;
}

void object_lists_put(struct object_lists *c, struct object_list *l)
{
	pthread_mutex_lock(&c->lock);
	drop_some(c, l->path);
	l->expires = clock_ns() + c->lifetime_ns;
	l->refs++;
	l->next = c->newest;
	c->newest = l;
	pthread_mutex_unlock(&c->lock);
}

void object_lists_drop(struct object_lists *c)
{
	pthread_mutex_lock(&c->lock);
	while (c->newest) {
		struct object_list *l = c->newest;

		c->newest = l->next;
		unref(l);
	}
	pthread_mutex_unlock(&c->lock);
}

void object_lists_descend(struct object_lists *c, const char *path)
{
	size_t n = strlen(path);

	pthread_mutex_lock(&c->lock);
	for (struct object_list **at = &c->newest; *at;) {
		struct object_list *l = *at;
		bool is_below = !strncmp(l->path, path, n) && (!l->path[n] || l->path[n] == '/');

		if (!n || (is_below && l->refs == 1)) {
			size_t skip = n + (n && l->path[n] == '/');

			memmove(l->path, l->path + skip, strlen(l->path + skip) + 1);
			at = &l->next;
		} else {
			*at = l->next;
			unref(l);
		}
	}
	pthread_mutex_unlock(&c->lock);
}

void object_lists_unref(struct object_lists *c, struct object_list *l)
{
	pthread_mutex_lock(&c->lock);
	unref(l);
	pthread_mutex_unlock(&c->lock);
}
