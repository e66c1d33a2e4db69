/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c - the table of element types and their spellings.
 *
 * dtype_value.c has values as text, dtype_fill.c the fill values of zarr
 * metadata, cast.c conversions.
 */
#include "core/dtype/dtype.h"

#include <assert.h>

#define INT DTYPE_KIND_INT
#define UINT DTYPE_KIND_UINT
#define FLOAT DTYPE_KIND_FLOAT
#define COMPLEX DTYPE_KIND_COMPLEX

static const struct dtype_info table[DTYPE_COUNT] = {
	/* numpy writes float8_e5m2 as <f1, which it cannot read; we write <V1 as for the others. */
	[DTYPE_BOOL] = { "bool", "|b1", "|b1", "BOOL", DTYPE_KIND_BOOL, 1, 1, 8 },
	[DTYPE_INT2] = { "int2", "int2", "<V1", NULL, INT, 1, 1, 2 },
	[DTYPE_INT4] = { "int4", "int4", "<V1", NULL, INT, 1, 1, 4 },
	[DTYPE_INT8] = { "int8", "|i1", "|i1", "I8", INT, 1, 1, 8 },
	[DTYPE_INT16] = { "int16", "<i2", "<i2", "I16", INT, 2, 2, 16 },
	[DTYPE_INT32] = { "int32", "<i4", "<i4", "I32", INT, 4, 4, 32 },
	[DTYPE_INT64] = { "int64", "<i8", "<i8", "I64", INT, 8, 8, 64 },
	[DTYPE_UINT8] = { "uint8", "|u1", "|u1", "U8", UINT, 1, 1, 8 },
	[DTYPE_UINT16] = { "uint16", "<u2", "<u2", "U16", UINT, 2, 2, 16 },
	[DTYPE_UINT32] = { "uint32", "<u4", "<u4", "U32", UINT, 4, 4, 32 },
	[DTYPE_UINT64] = { "uint64", "<u8", "<u8", "U64", UINT, 8, 8, 64 },
	[DTYPE_FLOAT4_E2M1FN] = { "float4_e2m1fn", "float4_e2m1fn", "<V1", NULL, FLOAT, 1, 1, 4 },
	[DTYPE_FLOAT8_E3M4] = { "float8_e3m4", "float8_e3m4", "<V1", NULL, FLOAT, 1, 1, 8 },
	[DTYPE_FLOAT8_E4M3FN] = { "float8_e4m3fn", "float8_e4m3fn", "<V1", "F8_E4M3", FLOAT, 1, 1,
				  8 },
	[DTYPE_FLOAT8_E4M3FNUZ] = { "float8_e4m3fnuz", "float8_e4m3fnuz", "<V1", "F8_E4M3FNUZ",
				    FLOAT, 1, 1, 8 },
	[DTYPE_FLOAT8_E4M3B11FNUZ] = { "float8_e4m3b11fnuz", "float8_e4m3b11fnuz", "<V1", NULL,
				       FLOAT, 1, 1, 8 },
	[DTYPE_FLOAT8_E5M2] = { "float8_e5m2", "float8_e5m2", "<V1", "F8_E5M2", FLOAT, 1, 1, 8 },
	[DTYPE_FLOAT8_E5M2FNUZ] = { "float8_e5m2fnuz", "float8_e5m2fnuz", "<V1", "F8_E5M2FNUZ",
				    FLOAT, 1, 1, 8 },
	[DTYPE_FLOAT8_E8M0FNU] = { "float8_e8m0fnu", "float8_e8m0fnu", "<V1", "F8_E8M0", FLOAT, 1,
				   1, 8 },
	[DTYPE_BFLOAT16] = { "bfloat16", "bfloat16", "<V2", "BF16", FLOAT, 2, 2, 16 },
	[DTYPE_FLOAT16] = { "float16", "<f2", "<f2", "F16", FLOAT, 2, 2, 16 },
	[DTYPE_FLOAT32] = { "float32", "<f4", "<f4", "F32", FLOAT, 4, 4, 32 },
	[DTYPE_FLOAT64] = { "float64", "<f8", "<f8", "F64", FLOAT, 8, 8, 64 },
	[DTYPE_COMPLEX64] = { "complex64", "<c8", "<c8", "C64", COMPLEX, 8, 4, 64 },
	[DTYPE_COMPLEX128] = { "complex128", "<c16", "<c16", NULL, COMPLEX, 16, 8, 128 },
};

const struct dtype_info *dtype_info(enum dtype t)
{
	assert(t > DTYPE_UNKNOWN && t < DTYPE_COUNT);
	return &table[t];
}

enum dtype dtype_by_name(struct span name)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++)
		if (span_eq(name, span_str(table[t].name)))
			return t;
	return DTYPE_UNKNOWN;
}

/*
 * Whether name is short for a type: "f8_e4m3fn" for "float8_e4m3fn". Types below a byte have no
 * short name, since "i4" is four bytes in numpy.
 */
static bool is_short_name(struct span name, const struct dtype_info *i)
{
	static const char *const kinds[][2] = { { "bfloat", "bf" }, { "float", "f" },
						{ "float", "fp" },  { "uint", "u" },
						{ "int", "i" },     { "complex", "c" } };

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]) && i->bits >= 8; k++) {
		struct span full = span_str(i->name), kind = span_str(kinds[k][0]),
			    brief = span_str(kinds[k][1]);

		if (full.n > kind.n && !memcmp(full.p, kind.p, kind.n) && name.n > brief.n &&
		    !memcmp(name.p, brief.p, brief.n) &&
		    span_eq(span_from(name, brief.n), span_from(full, kind.n)))
			return true;
	}
	return false;
}

enum dtype dtype_by_user(struct span name)
{
	char lower[32];
	struct span folded = span_of(lower, MIN(name.n, sizeof(lower)));
	enum dtype t;

	/* A longer name than `lower` matches no type. */
	for (size_t i = 0; i < folded.n; i++)
		lower[i] = (char)(name.p[i] >= 'A' && name.p[i] <= 'Z' ? name.p[i] + ('a' - 'A') :
									 name.p[i]);
	t = span_eq(folded, span_str("half")) ? DTYPE_FLOAT16 : dtype_by_name(folded);
	for (int i = DTYPE_BOOL; i < DTYPE_COUNT && t == DTYPE_UNKNOWN; i++)
		if (is_short_name(folded, &table[i]))
			t = i;
	return t == DTYPE_UNKNOWN ? dtype_by_safetensors(name) : t;
}

/* Look up a kind letter and a size: "f4". */
static enum dtype by_kind_and_size(struct span s)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++) {
		struct span own = span_str(table[t].npy);

		if (own.p[1] != 'V' && span_eq(s, span_from(own, 1)))
			return t;
	}
	return DTYPE_UNKNOWN;
}

static bool is_one_of(struct span s, const char *chars)
{
	return s.n > 0 && s.p[0] != '\0' && strchr(chars, s.p[0]);
}

enum dtype dtype_by_v2(struct span text, bool *ret_big)
{
	enum dtype t;

	/* The types of ml_dtypes are spelled by their names, and have no byte order. */
	t = dtype_by_name(text);
	if (t != DTYPE_UNKNOWN && span_eq(text, span_str(table[t].v2))) {
		*ret_big = false;
		return t;
	}
	if (!is_one_of(text, "<>|"))
		return DTYPE_UNKNOWN;
	t = by_kind_and_size(span_from(text, 1));
	if (t == DTYPE_UNKNOWN || (text.p[0] == '|' && table[t].size > 1))
		return DTYPE_UNKNOWN;
	*ret_big = text.p[0] == '>' && table[t].size > 1;
	return t;
}

enum dtype dtype_by_npy(struct span descr, bool *ret_big)
{
	struct span rest = is_one_of(descr, "<>=|") ? span_from(descr, 1) : descr;
	bool swapped = rest.n < descr.n && descr.p[0] == '>';
	enum dtype t = by_kind_and_size(rest);

	if (t == DTYPE_UNKNOWN && rest.n == descr.n)
		t = dtype_by_name(descr);
	if (t == DTYPE_UNKNOWN && span_eq(rest, span_str("f1")))
		t = DTYPE_FLOAT8_E5M2;
	if (t == DTYPE_UNKNOWN && span_eq(rest, span_str("V2"))) {
		/* Void types have no byte order. */
		t = DTYPE_BFLOAT16;
		swapped = false;
	}
	if (t != DTYPE_UNKNOWN)
		*ret_big = swapped && table[t].size > 1;
	return t;
}

enum dtype dtype_by_safetensors(struct span name)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++)
		if (table[t].safetensors && span_eq(name, span_str(table[t].safetensors)))
			return t;
	return DTYPE_UNKNOWN;
}
