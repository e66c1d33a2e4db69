/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype_value.c - one element <-> the JSON text that the mount shows for it.
 *
 * dtype_fill.c has fill values, which follow other rules.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/dtype/small_float.h"

/* ---- print ---- */

/* Whether the double that text denotes rounds to this element; ret is set to the double. */
static bool reads_back(enum dtype t, const char *text, const void *element, double *ret)
{
	uint8_t again[LIMIT_ITEM_BYTES];

	*ret = strtod(text, NULL);
	cast(t, again, DTYPE_FLOAT64, ret, 1);
	return memcmp(again, element, dtype_info(t)->size) == 0;
}

/*
 * The double with the fewest decimal digits that rounds to the element. Rounding to p digits finds
 * it, except at powers of two, where numbers are denser below than above: there the next larger
 * number of p digits may also read back equal.
 *
 * A float that FLT_DIG digits or fewer read back as prints as these and zeros, so the search begins
 * there, unless the float is subnormal and has fewer bits.
 */
static double dtype_value_shortest(enum dtype t, double d, const void *element)
{
	int p = t == DTYPE_FLOAT32 && fabs(d) >= (double)FLT_MIN ? FLT_DIG - 1 : 0;
	double found;

	for (; p < 17; p++) {
		char text[40], digits[24] = "", next[64];
		const char *e;
		size_t n = 0;

		snprintf(text, sizeof(text), "%.*e", p, fabs(d));
		snprintf(next, sizeof(next), "%s%s", signbit(d) ? "-" : "", text);
		if (reads_back(t, next, element, &found))
			return found;
		e = strchr(text, 'e');
		for (const char *c = text; c < e; c++)
			if (*c != '.')
				digits[n++] = *c;
		snprintf(next, sizeof(next), "%s%llue%d", signbit(d) ? "-" : "",
			 strtoull(digits, NULL, 10) + 1, atoi(e + 1) - p);
		if (reads_back(t, next, element, &found))
			return found;
	}
	return d;
}

static int dtype_value_print_float(enum dtype t, const void *element, struct buf *ret)
{
	double d;

	cast(DTYPE_FLOAT64, &d, t, element, 1);
	/* JSON_PRETTY has Python's spelling of numbers, and NaN and infinities as strings. */
	if (t == DTYPE_FLOAT64 || !isfinite(d))
		return json_put_double(ret, d, JSON_PRETTY);
	return json_put_double(ret, dtype_value_shortest(t, d, element), JSON_PRETTY);
}

int dtype_value_print(enum dtype t, const void *element, struct buf *ret)
{
	enum dtype part = t == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
	uint8_t own[LIMIT_ITEM_BYTES];
	uint64_t u;
	int64_t i;

	memcpy(own, element, dtype_info(t)->size);
	cast_canonical(t, own, 1);
	switch (dtype_info(t)->kind) {
	case DTYPE_KIND_BOOL:
		return buf_add_str(ret, own[0] ? "true" : "false");
	case DTYPE_KIND_INT:
		cast(DTYPE_INT64, &i, t, own, 1);
		return buf_addf(ret, "%lld", (long long)i);
	case DTYPE_KIND_UINT:
		cast(DTYPE_UINT64, &u, t, own, 1);
		return buf_addf(ret, "%llu", (unsigned long long)u);
	case DTYPE_KIND_FLOAT:
		return dtype_value_print_float(t, own, ret);
	case DTYPE_KIND_COMPLEX:
		break;
	}
	buf_add_byte(ret, '[');
	dtype_value_print_float(part, own, ret);
	buf_add_str(ret, ", ");
	dtype_value_print_float(part, own + dtype_info(t)->word, ret);
	buf_add_byte(ret, ']');
	return buf_failed(ret);
}

/* ---- parse ---- */

static int no_value(enum dtype t, const char *why)
{
	return fail(-EINVAL, "value %s %s", why, dtype_info(t)->name);
}

int dtype_value_integer(const struct json *j, bool is_signed, unsigned bits, uint64_t *ret)
{
	int64_t i, top = INT64_MAX >> (64 - bits);
	uint64_t most = UINT64_MAX >> (64 - bits);

	if (json_as_int(j, &i)) {
		*ret = (uint64_t)i;
		return is_signed ? i <= top && i >= -top - 1 : i >= 0 && *ret <= most;
	}
	if (is_signed)
		return -EINVAL;
	if (json_is(j, JSON_UINT))
		*ret = j->u;
	/* An integer, since doubles of this size are. */
	else if (json_is(j, JSON_FLOAT) && j->d >= 0x1p63 && j->d < 0x1p64)
		*ret = (uint64_t)j->d;
	else
		return -EINVAL;
	return *ret <= most;
}

bool dtype_value_number(const struct json *j, double *ret)
{
	static const struct {
		const char *word;
		double d;
	} words[] = { { "NaN", NAN }, { "Infinity", INFINITY }, { "-Infinity", -INFINITY } };

	if (json_as_double(j, ret))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(words) && json_is(j, JSON_STRING); i++) {
		if (span_eq(j->s, span_str(words[i].word))) {
			*ret = words[i].d;
			return true;
		}
	}
	return false;
}

static int dtype_value_parse_float(enum dtype t, const struct json *j, void *element)
{
	uint8_t own[LIMIT_ITEM_BYTES];
	double d, back;

	if (!dtype_value_number(j, &d))
		return no_value(t, "is not a number of");
	cast(t, own, DTYPE_FLOAT64, &d, 1);
	cast(DTYPE_FLOAT64, &back, t, own, 1);
	if (isfinite(d) != isfinite(back) || isnan(d) != isnan(back))
		return no_value(t, "is out of the range of");
	/* This type has no infinity that a too large number would become; it would begin at 7. */
	if (t == DTYPE_FLOAT4_E2M1FN && fabs(d) >= 7)
		return no_value(t, "is out of the range of");
	memcpy(element, own, dtype_info(t)->size);
	return 0;
}

int dtype_value_parse(enum dtype t, const struct json *j, void *element)
{
	enum dtype part = t == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
	const struct dtype_info *info = dtype_info(t);
	uint8_t own[LIMIT_ITEM_BYTES];
	uint64_t u;
	int r;

	switch (dtype_info(t)->kind) {
	case DTYPE_KIND_BOOL:
		if (!json_is(j, JSON_BOOL))
			return no_value(t, "is not true or false of");
		*(uint8_t *)element = j->b;
		return 0;
	case DTYPE_KIND_INT:
	case DTYPE_KIND_UINT:
		r = dtype_value_integer(j, info->kind == DTYPE_KIND_INT, info->bits, &u);
		if (r <= 0)
			return no_value(t,
					r < 0 ? "is not an integer of" : "is out of the range of");
		cast(t, element, DTYPE_UINT64, &u, 1);
		return 0;
	case DTYPE_KIND_FLOAT:
		return dtype_value_parse_float(t, j, element);
	case DTYPE_KIND_COMPLEX:
		break;
	}
	if (!json_is(j, JSON_ARRAY) || j->n != 2)
		return no_value(t, "is not [re, im] of");
	r = dtype_value_parse_float(part, &j->items[0], own);
	if (r < 0)
		return r;
	r = dtype_value_parse_float(part, &j->items[1], own + info->word);
	if (r < 0)
		return r;
	memcpy(element, own, info->size);
	return r;
}
