/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_level.h - the codec list of zarr v3 -> levels. Private to zarr_meta.c.
 */
#ifndef PYTREEFS_ZARR_LEVEL_H
#define PYTREEFS_ZARR_LEVEL_H

#include "core/zarr/meta/zarr_meta.h"

/* Parse a list of `rank` sizes, each from `least` to 2^63 - 2. -EUCLEAN naming `name`. */
int zarr_sizes(const struct json *j, const char *name, uint64_t least, unsigned rank,
	       uint64_t *ret);

/*
 * The product of the extents of an elements level and the element size. -EUCLEAN when it is 2^63 or
 * more, which TensorStore refuses.
 */
int zarr_level_bytes(const struct zarr_level *l, unsigned rank, enum dtype t, uint64_t *ret);

/*
 * Parse "codecs" of v3 for the chunk of m, whose dtype, rank and chunk are set. Shards and codecs
 * are allocated in m's arena.
 */
int zarr_levels_parse(struct zarr_meta *m, const struct json *codecs, struct zarr_level *ret);

/*
 * Parse {"name": ..., "configuration": {...}}, without other members. ret_conf is NULL when the
 * configuration is absent.
 */
int zarr_extension(const struct json *j, const char *what, struct span *ret_name,
		   const struct json **ret_conf);
/* -EUCLEAN when obj (which may be NULL) has a member that is not in names (NULL-terminated). */
int zarr_only(const struct json *obj, const char *what, const char *const *names);

#endif
