/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_ahead.h - read-ahead of listings and beginnings of objects: several requests at once, whose
 * answers the cache of directories (dir_cache.h) has until they are wanted.
 *
 * A reader of one of the documents of a checkpoint reads the others, too, and looks into the
 * directories of its items and data files. So the first read of a document requests all of these at
 * once: one round trip instead of one for each.
 */
#ifndef PYTREEFS_CORE_REMOTE_STORE_AHEAD_H
#define PYTREEFS_CORE_REMOTE_STORE_AHEAD_H

#include "core/remote/source/first_range.h"

#define AHEAD_LISTINGS 32
#define AHEAD_RANGES 9

/* Requests that are under way, all zero but for s at first. */
struct store_ahead {
	struct store *s;
	struct store_listing *listing[AHEAD_LISTINGS];
	struct first_range range[AHEAD_RANGES];
	size_t n_listings, n_ranges;
};

/* Request the first page of a directory, of at most `most` names; 0: the server's default. */
int store_ahead_list(struct store_ahead *a, const char *path, unsigned most);
/*
 * Wait for all answers, and ignore errors: a reader that needs what is missing requests it itself.
 * Returns the number of listings up to the last one that exists.
 */
size_t store_ahead_end(struct store_ahead *a);

/* Whether a name is that of a document that is fetched along with others. */
bool document_is_name(const char *name);
/*
 * Before a range of a file is read: if it is a document, fetch what its reader needs next. Waits
 * for the server.
 */
void store_ahead_of_document(struct store *s, const struct io_file *file, uint64_t off, size_t n);

#endif
