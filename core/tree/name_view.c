/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_view.c - the grammar of a name: a stem; [box], @cast and @shape in any order; an extension.
 *
 * Only the grammar is here: the caller checks that the leaf exists, that the box is inside it and
 * that the cast is a type. The stem stays escaped (name.c).
 *
 * Invariant: name_view_parse() parses the output of name_view_print() to the same view.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/tree/name.h"

static int malformed(struct span name, const char *why)
{
	return fail(-EINVAL, "name '%.*s': %s", SPAN_ARG(name), why);
}

/*
 * Take the decimal number at the start of s, at most max, in its only spelling. Returns its length,
 * or 0.
 */
static size_t name_view_take_number(struct span s, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = 0;

	while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
		n++;
	if (n == 0 || (n > 1 && s.p[0] == '0'))
		return 0;
	for (size_t i = 0; i < n; i++) {
		unsigned d = s.p[i] - 0u - '0';

		if (v > (max - d) / 10)
			return 0;
		v = v * 10 + d;
	}
	*ret = v;
	return n;
}

/* The same with an optional sign: "-5". */
static size_t take_signed(struct span s, int64_t *ret)
{
	bool minus = s.n && s.p[0] == '-';
	uint64_t v;
	size_t n = name_view_take_number(span_from(s, minus), INT64_MAX, &v);

	if (n == 0 || (minus && v == 0))
		return 0;
	*ret = minus ? -(int64_t)v : (int64_t)v;
	return n + minus;
}

/* The number of bytes of s before the first of the two characters. */
static size_t until(struct span s, char a, char b)
{
	size_t n = 0;

	while (n < s.n && s.p[n] != a && s.p[n] != b)
		n++;
	return n;
}

/* "3", "-1", "1:8", ":", "::2", "..." */
static bool parse_slice(struct span s, struct name_slice *ret)
{
	struct name_slice v = { .kind = NAME_SLICE_RANGE, .step = 1 };
	size_t n;

	if (span_eq(s, span_str("..."))) {
		v.kind = NAME_SLICE_ELLIPSIS;
		*ret = v;
		return true;
	}
	n = take_signed(s, &v.start);
	v.has_start = n > 0;
	s = span_from(s, n);
	if (s.n == 0 && v.has_start) {
		v.kind = NAME_SLICE_INDEX;
		*ret = v;
		return true;
	}
	if (s.n == 0 || s.p[0] != ':')
		return false;
	s = span_from(s, 1);
	n = take_signed(s, &v.stop);
	v.has_stop = n > 0;
	s = span_from(s, n);
	if (s.n && s.p[0] == ':') {
		s = span_from(s, 1);
		n = take_signed(s, &v.step);
		s = span_from(s, n);
	}
	if (s.n || v.step < 1)
		return false;
	*ret = v;
	return true;
}

/* Parse the entries between the brackets. */
static int parse_box(struct span name, struct span in, struct name_view *v)
{
	bool ellipsis = false;

	for (;;) {
		size_t n = until(in, ',', ',');
		struct name_slice *s = &v->box[v->n_box];

		if (v->n_box == ARRAY_LEN(v->box))
			return malformed(name, "the box has too many axes");
		if (!parse_slice(span_of(in.p, n), s))
			return malformed(name, "malformed slice in the box");
		if (s->kind == NAME_SLICE_ELLIPSIS && ellipsis)
			return malformed(name, "the box has two ellipses");
		ellipsis = ellipsis || s->kind == NAME_SLICE_ELLIPSIS;
		v->n_box++;
		if (n == in.n)
			break;
		in = span_from(in, n + 1);
	}
	if (v->n_box > LIMIT_RANK && !ellipsis)
		return malformed(name, "the box has too many axes");
	v->has_box = true;
	return 0;
}

static int parse_shape(struct span name, struct span s, struct name_view *v)
{
	if (v->has_shape)
		return malformed(name, "two shapes");
	for (;;) {
		size_t n;

		if (v->n_shape == LIMIT_RANK)
			return malformed(name, "the shape has too many axes");
		n = name_view_take_number(s, UINT64_MAX, &v->shape[v->n_shape]);
		if (n == 0)
			return malformed(name, "malformed shape");
		v->n_shape++;
		s = span_from(s, n);
		if (s.n == 0)
			break;
		if (s.p[0] != 'x')
			return malformed(name, "malformed shape");
		s = span_from(s, 1);
	}
	v->has_shape = true;
	return 0;
}

static int parse_cast(struct span name, struct span s, struct name_view *v)
{
	if (v->has_cast)
		return malformed(name, "two casts");
	for (size_t i = 0; i < s.n; i++) {
		bool letter = (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z');
		bool other = (s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '_';

		if (!letter && !(other && i))
			return malformed(name, "malformed cast");
	}
	if (s.n == 0)
		return malformed(name, "nothing after '@'");
	v->has_cast = true;
	v->cast = s;
	return 0;
}

/* Parse "[...]" or "@..." at the start of *rest, and advance *rest past it. */
static int take_part(struct span name, struct span *rest, struct name_view *v)
{
	struct span part = span_from(*rest, 1);
	int r;

	if (rest->p[0] == '[') {
		size_t n = until(part, ']', ']');

		if (n == part.n)
			return malformed(name, "the box has no end");
		if (v->has_box)
			return malformed(name, "two boxes");
		r = parse_box(name, span_of(part.p, n), v);
		*rest = span_from(*rest, n + 2);
		return r;
	}
	if (rest->p[0] != '@')
		return malformed(name, "something other than '[' or '@' follows the box");
	part = span_of(part.p, until(part, '@', '['));
	r = part.n && part.p[0] >= '0' && part.p[0] <= '9' ? parse_shape(name, part, v) :
							     parse_cast(name, part, v);
	*rest = span_from(*rest, part.n + 1);
	return r;
}

int name_view_parse(struct span name, struct name_view *ret)
{
	struct name_view v = { .ext = name_ext_of(name) };
	struct span rest = span_of(name.p, name.n - strlen(name_ext_text(v.ext)));
	size_t n = until(rest, '[', '@');
	int r = 0;

	v.stem = span_of(rest.p, n);
	rest = span_from(rest, n);
	if (n == 0)
		return malformed(name, "nothing before the extension or view");
	if (rest.n && v.ext == NAME_EXT_NONE)
		return malformed(name, "a view needs an extension");
	while (r >= 0 && rest.n)
		r = take_part(name, &rest, &v);
	if (r < 0)
		return r;
	*ret = v;
	return r;
}

static int print_slice(const struct name_slice *s, struct buf *out)
{
	char start[24] = "", stop[24] = "", step[24] = "";

	if (s->kind == NAME_SLICE_ELLIPSIS)
		return buf_add_str(out, "...");
	if (s->has_start || s->kind == NAME_SLICE_INDEX)
		snprintf(start, sizeof(start), "%" PRId64, s->start);
	if (s->kind == NAME_SLICE_INDEX)
		return buf_add_str(out, start);
	if (s->has_stop)
		snprintf(stop, sizeof(stop), "%" PRId64, s->stop);
	if (s->step != 1)
		snprintf(step, sizeof(step), ":%" PRId64, s->step);
	return buf_addf(out, "%s:%s%s", start, stop, step);
}

int name_view_print(const struct name_view *v, struct buf *ret)
{
	struct span cast = v->has_cast ? v->cast : span_of(NULL, 0);
	auto_buf out = { 0 };
	int r = buf_add_span(&out, v->stem);

	for (unsigned i = 0; v->has_box && i < v->n_box && r >= 0; i++) {
		r = buf_add_byte(&out, i ? ',' : '[');
		if (r < 0)
			return r;
		r = print_slice(&v->box[i], &out);
	}
	if (r < 0)
		return r;
	r = buf_addf(&out, "%s%s%.*s", v->has_box ? "]" : "", v->has_cast ? "@" : "",
		     SPAN_ARG(cast));
	for (unsigned i = 0; v->has_shape && i < v->n_shape && r >= 0; i++)
		r = buf_addf(&out, "%c%" PRIu64, i ? 'x' : '@', v->shape[i]);
	if (r < 0)
		return r;
	r = buf_add_str(&out, name_ext_text(v->ext));
	return r < 0 ? r : buf_add_span(ret, buf_span(&out));
}
