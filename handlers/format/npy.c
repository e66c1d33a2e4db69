/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - the header of an .npy file: a Python literal. It is parsed with any spacing and order of
 * members, and written exactly as numpy does.
 *
 * The literal must be a dict of exactly three members: a string, True or False, and a tuple of
 * integers. No other Python is accepted.
 */
#include "handlers/format/npy.h"

#include <ctype.h>

#include "core/base/err.h"
#include "core/base/wire.h"

#define NPY_ALIGN 64
/* digits of 2^64: numpy pads the header so that the first extent can grow in place */
#define NPY_GROWTH 21

/* ---- reading ---- */

struct literal {
	struct span s; /* the text that is not parsed yet */
	bool bad;
};

static void skip_space(struct literal *l)
{
	while (l->s.n && isspace(l->s.p[0]))
		l->s = span_from(l->s, 1);
}

static bool npy_take_char(struct literal *l, char c)
{
	skip_space(l);
	if (!l->s.n || l->s.p[0] != (uint8_t)c)
		return false;
	l->s = span_from(l->s, 1);
	return true;
}

static void want_char(struct literal *l, char c)
{
	if (!npy_take_char(l, c))
		l->bad = true;
}

/* A quoted string without escapes. */
static struct span npy_take_string(struct literal *l)
{
	struct span text = { 0 };
	const uint8_t *end;

	skip_space(l);
	if (!l->s.n || (l->s.p[0] != '\'' && l->s.p[0] != '"')) {
		l->bad = true;
		return text;
	}
	end = memchr(l->s.p + 1, l->s.p[0], l->s.n - 1);
	if (!end || memchr(l->s.p, '\\', (size_t)(end - l->s.p))) {
		l->bad = true;
		return text;
	}
	text = span_of(l->s.p + 1, (size_t)(end - l->s.p) - 1);
	l->s = span_from(l->s, text.n + 2);
	return text;
}

static bool npy_take_word(struct literal *l, const char *word)
{
	skip_space(l);
	if (!span_starts(l->s, span_str(word)))
		return false;
	l->s = span_from(l->s, strlen(word));
	return true;
}

static uint64_t npy_take_number(struct literal *l)
{
	uint64_t v = 0;
	size_t i = 0;

	skip_space(l);
	for (; i < l->s.n && isdigit(l->s.p[i]); i++)
		if (!mul_fits(v, 10, &v) || !add_fits(v, l->s.p[i] - 0u - '0', &v))
			l->bad = true;
	/* Python has no numbers with a zero in front. */
	if (i == 0 || (i > 1 && l->s.p[0] == '0'))
		l->bad = true;
	l->s = span_from(l->s, i);
	/* Python 2 wrote long integers as 5L. */
	if (l->s.n && l->s.p[0] == 'L')
		l->s = span_from(l->s, 1);
	return v;
}

static void npy_take_shape(struct literal *l, struct npy *n)
{
	want_char(l, '(');
	while (!l->bad && !npy_take_char(l, ')')) {
		if (n->rank == LIMIT_RANK) {
			l->bad = true;
			return;
		}
		n->shape[n->rank++] = npy_take_number(l);
		if (npy_take_char(l, ','))
			continue;
		/* A tuple of one number needs a comma: (3) is a number. */
		if (n->rank == 1)
			l->bad = true;
		want_char(l, ')');
		return;
	}
}

static int parse_literal(struct span text, struct npy *n, struct span *ret_descr)
{
	struct literal l = { text, false };
	unsigned seen = 0;

	want_char(&l, '{');
	while (!l.bad && !npy_take_char(&l, '}')) {
		struct span key = npy_take_string(&l);
		unsigned bit = span_eq(key, span_str("descr"))         ? 1 :
			       span_eq(key, span_str("fortran_order")) ? 2 :
			       span_eq(key, span_str("shape"))         ? 4 :
									 0;
		if (!bit || seen & bit)
			return fail(-EUCLEAN, "npy header: unexpected member '%.*s'",
				    SPAN_ARG(key));
		seen |= bit;
		want_char(&l, ':');
		if (bit == 1 && npy_take_char(&l, '['))
			return fail(-EOPNOTSUPP,
				    "an npy type with fields cannot be in a checkpoint");
		if (bit == 1)
			*ret_descr = npy_take_string(&l);
		else if (bit == 2 && npy_take_word(&l, "True"))
			n->fortran = true;
		else if (bit == 2 && !npy_take_word(&l, "False"))
			l.bad = true;
		else if (bit == 4)
			npy_take_shape(&l, n);
		if (!npy_take_char(&l, ',') && !l.bad) {
			want_char(&l, '}');
			break;
		}
	}
	skip_space(&l);
	if (l.bad || l.s.n || seen != 7)
		return fail(-EUCLEAN, "npy header is not a dict of descr, fortran_order and shape");
	return 0;
}

int npy_parse(struct span head, struct npy *ret)
{
	static const uint8_t magic[] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };
	struct npy n = { 0 };
	struct span descr = { 0 }, type;
	size_t len, fixed;
	int r;

	if (memcmp(head.p ? (const void *)head.p : "", magic, MIN(head.n, sizeof(magic))) != 0)
		return fail(-EUCLEAN,
			    "not an .npy file: it does not begin with npy's magic number");
	if (head.n < 12)
		return 0;
	if (head.p[6] < 1 || head.p[6] > 3 || head.p[7] != 0)
		return fail(-EUCLEAN, "npy version %u.%u is unknown", head.p[6], head.p[7]);
	fixed = head.p[6] == 1 ? 10 : 12;
	len = head.p[6] == 1 ? head.p[8] | (size_t)head.p[9] << 8 : get_u32le(head.p + 8);
	if (len > NPY_HEADER_MAX - fixed)
		return fail(-EUCLEAN, "npy header of %zu bytes, the limit is %d", len,
			    NPY_HEADER_MAX);
	if (head.n < fixed + len)
		return 0;
	r = parse_literal(span_of(head.p + fixed, len), &n, &descr);
	if (r < 0)
		return r;
	type = descr;
	n.dtype = dtype_by_npy(descr, &n.big_endian);
	if (descr.n && strchr("<>=|", descr.p[0]) && descr.p[0])
		type = span_from(type, 1);
	if (n.dtype == DTYPE_UNKNOWN && !span_eq(type, span_str("V1")))
		return fail(-EOPNOTSUPP, "npy type '%.*s' cannot be in a checkpoint",
			    SPAN_ARG(descr));
	/* A void of one byte may be any of the types of ml_dtypes. */
	n.item = n.dtype == DTYPE_UNKNOWN ? 1 : dtype_info(n.dtype)->size;
	n.big_endian &= n.dtype != DTYPE_UNKNOWN;
	n.data = fixed + len;
	n.bytes = n.item;
	for (unsigned i = 0; i < n.rank; i++)
		if (!mul_fits(n.bytes, n.shape[i], &n.bytes) || n.bytes > INT64_MAX)
			return fail(-EUCLEAN,
				    "npy header: an array of this shape has more than 2^63 bytes");
	*ret = n;
	return 1;
}

/* ---- writing ---- */

/*
 * Append the digits of v and return how many they are. printf() would be too slow: listing a
 * directory makes one header per leaf.
 */
static size_t add_number(struct buf *b, uint64_t v)
{
	uint8_t digits[20];
	size_t n = 0;

	do
		digits[sizeof(digits) - ++n] = (uint8_t)('0' + v % 10);
	while (v /= 10);
	buf_add(b, digits + sizeof(digits) - n, n);
	return n;
}

int npy_header(const struct array_type *t, struct buf *ret)
{
	static const char spaces[NPY_ALIGN + 1] =
		"                                                                ";
	size_t growth = 0;
	auto_buf text = { 0 };

	buf_reserve(&text, 128);
	buf_add_str(&text, "{'descr': '");
	buf_add_str(&text, dtype_info(t->dtype)->npy);
	buf_add_str(&text, "', 'fortran_order': False, 'shape': (");
	for (unsigned i = 0; i < t->rank; i++) {
		size_t digits;

		if (i)
			buf_add_str(&text, ", ");
		digits = add_number(&text, t->shape[i]);
		if (i == 0)
			growth = NPY_GROWTH - digits;
	}
	buf_add_str(&text, t->rank == 1 ? ",), }" : "), }");
	buf_add(&text, spaces, growth);
	/*
	 * Magic, version and length take 10 bytes and the newline takes one. There is always
	 * padding.
	 */
	buf_add(&text, spaces, NPY_ALIGN - (10 + text.n + 1) % NPY_ALIGN);
	buf_add_byte(&text, '\n');
	if (buf_failed(&text))
		return buf_failed(&text);
	buf_add(ret, "\x93NUMPY\x01\x00", 8);
	buf_add_byte(ret, (uint8_t)(text.n & 0xff));
	buf_add_byte(ret, (uint8_t)(text.n >> 8));
	buf_add_span(ret, buf_span(&text));
	return buf_failed(ret);
}
