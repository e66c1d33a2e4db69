/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - JSON documents as immutable trees, and the two spellings that we write.
 *
 * cJSON does the parsing; what it cannot hold is pre-escaped (json.c says how):
 * 64-bit integers exactly, NUL inside strings, and the bare words NaN, Infinity
 * and -Infinity that Python writes. The last of two members with one name wins,
 * as in every reader of these formats.
 *
 * A document is owned by the caller of json_parse() and immutable after it; all
 * nodes and strings live as long as the document.
 */
#ifndef PYTREEFS_JSON_H
#define PYTREEFS_JSON_H

#include "core/base/arena.h"

enum json_kind {
	JSON_UNKNOWN,
	JSON_NULL,
	JSON_BOOL,
	JSON_INT,   /* fits int64_t */
	JSON_UINT,  /* above INT64_MAX, fits uint64_t */
	JSON_FLOAT, /* has a fraction or exponent, is beyond 64 bits, or NaN or infinite */
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

struct json {
	enum json_kind kind;
	bool is_beyond;   /* FLOAT: an integer beyond 64 bits, or more than a double holds; d is not
			     it */
	struct span name; /* member name inside an object, else empty */
	union {
		bool b;
		int64_t i;
		uint64_t u;
		double d;
		struct span s; /* UTF-8, may hold NUL; a NUL follows it */
		struct {
			const struct json *items; /* in document order */
			const uint32_t *sorted;   /* big objects: item numbers by name; else NULL */
			size_t n;
		};
	};
};

struct json_doc {
	struct arena arena;
	const struct json *root;
};

/*
 * Parse text. what names the subject in messages ("'_METADATA'"), which give
 * line and column. -EUCLEAN: not JSON, or deeper than LIMIT_JSON_DEPTH; -EFBIG: longer
 * than LIMIT_JSON_BYTES or more than LIMIT_JSON_NODES values (json_pull.h reads those). On failure
 * ret is untouched.
 */
int json_parse(struct span text, const char *what, struct json_doc *ret);
void json_release(struct json_doc *doc);
#define auto_json __attribute__((cleanup(json_release))) struct json_doc

/* The member, or NULL when it is absent or obj is not an object (or is NULL). */
const struct json *json_member(const struct json *obj, const char *name);
const struct json *json_member_span(const struct json *obj, struct span name);

static inline bool json_is(const struct json *j, enum json_kind kind)
{
	return j && j->kind == kind;
}

/*
 * Typed members. Each returns 1 when the member is there and has the type, 0
 * when it is absent (ret untouched), -EUCLEAN with a note naming what and member
 * when it has another type. A number with integral value (5.0) passes as integer.
 */
int json_get_int(const struct json *obj, const char *name, const char *what, int64_t *ret);
int json_get_bool(const struct json *obj, const char *name, const char *what, bool *ret);
int json_get_str(const struct json *obj, const char *name, const char *what, struct span *ret);
int json_get_array(const struct json *obj, const char *name, const char *what,
		   const struct json **ret);
int json_get_object(const struct json *obj, const char *name, const char *what,
		    const struct json **ret);

/* The number as an integer: false when it is not a number or has a fraction. */
bool json_as_int(const struct json *j, int64_t *ret);
bool json_as_double(const struct json *j, double *ret);

enum json_style {
	JSON_PYTHON,        /* ", " and ": ", non-ASCII as \uXXXX, bare NaN: json.dumps */
	JSON_PYTHON_SORTED, /* with members sorted: json.dumps(sort_keys=True) */
	JSON_COMPACT,       /* no space, UTF-8 as it is, members sorted: TensorStore */
	JSON_PRETTY,        /* two spaces a level, UTF-8 as it is: for people */
};

int json_print(struct buf *out, const struct json *j, enum json_style style);
/* [1, 2]; in JSON_COMPACT [1,2]. */
int json_put_uints(struct buf *out, const uint64_t *v, size_t n, enum json_style style);
/* One string with quotes. Bytes that are not UTF-8 become U+FFFD. */
int json_put_str(struct buf *out, struct span s, enum json_style style);
/*
 * Shortest digits that read back equal, always with '.', 'e' or a word: 1.0,
 * 1e+16, and NaN and infinities as bare words (JSON_PYTHON*) or strings (others).
 */
int json_put_double(struct buf *out, double d, enum json_style style);

/* Shared by json.c and json_pull.c: tokens, and the place of a failure. */
/* Length of the number at the start of s, the words NaN, Infinity and -Infinity included; or 0. */
size_t json_number_len(struct span s);
/* The four hexadecimal digits at the start of s; false when they are not there. */
bool json_hex4(struct span s, unsigned *ret);
/* -EUCLEAN with the note "what: line 2, column 7: why"; at is a position in text. */
int json_bad(const char *what, struct span text, size_t at, const char *why);

/* Byte length of the valid UTF-8 sequence at s (1 to 4), or 0. */
size_t utf8_len(struct span s);
/* Whether all of s is UTF-8. */
bool utf8_valid(struct span s);
/* The code point of a valid sequence of n bytes. */
uint32_t utf8_code(const uint8_t *p, size_t n);

#endif
