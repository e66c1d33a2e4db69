/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looked.c - objects that were looked up one by one.
 */
#include "core/remote/source/looked.h"

#include "core/base/clock.h"

void looked_init(struct looked *l, unsigned lifetime_ms)
{
	*l = (struct looked){ .lifetime_ns = (int64_t)lifetime_ms * 1000000 };
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->ended, NULL);
}

void looked_release(struct looked *l)
{
	looked_clear(l);
	pthread_cond_destroy(&l->ended);
	pthread_mutex_destroy(&l->lock);
}

/* Returns NULL for an unknown path. Called with the lock held. */
static struct looked_object *find(struct looked *l, const char *path)
{
	for (size_t i = 0; i < LOOKED_MAX; i++)
		if (l->last[i].path && !strcmp(l->last[i].path, path))
			return &l->last[i];
	return NULL;
}

/* Called with the lock held. */
static bool is_asked(const struct looked *l, const char *path)
{
	for (const struct looked_turn *t = l->turns; t; t = t->next)
		if (!strcmp(t->path, path))
			return true;
	return false;
}

int looked_begin(struct looked *l, const char *path, struct looked_turn *turn,
		 struct io_object *ret)
{
	const struct looked_object *o;
	bool was_asked;
	int found;

	pthread_mutex_lock(&l->lock);
	was_asked = is_asked(l, path);
	while (is_asked(l, path))
		pthread_cond_wait(&l->ended, &l->lock);
	o = find(l, path);
	found = o && o->expires > clock_ns();
	if (found)
		*ret = o->object;
	/* If the other thread's look-up failed, all that waited for it ask at the same time: no
	 * turn. */
	*turn = (struct looked_turn){ .path = found || was_asked ? NULL : path, .next = l->turns };
	if (turn->path)
		l->turns = turn;
	pthread_mutex_unlock(&l->lock);
	return found;
}

/* Called with the lock held. */
static void remember(struct looked *l, const char *path, const struct io_object *object)
{
	struct looked_object *o = find(l, path);
	char *copy = strdup(path);

	if (!o) {
		o = &l->last[l->next];
		l->next = (l->next + 1) % LOOKED_MAX;
	}
	free(o->path);
	*o = (struct looked_object){ copy, *object, clock_ns() + l->lifetime_ns };
}

void looked_end(struct looked *l, const char *path, struct looked_turn *turn,
		const struct io_object *object)
{
	struct looked_turn **at = &l->turns;

	pthread_mutex_lock(&l->lock);
	if (object)
		remember(l, path, object);
	while (turn->path && *at != turn)
		at = &(*at)->next;
	if (turn->path)
		*at = turn->next;
	pthread_cond_broadcast(&l->ended);
	pthread_mutex_unlock(&l->lock);
}

void looked_forget(struct looked *l, const char *path)
{
	struct looked_object *o;

	pthread_mutex_lock(&l->lock);
	o = find(l, path);
	if (o)
		o->expires = 0;
	pthread_mutex_unlock(&l->lock);
}

void looked_clear(struct looked *l)
{
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < LOOKED_MAX; i++) {
		free(l->last[i].path);
		l->last[i].path = NULL;
	}
	pthread_mutex_unlock(&l->lock);
}
