/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looked.h - objects that were looked up one by one, where no listing is at hand: the last ones,
 * and those that a thread is asking for, which others wait for instead of asking, too.
 */
#ifndef PYTREEFS_CORE_STORE_LOOKED_H
#define PYTREEFS_CORE_STORE_LOOKED_H

#include <pthread.h>

#include "core/io/io_store.h"

#define LOOKED_MAX 64

struct looked_object {
	char *path; /* NULL: free */
	struct io_object object;
	int64_t expires;
};

struct looked {
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t ended;
	struct looked_object last[LOOKED_MAX];
	size_t next;
	struct looked_turn *turns;
	int64_t lifetime_ns;
};

/* A thread that asks for an object. */
struct looked_turn {
	const char *path; /* NULL: nobody waits for it */
	struct looked_turn *next;
};

void looked_init(struct looked *l, unsigned lifetime_ms);
void looked_release(struct looked *l);
/*
 * 1: *ret is known. 0: the caller asks, and says so by looked_end() with the same turn. Waits for a
 * thread that asks for the same, once.
 */
int looked_begin(struct looked *l, const char *path, struct looked_turn *turn,
		 struct io_object *ret);
/* object: to be remembered; NULL: nothing is. */
void looked_end(struct looked *l, const char *path, struct looked_turn *turn,
		const struct io_object *object);
/* It is not the object that it was. */
void looked_forget(struct looked *l, const char *path);
/* All: this process wrote, or paths have another meaning. */
void looked_clear(struct looked *l);

#endif
