/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digests.h - `.sha256sums`: the SHA-256 of the value of each leaf of an item, in the format of
 * sha256sum(1).
 *
 *  2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae  params/w.bin
 *
 * The name is that of the value's bytes in a mount of the item, so `sha256sum -c` can check them
 * there. In a name, a backslash, newline or carriage return is escaped, and the line then begins
 * with a backslash. Orbax and TensorStore ignore the file.
 */
#ifndef PYTREEFS_DIGESTS_H
#define PYTREEFS_DIGESTS_H

#include "core/base/arena.h"

#define DIGESTS_FILE ".sha256sums"
#define DIGEST_BYTES 32
#define DIGEST_TEXT (2 * DIGEST_BYTES + 1) /* hex digits and NUL */

struct digests_entry {
	struct span name; /* in the arena */
	uint8_t sha256[DIGEST_BYTES];
};

/* Immutable. */
struct digests {
	struct arena arena;
	struct digests_entry *entry; /* sorted by name; in the arena */
	size_t n;
};

/* -EUCLEAN names the line: it is malformed, or repeats a name. The table is metered. */
int digests_parse(struct span text, const char *what, struct digests **ret);
/* The digest for a name, or NULL. */
const struct digests_entry *digests_find(const struct digests *d, struct span name);
/* Append one line. */
int digests_print(struct span name, const uint8_t sha256[DIGEST_BYTES], struct buf *ret);
/* Hex digits, lower case. */
void digest_text(const uint8_t sha256[DIGEST_BYTES], char ret[DIGEST_TEXT]);
/* Parse hex digits; false when text is not a digest in lower case. */
bool digest_of_text(struct span text, uint8_t ret[DIGEST_BYTES]);
/* Accepts NULL. */
void digests_free(struct digests *d);
DEFINE_AUTO(digests, struct digests, digests_free);

#endif
