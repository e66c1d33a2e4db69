/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree_file.h - a subtree as one file: .safetensors, .json, .html.
 *
 * A file consists of a head in memory and, for safetensors, arrays that are decoded when they are
 * read. Its size is exact and known before any data is read.
 */
#ifndef PYTREEFS_SUBTREE_FILE_H
#define PYTREEFS_SUBTREE_FILE_H

#include "core/io/segments.h"
#include "core/tree/name.h"
#include "handlers/subtree/subtree.h"

struct subtree_file;
struct subtree_reader;

/* Parameters of the file. */
struct subtree_want {
	enum name_ext ext;
	enum dtype cast;          /* dtype for floating-point leaves; DTYPE_UNKNOWN: unchanged */
	const char *name;         /* name of the whole, for .json and .html */
	const char *separator;    /* between the keys of a name in .safetensors */
	enum dtype restore_dtype; /* dtype for all arrays; DTYPE_UNKNOWN: unchanged */
};

/*
 * Make a file of a subtree. Fails with the errors of safetensors_header() and of leaves that cannot
 * be opened, and with -EFBIG for a text that is too long.
 */
int subtree_file_new(const struct subtree *st, const struct subtree_want *want,
		     struct subtree_file **ret);
/* Accepts NULL. */
void subtree_file_free(struct subtree_file *f);
DEFINE_AUTO(subtree_file, struct subtree_file, subtree_file_free);
uint64_t subtree_file_size(const struct subtree_file *f);
/* Number of bytes before the arrays. */
uint64_t subtree_file_head(const struct subtree_file *f);
/* Number of bytes of memory that it takes. */
uint64_t subtree_file_memory(const struct subtree_file *f);

/*
 * Make a reader of a file, which keeps a few arrays open. f and st are borrowed. Any number of
 * threads may use one reader.
 */
int subtree_reader_new(const struct subtree *st, const struct subtree_file *f,
		       struct subtree_reader **ret);
/* Accepts NULL. */
void subtree_reader_free(struct subtree_reader *rd);
/* Append up to n bytes from off to g; fewer at the end of the file. */
int subtree_read(struct subtree_reader *rd, uint64_t off, size_t n, struct segments *g);
/* Begin to decode a range in the background. guess: as in zarr_prefetch(). */
struct zarr_guess;
void subtree_prefetch(struct subtree_reader *rd, uint64_t off, uint64_t n,
		      struct zarr_guess *guess);
/* Tell the cache that no more reads of data that was decoded for guesses are expected. */
void subtree_end_ahead(struct subtree_reader *rd);
/* A sequential reader has read bytes [from, to): see zarr_drop_behind(). */
void subtree_drop_behind(struct subtree_reader *rd, uint64_t from, uint64_t to);
/* As format_seek(). */
int subtree_seek(struct subtree_reader *rd, uint64_t off, int whence, uint64_t *ret);

#endif
