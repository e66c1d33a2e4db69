/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree_file.h - a subtree as one file: .safetensors, .json, .html.
 *
 * A file is a head in memory, and after it (safetensors) arrays that are decoded when they are
 * read. Its size is exact and known before any data is read.
 */
#ifndef PYTREEFS_SUBTREE_FILE_H
#define PYTREEFS_SUBTREE_FILE_H

#include "core/io/segments.h"
#include "core/tree/name.h"
#include "handlers/subtree/subtree.h"

struct subtree_file;
struct subtree_reader;

/* What the file is to be. */
struct subtree_want {
	enum name_ext ext;
	enum dtype cast;          /* of floating leaves; DTYPE_UNKNOWN: none */
	const char *name;         /* of the whole, for .json and .html */
	const char *separator;    /* of names in .safetensors */
	enum dtype restore_dtype; /* of all arrays; DTYPE_UNKNOWN: as they are */
};

/* The errors of safetensors_header(), of leaves that cannot be opened, and -EFBIG for long texts. */
int subtree_file_new(const struct subtree *st, const struct subtree_want *want,
		     struct subtree_file **ret);
/* Accepts NULL. */
void subtree_file_free(struct subtree_file *f);
uint64_t subtree_file_size(const struct subtree_file *f);
/* Bytes in front of the arrays. */
uint64_t subtree_file_head(const struct subtree_file *f);
/* Bytes of memory that it holds. */
uint64_t subtree_file_memory(const struct subtree_file *f);

/* One who reads it: keeps a few arrays open. f and st are borrowed. Any number of threads may read.
 */
int subtree_reader_new(const struct subtree *st, const struct subtree_file *f,
		       struct subtree_reader **ret);
/* Accepts NULL. */
void subtree_reader_free(struct subtree_reader *rd);
/* Up to n bytes from off; fewer at the end. */
int subtree_read(struct subtree_reader *rd, uint64_t off, size_t n, struct segments *g);
/* Begin to decode a range in the background: a hint. guess as in zarr_prefetch(). */
struct zarr_guess;
void subtree_prefetch(struct subtree_reader *rd, uint64_t off, uint64_t n,
		      struct zarr_guess *guess);
/* What was decoded for guesses is not expected to be asked for any more. */
void subtree_end_ahead(struct subtree_reader *rd);
/* A reader in order has gone from byte `from` to byte `to`: zarr_drop_behind(). */
void subtree_drop_behind(struct subtree_reader *rd, uint64_t from, uint64_t to);
/* As format_seek(). */
int subtree_seek(struct subtree_reader *rd, uint64_t off, int whence, uint64_t *ret);

#endif
