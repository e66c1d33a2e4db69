/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first_range.h - a look-up of an object by a range of it: the answer has the object's size and
 * tag, and the bytes that are read next, which the cache of directories keeps for that read.
 */
#ifndef PYTREEFS_CORE_STORE_FIRST_RANGE_H
#define PYTREEFS_CORE_STORE_FIRST_RANGE_H

#include "core/remote/source/url_store_impl.h"

/* At most this much is requested of a longer range: the rest is faster in parts, all at once. */
#define FIRST_RANGE_MAX (4 << 20)

/* In the caller's memory, not moved between begin and end; release accepts a zeroed one. */
struct first_range {
	char *path;
	struct io_object object; /* set by first_range_end(), unless its tag is known before */
	struct http_request req;
	struct http_piece piece;
};

/*
 * Send the request. Takes url, the object's; NULL: it is made from the path. want NULL: request the
 * attributes only. After a failure ret is zeroed.
 */
int first_range_begin(struct store *s, const char *path, char *url, const struct io_want *want,
		      struct first_range *ret);
/* Request the beginning of an object that may exist, in a single try. */
int first_range_guess(struct store *s, const char *path, struct first_range *ret);
/* Request all bytes of an object that is known, with its tag. */
int first_range_whole(struct store *s, const char *path, const struct io_object *object,
		      struct first_range *ret);
/*
 * Wait for the answer. -EUCLEAN: the object ends before the range, or at its beginning, and has to
 * be looked up in another way.
 */
int first_range_end(struct store *s, struct first_range *first);
/* Keep the bytes for the next read of them (dir_cache.h). */
void first_range_keep(struct store *s, struct first_range *first);
void first_range_release(struct first_range *first);
#define auto_first_range __attribute__((cleanup(first_range_release))) struct first_range

#endif
