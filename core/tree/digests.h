/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digests.h - `.sha256sums`: the SHA-256 of the value of each leaf of an item, as sha256sum(1)
 *writes it.
 *
 *	2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae  params/w.bin
 *
 * The name is that of the value's bytes in a mount of the item, so `sha256sum -c` compares them
 * there. A name with a backslash, newline or carriage return has those escaped, and the line begins
 * with a backslash. Orbax and TensorStore do not look at the file.
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

/* -EUCLEAN names the line: not of that form, or a name that comes twice. The table is metered. */
int digests_parse(struct span text, const char *what, struct digests **ret);
/* The digest of a name, or NULL. */
const struct digests_entry *digests_find(const struct digests *d, struct span name);
/* Append one line. */
int digests_print(struct span name, const uint8_t sha256[DIGEST_BYTES], struct buf *ret);
/* Hex digits, lower case. */
void digest_text(const uint8_t sha256[DIGEST_BYTES], char ret[DIGEST_TEXT]);
/* The same back: false when it is not that. */
bool digest_of_text(struct span text, uint8_t ret[DIGEST_BYTES]);
/* Accepts NULL. */
void digests_free(struct digests *d);
DEFINE_AUTO(digests, struct digests, digests_free);

#endif
