/* SPDX-License-Identifier: Apache-2.0 */
/*
 * along.h - what a reader of a checkpoint asks for next, fetched along with what it asks for first.
 *
 * Whoever reads one of the documents by which a checkpoint is known reads the others, too, and
 * looks into the directories that its items and data files are in. So the first read of one asks
 * for all of these at once: one round trip instead of one for each.
 */
#ifndef PYTREEFS_CORE_STORE_ALONG_H
#define PYTREEFS_CORE_STORE_ALONG_H

#include <pthread.h>

#include "core/io/io_store.h"

struct store;

/* Documents that were fetched, each with the tag of its object. */
struct along {
	pthread_mutex_t lock; /* protects what follows */
	struct along_document *newest;
	size_t bytes;
	int64_t lifetime_ns;
};

void along_init(struct along *a, unsigned lifetime_ms);
/* Of another root: what was fetched has other paths now. */
void along_clear(struct along *a);
void along_release(struct along *a);
/*
 * 1: p has the range. 0: it is to be read as any other, which also meets any error. Waits for the
 * server.
 */
int along_read(struct store *s, const struct io_file *file, uint64_t off, size_t n, void *p);

#endif
