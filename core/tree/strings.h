/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings.h - `_strings.json`: the string leaves of an item.
 *
 * A leaf's text is at the JSON pointer "/" + its parameter name, and Orbax does not escape the
 * name: "a/b" is member "b" of member "a", "~0" and "~1" stand for '~' and '/', and a '~' before
 * anything else cannot be stored at all. Numbers come back as the text that Python's str() gives.
 *
 * What is kept of a document is where each value lies and how long its text is, so that sizes are
 * known and texts can be read from the file one by one.
 */
#ifndef PYTREEFS_STRINGS_H
#define PYTREEFS_STRINGS_H

#include "core/base/arena.h"

struct strings_entry {
	struct span name;  /* parameter name; in the arena */
	uint64_t off, len; /* the value, as JSON, in the document */
	uint64_t text_len; /* bytes of its text */
};

struct strings {
	struct arena arena;
	struct strings_entry *entries; /* sorted by name, then by place */
	size_t n;
};

/* Index a document. -EUCLEAN: not JSON; -EFBIG. Afterwards json is needed for the values alone. */
int strings_parse(struct span json, const char *what, struct strings **ret);
/* The value of a parameter, or NULL. */
const struct strings_entry *strings_find(const struct strings *s, struct span param);
/* The text of a value: json is the document's bytes off to off + len. -EUCLEAN when it is not a
 * string. */
int strings_text(struct span json, const char *what, struct buf *ret);
/* The same, of an entry whose text has text_len bytes: a long one may keep the buffer of its JSON. */
int strings_take(struct buf *json, uint64_t text_len, const char *what, struct buf *ret);
/* Accepts NULL. */
void strings_free(struct strings *s);
DEFINE_AUTO(strings, struct strings, strings_free);

/* 0.3.x: one document per leaf, {"<name>": "text"}, the name taken as it is. */
int strings_parse_leaf(struct span json, const char *what, struct span param, struct buf *ret);

/* Whether a text can be stored under this name: 0, or -EINVAL with the reason. */
int strings_check_name(struct span param);

struct strings_pair {
	struct span name, text;
};

/*
 * The document as TensorStore writes it: compact, members sorted. -EINVAL: a name that cannot be
 * stored, the same name twice ("a~0b" and "a~0b"), a name inside another one ("a", "a/b"), bytes
 * that are not UTF-8.
 */
int strings_print(const struct strings_pair *pairs, size_t n, struct buf *ret);

#endif
