/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.h - a piece of an object as a file of the cache on disk: its name, and its tail.
 *
 * A file has the data of one piece and a tail: a CRC-32C for each block of the data, and the
 * identity of the piece. Callers compare checksums before they use any byte. No I/O here;
 * piece_dir.c has the directory.
 */
#ifndef PYTREEFS_CORE_PIECE_PIECE_H
#define PYTREEFS_CORE_PIECE_PIECE_H

#include "core/base/buf.h"
#include "core/base/limits.h"

/* Pieces are fetched as a whole. Smaller than GAP in store_read.c. */
#define PIECE_BYTES (256 * KiB)
/* Blocks are read from the file and checked as a whole. */
#define PIECE_BLOCK (16 * KiB)
#define PIECE_BLOCKS (PIECE_BYTES / PIECE_BLOCK)
#define PIECE_TAIL_MAX (4 * PIECE_BLOCKS + 56)
#define PIECE_NAME_MAX 68 /* "ab/" and 62 digits */

/* The identity of a piece, or of its object: a SHA-256. */
struct piece_id {
	uint8_t hash[32];
};

/* The identity of an object, from which those of its pieces are made. url is the same in all
 * mounts. */
void piece_object_id(struct span url, const char *tag, uint64_t size, struct piece_id *ret);
void piece_id_of(const struct piece_id *object, uint64_t index, struct piece_id *ret);
void piece_name(const struct piece_id *id, char ret[PIECE_NAME_MAX]);
/* Whether a name in one of the 256 directories is that of a piece. */
bool piece_is_name(const char *name);

/* The size of the tail of a piece of n bytes. */
size_t piece_tail_bytes(size_t n);
void piece_tail_pack(const struct piece_id *id, struct span data, uint8_t ret[PIECE_TAIL_MAX]);
/* Whether a tail is intact and belongs to this piece, of n bytes. */
bool piece_tail_is_of(const uint8_t *tail, const struct piece_id *id, size_t n);
/* Whether data has the checksums of the tail. It begins at a block's start, at `from`, and ends at
 * a block's end or the piece's. */
bool piece_blocks_match(const uint8_t *tail, size_t from, struct span data);

#endif
