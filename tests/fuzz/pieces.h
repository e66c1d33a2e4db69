/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.h - a small checkpoint as the input of a fuzz target: pieces that make up its files.
 *
 * A piece is appended to the file that it names. Lengths and checksums are pieces of their own
 * kinds, which are computed when the files are written. So whatever a mutation changes in one
 * piece, the checksums over it are right, and the parsers after them are reached.
 *
 *	offset  bytes
 *	     0      1  flags, for the target
 *	then of each piece:
 *	     0      1  kind, a letter: enum piece_kind
 *	     1      1  n, the length of the name; 0: the file of the piece before
 *	     2      2  length of the data, little-endian; beyond the input: all that is left
 *	     4      n  name: a path with '/'
 *	 4 + n         data
 *
 * Any bytes are a checkpoint: an unknown kind is one of the known ones, a name that cannot be made
 * is left out.
 */
#ifndef PYTREEFS_PIECES_H
#define PYTREEFS_PIECES_H

#include "core/base/buf.h"

#define PIECES_MAX 48
#define PIECES_BYTES_MAX 65536 /* of all files together */

enum piece_kind {
	PIECE_AS_IS = 'b',    /* as they are */
	PIECE_TEXT = 't',     /* the text of a database record (core/ocdbt/text.c); "$3" in it is
				 offset and length of the piece with that digit or letter */
	PIECE_MANIFEST = 'm', /* bodies of records, put into an envelope with length and CRC-32C */
	PIECE_NODE = 'n',
	PIECE_VERSION = 'v',
	PIECE_ZMANIFEST = 'M', /* the same, compressed */
	PIECE_ZNODE = 'N',
	PIECE_ZVERSION = 'V',
	PIECE_CRC = 'c',     /* CRC-32C of the piece before */
	PIECE_TRAILER = 's', /* the trailer of a value, which is the piece before (kv_sum.h) */
	PIECE_INDEX = 'i', /* of a shard: each byte stands for the place of a piece of this file */
	PIECE_ENCODED = 'e', /* a codec of zarr v2 as JSON, a NUL, and what it encodes */
	PIECE_TABLE = 'T',   /* checksums of all files so far (kv_table.h) */
	PIECE_DIGESTS =
		'D',      /* SHA-256 of the data, as a line of .sha256sums of the leaf it names */
	PIECE_LINK = 'l', /* a symbolic link to the data */
	PIECE_DIR = 'd',
	PIECE_FIFO = 'f',
	PIECE_RULES = 'x', /* not of the checkpoint: the document of transforms= */
};
extern const char piece_kinds[]; /* all of them */

struct piece {
	char kind;
	struct span name, data; /* borrowed from the input */
};

struct pieces {
	uint8_t flags;
	unsigned n;
	struct piece piece[PIECES_MAX];
};

void pieces_parse(struct span input, struct pieces *ret);
/* Appends. */
void pieces_print(const struct pieces *p, struct buf *ret);

/*
 * Write the files below dir, which exists. rules: the document of the last PIECE_RULES, appended.
 */
void pieces_write(const struct pieces *p, const char *dir, struct buf *rules);

#endif
