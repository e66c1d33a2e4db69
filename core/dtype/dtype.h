/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - element types: names in every spelling, sizes, special values.
 *
 * In memory and in files of the mount an element is little-endian; types below
 * one byte (int2, int4, float4) take one byte each, with the value in the low
 * bits and zero high bits, as in ml_dtypes.
 */
#ifndef PYTREEFS_DTYPE_H
#define PYTREEFS_DTYPE_H

#include "core/base/json.h"
#include "core/base/limits.h"

enum dtype {
	DTYPE_UNKNOWN,
	DTYPE_BOOL,
	DTYPE_INT2,
	DTYPE_INT4,
	DTYPE_INT8,
	DTYPE_INT16,
	DTYPE_INT32,
	DTYPE_INT64,
	DTYPE_UINT8,
	DTYPE_UINT16,
	DTYPE_UINT32,
	DTYPE_UINT64,
	DTYPE_FLOAT4_E2M1FN,
	DTYPE_FLOAT8_E3M4,
	DTYPE_FLOAT8_E4M3FN,
	DTYPE_FLOAT8_E4M3FNUZ,
	DTYPE_FLOAT8_E4M3B11FNUZ,
	DTYPE_FLOAT8_E5M2,
	DTYPE_FLOAT8_E5M2FNUZ,
	DTYPE_FLOAT8_E8M0FNU,
	DTYPE_BFLOAT16,
	DTYPE_FLOAT16,
	DTYPE_FLOAT32,
	DTYPE_FLOAT64,
	DTYPE_COMPLEX64,
	DTYPE_COMPLEX128,
	DTYPE_COUNT,
};

enum dtype_kind {
	DTYPE_KIND_BOOL,
	DTYPE_KIND_INT,
	DTYPE_KIND_UINT,
	DTYPE_KIND_FLOAT,
	DTYPE_KIND_COMPLEX,
};

struct dtype_info {
	const char *name; /* name in numpy, ml_dtypes and zarr v3: "bfloat16" */
	const char *v2;   /* name in zarr v2, as we write it: "<f4", "|b1", "bfloat16" */
	const char *npy;  /* descr as numpy writes it: "<f4", "<V2", "<V1" */
	/*
	 * "BF16"; NULL when safetensors has no name for it. float4_e2m1fn has none here, since
	 * safetensors packs two of them into a byte.
	 */
	const char *safetensors;
	enum dtype_kind kind;
	uint8_t size; /* bytes per element */
	uint8_t word; /* bytes per word, the unit of byte order: half of a complex element */
	uint8_t bits; /* significant low bits of a one-byte element: 2, 4; else 8 * size */
};

/* The type of an array: that of its elements, and its axes. */
struct array_type {
	enum dtype dtype;
	unsigned rank;
	const uint64_t *shape; /* borrowed; may be NULL if there are no axes */
};

static inline bool array_type_has_shape(const struct array_type *t, unsigned rank,
					const uint64_t *shape)
{
	return t->rank == rank && (!rank || !memcmp(t->shape, shape, rank * sizeof(*shape)));
}

/* t must not be DTYPE_UNKNOWN. */
const struct dtype_info *dtype_info(enum dtype t);

/* Look up info->name; DTYPE_UNKNOWN when no type has it. */
enum dtype dtype_by_name(struct span name);
/*
 * Look up a name that a person wrote, in upper or lower case: also JAX's short names ("bf16",
 * "f32", "i8", "f8_e4m3fn") and those of safetensors.
 */
enum dtype dtype_by_user(struct span name);
/* Look up a zarr v2 spelling. Sets ret_big for '>' when the type has more than one byte. */
enum dtype dtype_by_v2(struct span text, bool *ret_big);
/*
 * Look up an npy descr: with '<', '>', '=', '|' or without, or a bare name. Void types are
 * DTYPE_UNKNOWN, except "V2" (bfloat16); "f1" is e5m2, as numpy writes it.
 */
enum dtype dtype_by_npy(struct span descr, bool *ret_big);
enum dtype dtype_by_safetensors(struct span name);

/*
 * Parse a fill value of zarr metadata, of version 2 or 3, into the element's bytes, little-endian.
 * -EUCLEAN when it is not a value of the type. The caller handles null.
 *
 * Numbers are converted as by TensorStore 0.1.86, which does not always agree with cast.h: float8
 * types are rounded once, float16 is rounded through float32, and float8_e8m0fnu has TensorStore's
 * bias (1.0 is byte 3f). Otherwise the bytes would differ from those that it reads and writes.
 */
int dtype_fill_parse(enum dtype t, int version, const struct json *j,
		     uint8_t ret[LIMIT_ITEM_BYTES]);
/* Append the fill value as TensorStore spells it. */
int dtype_fill_print(enum dtype t, int version, const uint8_t fill[LIMIT_ITEM_BYTES],
		     struct buf *ret);

/*
 * Append one element as JSON text of the mount: true or false, integers in full, floats with '.' or
 * 'e', NaN and infinities as strings, complex numbers as [re, im].
 *
 * Floats have the fewest digits that read back equal. float64 is read back as a double; narrower
 * types are read as a double and then rounded to the type, so float32 0.1 is printed as 0.1 (as by
 * numpy), not as 0.10000000149011612.
 */
int dtype_value_print(enum dtype t, const void *element, struct buf *ret);
/*
 * Parse such a text, rounding as cast() from float64 does. -EINVAL when it is not a value of the
 * type, or is out of range: a finite number must stay finite, and NaN and infinities need a type
 * that has them.
 */
int dtype_value_parse(enum dtype t, const struct json *j, void *element);
/*
 * Get an integer as 64 bits. Returns 1; 0 when it is out of the range of so many bits; -EINVAL,
 * without a note, when it is not an integer.
 */
int dtype_value_integer(const struct json *j, bool is_signed, unsigned bits, uint64_t *ret);
/* Get a number, or one of the words for NaN and infinity; false for anything else. */
bool dtype_value_number(const struct json *j, double *ret);

#endif
