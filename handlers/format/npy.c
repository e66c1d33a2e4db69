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

static int parse_descr(struct span descr, struct npy *n)
{
	struct span type = descr;

	n->dtype = dtype_by_npy(descr, &n->big_endian);
	if (n->dtype != DTYPE_UNKNOWN) {
		n->item = dtype_info(n->dtype)->size;
		return 0;
	}
	if (type.n && strchr("<>=|", type.p[0]) && type.p[0])
		type = span_from(type, 1);
	if (span_eq(type, span_str("V1"))) {
		n->item = 1;
		n->big_endian = false;
		return 0;
	}
	return fail(-EOPNOTSUPP, "npy type '%.*s' cannot be in a checkpoint", SPAN_ARG(descr));
}

int npy_parse(struct span head, struct npy *ret)
{
	static const uint8_t magic[] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };
	struct npy n = { 0 };
	struct span descr = { 0 };
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
	r = parse_descr(descr, &n);
	if (r < 0)
		return r;
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
 * Append the digits of v and return how many they are, or a negative errno. printf() would be too
 * slow: listing a directory makes one header per leaf.
 */
static int add_number(struct buf *b, uint64_t v)
{
	uint8_t digits[20];
	size_t n = 0;
	int r;

	do
		digits[sizeof(digits) - ++n] = (uint8_t)('0' + v % 10);
	while (v /= 10);
	r = buf_add(b, digits + sizeof(digits) - n, n);
	return r < 0 ? r : (int)n;
}

static int add_spaces(struct buf *b, size_t n)
{
	int r = buf_reserve(b, n);

	if (r < 0)
		return r;
	memset(b->p + b->n, ' ', n);
	b->n += n;
	return 0;
}

static int add_literal(struct buf *b, const struct array_type *t)
{
	int growth = 0, r = buf_add_str(b, "{'descr': '");

	if (r < 0)
		return r;
	r = buf_add_str(b, dtype_info(t->dtype)->npy);
	if (r < 0)
		return r;
	r = buf_add_str(b, "', 'fortran_order': False, 'shape': (");
	for (unsigned i = 0; i < t->rank && r >= 0; i++) {
		if (i)
			r = buf_add_str(b, ", ");
		if (r < 0)
			return r;
		r = add_number(b, t->shape[i]);
		if (i == 0)
			growth = NPY_GROWTH - r;
	}
	if (r < 0)
		return r;
	r = buf_add_str(b, t->rank == 1 ? ",), }" : "), }");
	return r < 0 ? r : add_spaces(b, (size_t)growth);
}

int npy_header(const struct array_type *t, struct buf *ret)
{
	auto_buf text = { 0 };
	int r = buf_reserve(&text, 128);

	if (r < 0)
		return r;
	r = add_literal(&text, t);
	if (r < 0)
		return r;
	/*
	 * Magic, version and length take 10 bytes and the newline takes one. There is always
	 * padding.
	 */
	r = add_spaces(&text, NPY_ALIGN - (10 + text.n + 1) % NPY_ALIGN);
	if (r < 0)
		return r;
	r = buf_add_byte(&text, '\n');
	if (r < 0)
		return r;
	r = buf_add(ret, "\x93NUMPY\x01\x00", 8);
	if (r < 0)
		return r;
	r = buf_add_byte(ret, (uint8_t)(text.n & 0xff));
	if (r < 0)
		return r;
	r = buf_add_byte(ret, (uint8_t)(text.n >> 8));
	return r < 0 ? r : buf_add_span(ret, buf_span(&text));
}
