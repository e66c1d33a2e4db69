/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype_fill.c - fill values of zarr metadata, as TensorStore 0.1.86 reads and writes them.
 *
 * v2 and v3 have different rules, and both differ from those of a value in the mount
 * (dtype_value.c).
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/dtype/small_float.h"

static int bad_fill(enum dtype t, const char *what)
{
	return fail(-EUCLEAN, "fill_value is not %s for %s", what, dtype_info(t)->name);
}

/* ---- float8_e8m0fnu: TensorStore treats the byte as an exponent with bias 63 ---- */

static uint8_t e8m0_from_number(double d)
{
	int e;
	double m = frexp(fabs(d), &e); /* 0.5 <= m < 1, |d| = m * 2^e */

	if (isnan(d) || isinf(d))
		return 0xff;
	if (fabs(d) < 0x1p-62)
		return fabs(d) > 0x1p-63;
	e += 62 + (m >= 0.75);
	return e > 0xff ? 0xff : (uint8_t)e;
}

/* ---- numbers ---- */

/* As TensorStore's static_cast<type>(double). */
static void from_number(enum dtype t, double d, uint8_t *out)
{
	float f = (float)d;
	uint16_t u;

	switch (t) {
	case DTYPE_FLOAT8_E8M0FNU:
		out[0] = e8m0_from_number(d);
		return;
	case DTYPE_FLOAT16:
		u = f16_from_f32(f);
		memcpy(out, &u, 2);
		return;
	case DTYPE_BFLOAT16:
		u = bf16_from_f32(f);
		memcpy(out, &u, 2);
		return;
	case DTYPE_FLOAT32:
		memcpy(out, &f, 4);
		return;
	case DTYPE_FLOAT64:
		memcpy(out, &d, 8);
		return;
	default:
		out[0] = small_from_f64(t, d);
		return;
	}
}

/* ---- text of floats ---- */

/*
 * v2: a number of C in a string, with white space around it; no other words for NaN and infinity.
 */
static bool is_quoted_number(struct span s, double *ret)
{
	const char *text = (const char *)s.p;
	char *end;

	/* A NUL follows the strings of a document, which may contain one. */
	if (!s.n || strlen(text) != s.n)
		return false;
	*ret = strtod(text, &end);
	if (end == text)
		return false;
	while (isspace((unsigned char)*end))
		end++;
	return *end == '\0' && isfinite(*ret);
}

/* v3: the bits as "0x" and hex digits, at most as many as the type has. */
static bool is_hex(struct span s, size_t size, uint64_t *ret)
{
	uint64_t v = 0;

	if (s.n < 3 || s.n > 2 + 2 * size || s.p[0] != '0' || s.p[1] != 'x')
		return false;
	for (size_t i = 2; i < s.n; i++) {
		if (!isxdigit(s.p[i]))
			return false;
		v = v << 4 |
		    (uint64_t)(isdigit(s.p[i]) ? s.p[i] - '0' : tolower(s.p[i]) - 'a' + 10);
	}
	*ret = v;
	return true;
}

static int parse_float(enum dtype t, int version, const struct json *j, uint8_t *out)
{
	bool is_text = json_is(j, JSON_STRING);
	uint64_t bits;
	double d;

	if (dtype_value_number(j, &d) || (is_text && version == 2 && is_quoted_number(j->s, &d))) {
		from_number(t, d, out);
		return 0;
	}
	if (is_text && version == 3 && is_hex(j->s, dtype_info(t)->size, &bits)) {
		memcpy(out, &bits, dtype_info(t)->size);
		return 0;
	}
	return bad_fill(t, !is_text     ? "a number" :
			   version == 2 ? "a number or a word for one" :
					  "a number, a word for one, or hex digits");
}

/* ---- base64, for the types whose numbers v2 does not have ---- */

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/*
 * Decode exactly n bytes. White space may be anywhere, and padding ('=' or '.') is complete or
 * absent, as for absl.
 */
static bool is_base64(struct span s, size_t n, uint8_t *out)
{
	unsigned bits = 0, got = 0, padding = 0;
	size_t digits = 0, m = 0;

	for (size_t i = 0; i < s.n; i++) {
		uint8_t c = s.p[i];
		const char *digit = c ? strchr(base64_digits, c) : NULL;

		if (isspace(c))
			continue;
		if (c == '=' || c == '.') {
			padding++;
			continue;
		}
		if (!digit || padding)
			return false;
		bits = bits << 6 | (unsigned)(digit - base64_digits);
		got += 6;
		digits++;
		if (got >= 8) {
			got -= 8;
			if (m == n)
				return false;
			out[m++] = (uint8_t)(bits >> got);
		}
	}
	return m == n && digits % 4 != 1 && (!padding || (digits + padding) % 4 == 0) &&
	       padding < 3;
}

/* ---- parsing and printing ---- */

int dtype_fill_parse(enum dtype t, int version, const struct json *j, uint8_t ret[LIMIT_ITEM_BYTES])
{
	enum dtype part = t == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
	const struct dtype_info *info = dtype_info(t);
	uint8_t own[LIMIT_ITEM_BYTES] = { 0 };
	uint64_t u;
	int r = 0;

	switch (info->kind) {
	case DTYPE_KIND_BOOL:
		if (!json_is(j, JSON_BOOL))
			return bad_fill(t, "true or false");
		own[0] = j->b;
		break;
	case DTYPE_KIND_INT:
	case DTYPE_KIND_UINT:
		/* v2 checks the range of the whole byte; the excess bits are cleared below. */
		if (dtype_value_integer(j, info->kind == DTYPE_KIND_INT,
					version == 2 ? 8u * info->size : info->bits, &u) <= 0)
			return bad_fill(t, "an integer in range");
		memcpy(own, &u, info->size);
		break;
	case DTYPE_KIND_FLOAT:
		/* TensorStore has no numbers for this type in v2. */
		if (version == 2 && t == DTYPE_FLOAT4_E2M1FN)
			r = json_is(j, JSON_STRING) && is_base64(j->s, 1, own) ?
				    0 :
				    bad_fill(t, "one byte in base64");
		else
			r = parse_float(t, version, j, own);
		break;
	case DTYPE_KIND_COMPLEX:
		if (version == 2 && json_is(j, JSON_STRING) && is_base64(j->s, info->size, own))
			break;
		if (!json_is(j, JSON_ARRAY) || j->n != 2)
			return bad_fill(t, "an array of two numbers");
		r = parse_float(part, version, &j->items[0], own);
		r = r < 0 ? r : parse_float(part, version, &j->items[1], own + info->word);
		break;
	}
	if (r < 0)
		return r;
	cast_canonical(t, own, 1);
	memcpy(ret, own, sizeof(own));
	return 0;
}

static int print_float(enum dtype t, int version, const uint8_t *p, struct buf *ret)
{
	const struct dtype_info *info = dtype_info(t);
	uint8_t nan[LIMIT_ITEM_BYTES];
	uint64_t bits = 0;
	double d;

	if (t == DTYPE_FLOAT8_E8M0FNU)
		d = p[0] == 0xff ? NAN : p[0] ? ldexp(p[0] & 0x80 ? -1 : 1, p[0] - 63) : 0;
	else
		cast(DTYPE_FLOAT64, &d, t, p, 1);
	if (isnan(d) && version == 3) {
		from_number(t, NAN, nan);
		memcpy(&bits, p, info->size);
		if (memcmp(nan, p, info->size) != 0)
			return buf_addf(ret, "\"0x%0*llx\"", 2 * info->size,
					(unsigned long long)bits);
	}
	return json_put_double(ret, d, JSON_COMPACT);
}

int dtype_fill_print(enum dtype t, int version, const uint8_t fill[LIMIT_ITEM_BYTES],
		     struct buf *ret)
{
	enum dtype part = t == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;

	if (t == DTYPE_FLOAT4_E2M1FN && version == 2)
		return buf_addf(ret, "\"%c%c==\"", base64_digits[fill[0] >> 2],
				base64_digits[fill[0] << 4 & 63]);
	if (dtype_info(t)->kind == DTYPE_KIND_FLOAT)
		return print_float(t, version, fill, ret);
	if (dtype_info(t)->kind != DTYPE_KIND_COMPLEX)
		return dtype_value_print(t, fill, ret);
	buf_add_byte(ret, '[');
	print_float(part, version, fill, ret);
	buf_add_byte(ret, ',');
	print_float(part, version, fill + dtype_info(t)->word, ret);
	buf_add_byte(ret, ']');
	return buf_failed(ret);
}
