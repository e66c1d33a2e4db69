/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_print.c - write JSON: in Python's spelling, in TensorStore's, and for people.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/limits.h"

static bool is_python(enum json_style style)
{
	return style == JSON_PYTHON || style == JSON_PYTHON_SORTED;
}

static int put_escape(struct buf *out, uint32_t c)
{
	static const char named[] = "\b\t\n\f\r\"\\";
	static const char letter[] = "btnfr\"\\";
	const char *at = c && c < 0x80 ? strchr(named, (int)c) : NULL;

	if (at)
		return buf_addf(out, "\\%c", letter[at - named]);
	if (c >= 0x10000) {
		c -= 0x10000;
		return buf_addf(out, "\\u%04x\\u%04x", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
	}
	return buf_addf(out, "\\u%04x", c);
}

uint32_t utf8_code(const uint8_t *p, size_t n)
{
	uint32_t c = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	return c;
}

int json_put_str(struct buf *out, struct span s, enum json_style style)
{
	int r = buf_add_byte(out, '"');

	for (size_t i = 0; i < s.n && r >= 0;) {
		size_t from = i, n;
		uint32_t c;

		/* This is written unchanged in every style. */
		while (i < s.n && s.p[i] >= 0x20 && s.p[i] < 0x7f && s.p[i] != '"' &&
		       s.p[i] != '\\')
			i++;
		r = buf_add(out, s.p + from, i - from);
		if (r < 0 || i == s.n)
			break;
		n = utf8_len(span_from(s, i));
		c = n ? utf8_code(s.p + i, n) : 0xfffd;

		if (c < 0x20 || c == '"' || c == '\\' || (is_python(style) && c >= 0x7f))
			r = put_escape(out, c);
		else if (n)
			r = buf_add(out, s.p + i, n);
		else
			r = buf_add_str(out, "\xef\xbf\xbd");
		i += n ? n : 1;
	}
	return r < 0 ? r : buf_add_byte(out, '"');
}

int json_put_name(struct buf *out, struct span name, enum json_style style)
{
	json_put_str(out, name, style);
	buf_add_str(out, style == JSON_COMPACT ? ":" : ": ");
	return buf_failed(out);
}

int json_put_member(struct buf *out, struct span name, enum json_style style)
{
	if (out->n && out->p[out->n - 1] != '{')
		buf_add_str(out, style == JSON_COMPACT ? "," : ", ");
	return json_put_name(out, name, style);
}

/*
 * Find the fewest digits that read back equal; returns the decimal exponent of the first. Rounding
 * to p digits finds them, except at powers of two, where doubles are denser below than above: there
 * the next larger number of p digits may also read back equal.
 *
 * A double that DBL_DIG digits or fewer read back as prints as these and zeros, which are left out,
 * so the search begins there, unless the double is subnormal and has fewer bits.
 */
static int shortest(double d, char digits[32])
{
	for (int p = d >= DBL_MIN ? DBL_DIG - 1 : 0; p <= 16; p++) {
		char text[40];
		const char *e;
		int n = 0, exponent;

		snprintf(text, sizeof(text), "%.*e", p, d);
		e = strchr(text, 'e');
		exponent = atoi(e + 1);
		for (const char *t = text; t < e; t++)
			if (*t != '.')
				digits[n++] = *t;
		digits[n] = '\0';
		if (p == 16 || strtod(text, NULL) == d) {
			while (n > 1 && digits[n - 1] == '0')
				digits[--n] = '\0';
			return exponent;
		}
		snprintf(digits, 32, "%llu", strtoull(digits, NULL, 10) + 1);
		snprintf(text, sizeof(text), "%se%d", digits, exponent - p);
		if (strtod(text, NULL) == d)
			return exponent;
	}
	return 0;
}

int json_put_double(struct buf *out, double d, enum json_style style)
{
	/* Python's repr and TensorStore's writer use 1e+16 from this exponent on. */
	int top = style == JSON_COMPACT ? 15 : 16;
	char digits[32];
	const char *sign = signbit(d) ? "-" : "";
	int e, n;

	if (!isfinite(d)) {
		const char *word = isnan(d) ? "NaN" : d < 0 ? "-Infinity" : "Infinity";

		return buf_addf(out, is_python(style) ? "%s" : "\"%s\"", word);
	}
	e = shortest(fabs(d), digits);
	n = (int)strlen(digits);
	if (e < -4 || e >= top)
		return buf_addf(out, n > 1 ? "%s%c.%se%c%02d" : "%s%c%se%c%02d", sign, digits[0],
				digits + 1, e < 0 ? '-' : '+', abs(e));
	if (e < 0)
		return buf_addf(out, "%s0.%.*s%s", sign, -e - 1, "0000", digits);
	if (n <= e + 1)
		return buf_addf(out, "%s%s%.*s.0", sign, digits, e + 1 - n, "0000000000000000");
	return buf_addf(out, "%s%.*s.%s", sign, e + 1, digits, digits + e + 1);
}

int json_put_uints(struct buf *out, const uint64_t *v, size_t n, enum json_style style)
{
	int r = buf_add_byte(out, '[');

	for (size_t i = 0; i < n && r >= 0; i++)
		r = buf_addf(out, "%s%llu",
			     !i               ? "" :
			     is_python(style) ? ", " :
						",",
			     (unsigned long long)v[i]);
	return r < 0 ? r : buf_add_byte(out, ']');
}

static void put_indent(struct buf *out, enum json_style style, unsigned depth)
{
	if (style == JSON_PRETTY)
		buf_addf(out, "\n%*s", (int)(2 * depth), "");
}

static int print(struct buf *out, const struct json *j, enum json_style style, unsigned depth);

static int json_print_by_name(const void *a, const void *b)
{
	const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;

	return span_cmp(x->name, y->name);
}

static int print_children(struct buf *out, const struct json *j, enum json_style style,
			  unsigned depth)
{
	bool object = j->kind == JSON_OBJECT;
	auto_free const struct json **order = calloc(j->n ? j->n : 1, sizeof(*order));
	int r = buf_add_byte(out, object ? '{' : '[');

	if (!order)
		return fail(-ENOMEM, "cannot print JSON: not enough memory");
	for (size_t i = 0; i < j->n; i++)
		order[i] = &j->items[i];
	if (object && (style == JSON_COMPACT || style == JSON_PYTHON_SORTED))
		qsort(order, j->n, sizeof(*order), json_print_by_name);
	for (size_t i = 0; i < j->n && r >= 0; i++) {
		buf_add_str(out, !i ? "" : is_python(style) ? ", " : ",");
		put_indent(out, style, depth + 1);
		if (object)
			json_put_name(out, order[i]->name, style);
		r = print(out, order[i], style, depth + 1);
	}
	if (r < 0)
		return r;
	if (j->n)
		put_indent(out, style, depth);
	buf_add_byte(out, object ? '}' : ']');
	return buf_failed(out);
}

static int print(struct buf *out, const struct json *j, enum json_style style, unsigned depth)
{
	switch (j->kind) {
	case JSON_BOOL:
		return buf_add_str(out, j->b ? "true" : "false");
	case JSON_INT:
		return buf_addf(out, "%lld", (long long)j->i);
	case JSON_UINT:
		return buf_addf(out, "%llu", (unsigned long long)j->u);
	case JSON_FLOAT:
		return j->is_beyond ? buf_add_span(out, j->number) :
				      json_put_double(out, j->d, style);
	case JSON_STRING:
		return json_put_str(out, j->s, style);
	case JSON_ARRAY:
	case JSON_OBJECT:
		/* The depth of parsed documents is bounded (LIMIT_JSON_DEPTH). */
		return print_children(out, j, style, depth);
	case JSON_NULL:
	case JSON_UNKNOWN:
		break;
	}
	return buf_add_str(out, "null");
}

int json_print(struct buf *out, const struct json *j, enum json_style style)
{
	return print(out, j, style, 0);
}
