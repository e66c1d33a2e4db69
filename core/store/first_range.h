/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first_range.h - a look-up of an object by a range of it: the answer has the object's size and
 * tag, and the bytes that are read next, which along.h keeps for that read.
 */
#ifndef PYTREEFS_CORE_STORE_FIRST_RANGE_H
#define PYTREEFS_CORE_STORE_FIRST_RANGE_H

#include "core/store/url_store_impl.h"

/* Of a longer one only the beginning is asked for: the rest is better asked for in parts, all at
 * once. */
#define FIRST_RANGE_MAX (4 << 20)

/* The caller's memory, at the same place from begin to end; release accepts a zeroed one. */
struct first_range {
	struct http_request req;
	struct http_piece piece;
};

/* Ask for it; url: the object's, taken, or NULL. */
int first_range_begin(struct store *s, const char *path, char *url, const struct io_want *want,
		      struct first_range *ret);
/* The beginning of an object that may exist; what fails is not asked for again. */
int first_range_guess(struct store *s, const char *path, struct first_range *ret);
/*
 * Wait for the answer. -EUCLEAN: the object ends before the range, or at its beginning, and is to
 * be looked up in another way. *ret_text, which may be NULL, is the range when it is all of the
 * object, and borrowed until first_range_keep() or first_range_release().
 */
int first_range_end(struct store *s, struct first_range *first, struct io_object *ret,
		    struct span *ret_text);
/* For who reads it next. */
void first_range_keep(struct store *s, const char *path, const struct io_object *object,
		      struct first_range *first);
void first_range_release(struct first_range *first);

#endif
