/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h - element types: names in every spelling, sizes, special values.
 *
 * In memory and in files of the mount an element is little-endian; types below
 * one byte (int2, int4, float4) take one byte each, value in the low bits, high
 * bits zero, as ml_dtypes holds them.
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
	const char *name; /* numpy's, ml_dtypes' and zarr v3's name: "bfloat16" */
	const char *v2;   /* zarr v2, as we write it: "<f4", "|b1", "bfloat16" */
	const char *npy;  /* descr as numpy writes it: "<f4", "<V2", "<V1" */
	/*
	 * "BF16"; NULL when the format has no name for it. float4_e2m1fn has none here: safetensors
	 * packs two of them into a byte.
	 */
	const char *safetensors;
	enum dtype_kind kind;
	uint8_t size; /* bytes an element */
	uint8_t word; /* bytes that byte order is about: half of a complex one */
	uint8_t bits; /* significant low bits of a byte: 2, 4; else 8 * size */
};

/* Not for DTYPE_UNKNOWN. */
const struct dtype_info *dtype_info(enum dtype t);

/* By the one name; DTYPE_UNKNOWN when no type has it. */
enum dtype dtype_by_name(struct span name);
/* As people write it: also "bf16", "f32", "i8", "f8_e4m3fn" (JAX's short names), and as safetensors
 * has it; small or capital letters. */
enum dtype dtype_by_user(struct span name);
/* zarr v2 spelling; sets ret_big for '>' where that means something (more than one byte). */
enum dtype dtype_by_v2(struct span text, bool *ret_big);
/*
 * npy descr with <, >, =, | or none, or a bare name; void types give DTYPE_UNKNOWN except 'V2'
 * (bfloat16) and 'f1' (e5m2, as numpy writes it).
 */
enum dtype dtype_by_npy(struct span descr, bool *ret_big);
enum dtype dtype_by_safetensors(struct span name);

/*
 * A fill value of zarr metadata -> the element's bytes, little-endian. -EUCLEAN when the text does
 * not fit the type. version 2 or 3: zarr.md sections 3.3 and 5.5. null is not for here.
 *
 * Numbers become what TensorStore 0.1.86 makes of them, which is not always what cast.h does:
 * float8 types are rounded once, float16 through float32, and float8_e8m0fnu has TensorStore's bias
 * (1.0 is byte 3f), since only so the bytes come out that it reads and writes.
 */
int dtype_fill_parse(enum dtype t, int version, const struct json *j,
		     uint8_t ret[LIMIT_ITEM_BYTES]);
/* And back, as TensorStore spells it. */
int dtype_fill_print(enum dtype t, int version, const uint8_t fill[LIMIT_ITEM_BYTES],
		     struct buf *ret);

/*
 * One element as JSON text of the mount: true/false, integers in full, floats with '.' or 'e', NaN
 * and infinities as strings, complex as [re, im].
 *
 * Floats have the fewest digits that read back equal: float64 as a double; narrower ones when read
 * as a double and then rounded to the type, so float32 0.1 is 0.1 (as numpy prints it) and not
 * 0.10000000149011612.
 */
int dtype_value_print(enum dtype t, const void *element, struct buf *ret);
/*
 * The reverse, rounding as `cast` from float64 does; -EINVAL when the text is not such a value or
 * out of range: a finite number must stay finite, and NaN and infinities need a type that has them.
 */
int dtype_value_parse(enum dtype t, const struct json *j, void *element);

#endif
