/* SPDX-License-Identifier: Apache-2.0 */
/*
 * along.h - read-ahead of the documents and listings of a checkpoint.
 *
 * A reader of one of the documents of a checkpoint reads the others, too, and looks into the
 * directories of its items and data files. So the first read of a document requests all of these at
 * once: one round trip instead of one for each. A look-up by a range of an object leaves the bytes
 * here for the read that follows.
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
/* Make `path` the root: entries below it remain, with paths relative to it. */
void along_descend(struct along *a, const char *path);
void along_release(struct along *a);
/*
 * Whether an object is to be looked up by a range of it. Each such look-up takes a round trip,
 * while one listing answers for a whole directory: if that can be listed, only the first few
 * objects are looked up by a range.
 */
bool along_by_range(struct along *a, const char *path, bool can_list);
/* Whether a name is that of a document that is fetched along with others. */
bool along_is_document(const char *name);
/*
 * Keep n bytes at off of an object for the next read of them. Takes p, also when memory is short:
 * then the bytes are read again.
 */
void along_put(struct along *a, const char *path, const struct io_object *object, uint64_t off,
	       size_t n, uint8_t *p);
/*
 * Read as many bytes of the range as are here, from its beginning on, after fetching what its
 * document needs; returns their number. The caller reads the rest as usual, and meets any error
 * there. Waits for the server.
 */
size_t along_read(struct store *s, const struct io_file *file, uint64_t off, size_t n, void *p);

#endif
