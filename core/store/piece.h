/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.h - a piece of an object as a file of the cache on disk: names, and the bytes after the
 * data.
 *
 * A file has the data of one piece, a CRC-32C for each block of it, and a trailer that says which
 * piece of which object it is. Nothing of it is believed before its checksum was compared. No I/O
 * here; piece_dir.c has the directory.
 */
#ifndef PYTREEFS_CORE_STORE_PIECE_H
#define PYTREEFS_CORE_STORE_PIECE_H

#include "core/base/buf.h"
#include "core/base/limits.h"

/* What is fetched at once: less than what is read along between two ranges (store_read.c). */
#define PIECE_BYTES (256 * KiB)
/* What is read and checked at once of a piece that is there. */
#define PIECE_BLOCK (16 * KiB)
#define PIECE_BLOCKS (PIECE_BYTES / PIECE_BLOCK)
#define PIECE_TAIL_MAX (4 * PIECE_BLOCKS + 56)
#define PIECE_NAME_MAX 68 /* "ab/" and 62 digits */

/* Which piece of which object: SHA-256. */
struct piece_id {
	uint8_t hash[32];
};

/* Of an object, from which those of its pieces are made. url: the same for all who ask for it. */
void piece_object_id(struct span url, const char *tag, uint64_t size, struct piece_id *ret);
void piece_id_of(const struct piece_id *object, uint64_t index, struct piece_id *ret);
void piece_name(const struct piece_id *id, char ret[PIECE_NAME_MAX]);
/* Whether a name below a directory of the cache is one of a piece. */
bool piece_is_name(const char *name);

/* Bytes after the data of n bytes. */
size_t piece_tail_bytes(size_t n);
void piece_tail_pack(const struct piece_id *id, struct span data, uint8_t ret[PIECE_TAIL_MAX]);
/* Whether it is the tail of that piece, of n bytes. */
bool piece_tail_is_of(const uint8_t *tail, const struct piece_id *id, size_t n);
/* Whether data, from a block's start on to a block's end or the piece's, is what the tail says. */
bool piece_blocks_match(const uint8_t *tail, size_t from, struct span data);

#endif
