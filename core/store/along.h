/* SPDX-License-Identifier: Apache-2.0 */
/*
 * along.h - what a reader of a checkpoint asks for next, fetched along with what it asks for first.
 *
 * Whoever reads one of the documents by which a checkpoint is known reads the others, too, and
 * looks into the directories that its items and data files are in. So the first read of one asks
 * for all of these at once: one round trip instead of one for each. A look-up that had to ask for
 * an object has its first bytes, too, and leaves them here for the read that follows.
 */
#ifndef PYTREEFS_CORE_STORE_ALONG_H
#define PYTREEFS_CORE_STORE_ALONG_H

#include <pthread.h>

#include "core/io/io_store.h"

struct store;

/* Documents and ranges that were fetched, each with the tag of its object. */
struct along {
	pthread_mutex_t lock; /* protects what follows */
	struct along_document *newest;
	size_t bytes;
	int64_t lifetime_ns;
	char *ranged; /* the directory in which objects were looked up by a range last */
	unsigned n_ranged;
};

void along_init(struct along *a, unsigned lifetime_ms);
/* Of a root that is deeper: what is below the path remains, with paths from there on. */
void along_descend(struct along *a, const char *path);
void along_release(struct along *a);
/*
 * Whether an object is to be looked up by a range of it. Each takes a round trip, where a listing
 * of its directory answers for all: then only the first few are, if it can be listed.
 */
bool along_by_range(struct along *a, const char *path, bool can_list);
/* Whether it is the name of a document that is fetched along with others. */
bool along_is_document(const char *name);
/*
 * n bytes at off of an object, for who reads them next. p is taken, also on failure: then they are
 * read again.
 */
void along_put(struct along *a, const char *path, const struct io_object *object, uint64_t off,
	       size_t n, uint8_t *p);
/*
 * How many bytes of the range, from its beginning on, p has now. The others are to be read as any,
 * which also meets any error. Waits for the server.
 */
size_t along_read(struct store *s, const struct io_file *file, uint64_t off, size_t n, void *p);

#endif
