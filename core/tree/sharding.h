/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding.h - `_sharding`: how jax arrays were distributed over devices.
 *
 * The file maps each parameter to a JSON document inside a string. Most parameters of a model have
 * one of a few shardings, so equal texts are stored once, and parsed on request.
 */
#ifndef PYTREEFS_SHARDING_H
#define PYTREEFS_SHARDING_H

#include "core/base/arena.h"
#include "core/base/limits.h"

struct sharding_entry {
	struct span param, text; /* in the arena; equal texts are stored once */
};

struct shardings {
	struct arena arena;
	struct sharding_entry *entries; /* sorted by param */
	size_t n;
};

/*
 * Parse a whole file, with names in base64 or, of Orbax 0.4.0 and 0.4.1, without; empty texts are
 * left out. -EUCLEAN: not JSON, a value that is neither a string nor an object.
 */
int shardings_parse(struct span json, const char *what, struct shardings **ret);
/* Get the text of one parameter. Returns 1, or 0 when there is none. */
int shardings_find(const struct shardings *s, struct span param, struct span *ret_text);
/*
 * Append the file as Orbax and TensorStore write it. entries may be in any order; -EINVAL: a param
 * occurs twice.
 */
int shardings_print(const struct sharding_entry *entries, size_t n, struct buf *ret);
/* Accepts NULL. */
void shardings_free(struct shardings *s);
DEFINE_AUTO(shardings, struct shardings, shardings_free);

enum sharding_kind { SHARDING_UNKNOWN, SHARDING_NAMED, SHARDING_SINGLE };

/* One array axis of a partition spec: null, one mesh axis, or a list of them. */
struct sharding_axis {
	enum { SHARDING_WHOLE, SHARDING_ONE, SHARDING_LIST } format;
	unsigned n;
	const uint8_t *mesh_axes; /* numbers of mesh axes, the slowest first */
};

struct sharding {
	struct arena arena;
	enum sharding_kind kind;
	struct span device; /* SINGLE: as stored, "TFRT_CPU_0" or "cpu:0" */
	/* The following are for NAMED. */
	unsigned n_mesh, n_spec;
	uint64_t mesh[LIMIT_RANK]; /* shape of the mesh */
	struct span names[LIMIT_RANK];
	bool has_types;
	struct span types[LIMIT_RANK]; /* "AxisType.Auto" */
	struct sharding_axis spec[LIMIT_RANK];
	uint64_t n_devices; /* product of mesh; 1 for SINGLE */
	const int64_t *ids; /* of the devices in mesh order; NULL when not recorded */
};

/*
 * Parse the text of one sharding. -EUCLEAN: malformed; -EOPNOTSUPP: a kind that JAX no longer has
 * or Orbax does not restore; -EFBIG: more than LIMIT_SHARDING_DEVICES devices.
 */
int sharding_parse(struct span text, const char *what, struct sharding **ret);
/* Append the text as Orbax writes it. */
int sharding_print(const struct sharding *s, struct buf *ret);
/* Accepts NULL. */
void sharding_free(struct sharding *s);
DEFINE_AUTO(sharding, struct sharding, sharding_free);

/* The part of an array that is on one device. */
struct sharding_box {
	int64_t device;   /* id; the number in mesh order when ids are not recorded */
	uint64_t replica; /* number of devices before it in the mesh that have the same box */
	uint64_t start[LIMIT_RANK], stop[LIMIT_RANK];
};

/*
 * Check that an array of that shape can be distributed like this. -EINVAL when the spec has more
 * axes than the array or an axis cannot be divided evenly; JAX refuses both, too.
 */
int sharding_check(const struct sharding *s, const uint64_t *shape, unsigned rank);
/* The box of device i in mesh order, i < n_devices. Call after sharding_check(). */
void sharding_box(const struct sharding *s, const uint64_t *shape, unsigned rank, uint64_t i,
		  struct sharding_box *ret);

#endif
