/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings.h - `_strings.json`: the string leaves of an item.
 *
 * The text of a leaf is at the JSON pointer "/" + its parameter name, and Orbax does not escape the
 * name: "a/b" is member "b" of member "a", "~0" and "~1" stand for '~' and '/', and a '~' before
 * anything else cannot be stored. A number is shown as the text of Python's str().
 *
 * The index of a document has the place of each value and the size of its text, so that sizes are
 * known and texts can be read from the file one by one.
 */
#ifndef PYTREEFS_STRINGS_H
#define PYTREEFS_STRINGS_H

#include "core/base/arena.h"

struct strings_entry {
	struct span name;  /* parameter name; in the arena */
	uint64_t off, len; /* place of the value, as JSON, in the document */
	uint64_t text_len; /* size of its text in bytes */
};

struct strings {
	struct arena arena;
	struct strings_entry *entries; /* sorted by name */
	size_t n;
};

/* Index a document. -EUCLEAN: not JSON; -EFBIG. Afterwards json is needed only to read values. */
int strings_parse(struct span json, const char *what, struct strings **ret);
/* The value of a parameter, or NULL. */
const struct strings_entry *strings_find(const struct strings *s, struct span param);
/*
 * Append the text of a value. json is the document's bytes off to off + len. -EUCLEAN when the
 * value is not a string.
 */
int strings_text(struct span json, const char *what, struct buf *ret);
/*
 * The same for an entry whose text has text_len bytes. Takes the buffer, and may reuse it for a
 * long text.
 */
int strings_take(struct buf *json, uint64_t text_len, const char *what, struct buf *ret);
/* Accepts NULL. */
void strings_free(struct strings *s);
DEFINE_AUTO(strings, struct strings, strings_free);

/* The document of a leaf in 0.3.x: {"<name>": "text"}, where the name is used literally. */
int strings_parse_leaf(struct span json, const char *what, struct span param, struct buf *ret);

/* Check that a text can be stored under this name: 0, or -EINVAL with the reason. */
int strings_check_name(struct span param);

struct strings_pair {
	struct span name, text;
};

/*
 * Append the document as TensorStore writes it: compact, with sorted members. -EINVAL: a name that
 * cannot be stored, a duplicate name, a name inside another one ("a", "a/b"), bytes that are not
 * UTF-8.
 */
int strings_print(const struct strings_pair *pairs, size_t n, struct buf *ret);

#endif
