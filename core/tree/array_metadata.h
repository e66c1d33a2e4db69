/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_metadata.h - `array_metadatas/process_N`: what one process has written of its jax arrays.
 *
 * The file is informational, except that the implementation of a typed PRNG key is recorded nowhere
 * else.
 */
#ifndef PYTREEFS_ARRAY_METADATA_H
#define PYTREEFS_ARRAY_METADATA_H

#include "core/base/arena.h"

struct array_metadata {
	struct span param;
	unsigned write_rank, chunk_rank;
	const uint64_t *write_shape, *chunk_shape;
	struct span ext;      /* ext_metadata, as JSON in Python's spelling; p NULL: null */
	struct span key_impl; /* ext_metadata.random_key_impl; p NULL: not a PRNG key */
};

struct array_metadatas {
	struct arena arena;
	struct array_metadata *entries; /* in the order of the document */
	/* sorted by param; equal ones in the order of the document */
	const struct array_metadata **by_param;
	size_t n;
};

/* -EUCLEAN: not JSON, or an element without param_name, write_shape or chunk_shape. */
int array_metadatas_parse(struct span json, const char *what, struct array_metadatas **ret);
/* The last entry of a parameter, or NULL. */
const struct array_metadata *array_metadatas_find(const struct array_metadatas *a,
						  struct span param);
/* Append the file as Orbax writes it. Uses ext, not key_impl. */
int array_metadatas_print(const struct array_metadata *entries, size_t n, struct buf *ret);
/* Append the JSON text of ext for a typed PRNG key: {"random_key_impl": "threefry2x32"}. */
int array_metadata_key_ext(struct span key_impl, struct buf *ret);
/* Accepts NULL. */
void array_metadatas_free(struct array_metadatas *a);
DEFINE_AUTO(array_metadatas, struct array_metadatas, array_metadatas_free);

#endif
