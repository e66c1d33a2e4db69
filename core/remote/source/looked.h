/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looked.h - objects that were looked up one by one, without a listing: the results of the last
 * look-ups, and those under way, whose result other threads wait for instead of asking, too.
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

/* A look-up under way. */
struct looked_turn {
	const char *path; /* NULL: no other thread waits for it */
	struct looked_turn *next;
};

void looked_init(struct looked *l, unsigned lifetime_ms);
void looked_release(struct looked *l);
/*
 * Returns 1 if *ret is known. 0: the caller has to look the object up, and then call looked_end()
 * with the same turn. Waits, but only once, for a thread that is looking up the same object.
 */
int looked_begin(struct looked *l, const char *path, struct looked_turn *turn,
		 struct io_object *ret);
/* object is the result to remember; NULL: there is nothing to remember. */
void looked_end(struct looked *l, const char *path, struct looked_turn *turn,
		const struct io_object *object);
/* Forget a path whose object was replaced. */
void looked_forget(struct looked *l, const char *path);
/* Forget all paths, after this process wrote to the bucket, or the root changed. */
void looked_clear(struct looked *l);

#endif
