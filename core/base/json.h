/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - JSON documents as immutable trees, and the two spellings that we write.
 *
 * cJSON does the parsing. json.c first escapes what cJSON cannot represent: 64-bit integers, NUL
 * inside strings, and the bare words NaN, Infinity and -Infinity that Python writes. Of two members
 * with the same name the last one wins, as in every reader of these formats.
 *
 * The caller of json_parse() owns the document, which is immutable; all nodes and strings live as
 * long as it does.
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
	JSON_FLOAT, /* with a fraction or exponent, beyond 64 bits, NaN or infinite */
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

struct json {
	enum json_kind kind;
	/* FLOAT: beyond 64 bits or the range of double; d is inexact, and `number` what it was */
	bool is_beyond;
	struct span name; /* member name inside an object, else empty */
	union {
		bool b;
		int64_t i;
		uint64_t u;
		struct {
			double d;
			struct span number; /* is_beyond: the text, which json_print() prints */
		};
		struct span s; /* UTF-8, may hold NUL; a NUL follows it */
		struct {
			const struct json *items; /* in document order */
			/* item numbers by name, for large objects; else NULL */
			const uint32_t *sorted;
			size_t n;
		};
	};
};

struct json_doc {
	struct arena arena;
	const struct json *root;
};

/*
 * Parse text. `what` names the subject in messages ("'_METADATA'"), which give line and column.
 * -EUCLEAN: not JSON, or deeper than LIMIT_JSON_DEPTH; -EFBIG: longer than LIMIT_JSON_BYTES or more
 * than LIMIT_JSON_NODES values (json_pull.h reads such documents). On failure ret is untouched.
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
 * Typed members. Each function returns 1 when the member exists and has the type, 0 when it is
 * absent (ret is untouched), and -EUCLEAN with a note that names `what` and the member when it has
 * another type. A number with an integral value (5.0) is an integer.
 */
int json_get_int(const struct json *obj, const char *name, const char *what, int64_t *ret);
int json_get_bool(const struct json *obj, const char *name, const char *what, bool *ret);
int json_get_str(const struct json *obj, const char *name, const char *what, struct span *ret);
int json_get_array(const struct json *obj, const char *name, const char *what,
		   const struct json **ret);
int json_get_object(const struct json *obj, const char *name, const char *what,
		    const struct json **ret);

/* The number as an integer; false when j is not a number or has a fraction. */
bool json_as_int(const struct json *j, int64_t *ret);
bool json_as_double(const struct json *j, double *ret);

enum json_style {
	JSON_PYTHON,        /* ", " and ": ", non-ASCII as \uXXXX, bare NaN: json.dumps */
	JSON_PYTHON_SORTED, /* with members sorted: json.dumps(sort_keys=True) */
	JSON_COMPACT,       /* no space, UTF-8 as it is, members sorted: TensorStore */
	JSON_PRETTY,        /* two spaces a level, UTF-8 as it is: for people */
};

int json_print(struct buf *out, const struct json *j, enum json_style style);
/* "[1, 2]", or "[1,2]" in JSON_COMPACT. */
int json_put_uints(struct buf *out, const uint64_t *v, size_t n, enum json_style style);
/* One string with quotes. Bytes that are not UTF-8 become U+FFFD. */
int json_put_str(struct buf *out, struct span s, enum json_style style);
/* The name of a member and its colon. */
int json_put_name(struct buf *out, struct span name, enum json_style style);
/* The same, after a comma unless it is the first of an object: out is empty or ends in '{'. */
int json_put_member(struct buf *out, struct span name, enum json_style style);
/*
 * The shortest digits that read back equal, always with '.', 'e' or a word: 1.0, 1e+16. NaN and
 * infinities are bare words in JSON_PYTHON*, and strings in the other styles.
 */
int json_put_double(struct buf *out, double d, enum json_style style);

/* The following are shared by json.c and json_pull.c. */
/*
 * The length of the number at the start of s, including the words NaN, Infinity and -Infinity; 0
 * when there is no number.
 */
size_t json_number_len(struct span s);
/* The four hexadecimal digits at the start of s; false when they are not there. */
bool json_hex4(struct span s, unsigned *ret);
/* Returns -EUCLEAN with the note "what: line 2, column 7: why"; at is a position in text. */
int json_bad(const char *what, struct span text, size_t at, const char *why);

/* The length in bytes of the valid UTF-8 sequence at the start of s (1 to 4), or 0. */
size_t utf8_len(struct span s);
/* Whether all of s is valid UTF-8. */
bool utf8_valid(struct span s);
/* The code point of a valid sequence of n bytes. */
uint32_t utf8_code(const uint8_t *p, size_t n);

#endif
