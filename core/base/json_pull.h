/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_pull.h - JSON read value by value, for documents too large for a tree of nodes.
 *
 * `_METADATA` of a million leaves is 300 MB of text; as json_parse() nodes it would be gigabytes. A
 * pull reader goes through the text once, front to back, in constant memory: the caller asks for
 * the kind of the next value, and takes, enters or skips it.
 *
 * 	r = json_pull_enter(&p, JSON_OBJECT);
 * 	while (r >= 0 && (r = json_pull_next(&p, &name)) > 0)
 * 		r = span_eq(name, span_str("n")) ? json_pull_int(&p, &n) : json_pull_skip(&p);
 *
 * It accepts exactly what json_parse() accepts, and checks skipped values as strictly as others. A
 * failure is final: every later call returns it again.
 */
#ifndef PYTREEFS_JSON_PULL_H
#define PYTREEFS_JSON_PULL_H

#include "core/base/json.h"
#include "core/base/limits.h"

struct json_pull {
	struct span text; /* borrowed */
	const char *what; /* for messages; borrowed */
	size_t at;        /* next byte of text */
	unsigned depth;   /* containers that are open */
	bool fresh;       /* no member or element of the innermost container was read yet */
	int error;        /* the first failure */
	uint64_t object[LIMIT_JSON_PULL_DEPTH / 64]; /* bit i: level i is an object */
	struct buf name, str; /* the last name and string that had escapes, decoded */
};

/* Begin at the start of text; reads nothing yet. */
void json_pull_init(struct json_pull *p, struct span text, const char *what);
void json_pull_release(struct json_pull *p);
#define auto_json_pull __attribute__((cleanup(json_pull_release))) struct json_pull

/* The kind of the next value; JSON_FLOAT for any number. Consumes nothing. */
int json_pull_kind(struct json_pull *p);
/* Enter a container of that kind; -EUCLEAN when the next value is something else. */
int json_pull_enter(struct json_pull *p, enum json_kind kind);
/*
 * Advance to the next member or element of the innermost container. Returns 1, or 0 when the
 * container has ended; it has then been left. For objects ret_name is set, and valid until the next
 * call of this function; it may be NULL.
 */
int json_pull_next(struct json_pull *p, struct span *ret_name);

/* The following take one value; -EUCLEAN when it is of another kind. */
/* ret is valid until the next string is taken, and at most as long as the text. */
int json_pull_str(struct json_pull *p, struct span *ret);
/* A number with an integral value (5.0) is accepted. */
int json_pull_int(struct json_pull *p, int64_t *ret);
/* Digits alone: neither a sign nor 5.0. */
int json_pull_uint(struct json_pull *p, uint64_t *ret);
/* An array of sizes; -EFBIG when there are more than LIMIT_RANK. */
int json_pull_shape(struct json_pull *p, uint64_t *ret, unsigned *ret_rank);
int json_pull_bool(struct json_pull *p, bool *ret);
/* Skip a value of any kind. */
int json_pull_skip(struct json_pull *p);
/* Skip a value and return its text verbatim; borrowed from the document. */
int json_pull_raw(struct json_pull *p, struct span *ret);
/*
 * Skip a value and append it in Python's spelling (JSON_PYTHON), with integers of any length in
 * full.
 */
int json_pull_respell(struct json_pull *p, struct buf *out);
/* -EUCLEAN when anything but white space is left. */
int json_pull_end(struct json_pull *p);
/*
 * Whether a text is a JSON document: 0, or -EUCLEAN; -ENOMEM when that is not known. Leaves no
 * note.
 */
int json_pull_check(struct span text);

/* -EUCLEAN with a note that gives the position of the current value. */
int json_pull_bad(struct json_pull *p, const char *why);

#endif
