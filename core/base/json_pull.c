/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_pull.c - read JSON value by value.
 *
 * No nodes are built (json.c does that) and nothing is interpreted. There is no recursion: the open
 * containers are a depth and one bit each.
 *
 * Invariants: a value is consumed only when all of it is well formed; strings that are returned are
 * valid UTF-8; after a failure `at` stays where it happened.
 */
#include "core/base/json_pull.h"

#include <assert.h>
#include <math.h>

#include "core/base/err.h"

void json_pull_init(struct json_pull *p, struct span text, const char *what)
{
	*p = (struct json_pull){
		.text = text, .what = what, .name.metered = true, .str.metered = true
	};
	if (span_starts(text, span_str("\xef\xbb\xbf")))
		p->at = 3;
	if (text.n > LIMIT_JSON_BYTES)
		p->error = fail(-EFBIG, "%s: %zu bytes of JSON exceed the limit of %llu", what,
				text.n, (unsigned long long)LIMIT_JSON_BYTES);
}

void json_pull_release(struct json_pull *p)
{
	buf_release(&p->name);
	buf_release(&p->str);
}

int json_pull_bad(struct json_pull *p, const char *why)
{
	if (!p->error)
		p->error = json_bad(p->what, p->text, p->at, why);
	return p->error;
}

/* Memory is short, or the meter refused it. This is final, as every failure is. */
static int no_memory(struct json_pull *p, int r)
{
	return p->error = p->error ? p->error : r;
}

/* The next byte that is not white space, or -1 at the end. */
static int peek(struct json_pull *p)
{
	while (p->at < p->text.n) {
		uint8_t c = p->text.p[p->at];

		if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
			return c;
		p->at++;
	}
	return -1;
}

int json_pull_kind(struct json_pull *p)
{
	if (p->error)
		return p->error;
	switch (peek(p)) {
	case '{':
		return JSON_OBJECT;
	case '[':
		return JSON_ARRAY;
	case '"':
		return JSON_STRING;
	case 't':
	case 'f':
		return JSON_BOOL;
	case 'n':
		return JSON_NULL;
	case '-':
	case '0' ... '9':
	case 'N':
	case 'I':
		return JSON_FLOAT;
	case -1:
		return json_pull_bad(p, "the document is truncated");
	default:
		return json_pull_bad(p, "not JSON");
	}
}

/* -EUCLEAN unless the next value is of that kind. */
static int expect(struct json_pull *p, enum json_kind kind)
{
	static const char *const why[] = {
		[JSON_NULL] = "not null",      [JSON_BOOL] = "not true or false",
		[JSON_FLOAT] = "not a number", [JSON_STRING] = "not a string",
		[JSON_ARRAY] = "not an array", [JSON_OBJECT] = "not an object",
	};
	int r = json_pull_kind(p);

	if (r < 0)
		return r;
	return r == (int)kind ? 0 : json_pull_bad(p, why[kind]);
}

/* ---- strings ---- */

/*
 * The length of the run of plain ASCII at the start of s: no quote, backslash or control character.
 */
static size_t plain_len(struct span s)
{
	const uint64_t ones = ~(uint64_t)0 / 255, high = ones << 7;
	size_t i = 0;

	/* Eight bytes at a time: a byte that is not plain sets its high bit. */
	for (; i + 8 <= s.n; i += 8) {
		uint64_t w, quote, slash;

		memcpy(&w, s.p + i, 8);
		quote = w ^ ones * '"';
		slash = w ^ ones * '\\';
		if (((w - ones * 0x20) | (quote - ones) | (slash - ones) | w) & high)
			break;
	}
	while (i < s.n && s.p[i] >= 0x20 && s.p[i] < 0x80 && s.p[i] != '"' && s.p[i] != '\\')
		i++;
	return i;
}

static int add_code(struct buf *b, uint32_t c)
{
	uint8_t u[4];

	if (c < 0x80)
		return buf_add_byte(b, (uint8_t)c);
	if (c < 0x800) {
		u[0] = (uint8_t)(0xc0 | c >> 6);
		u[1] = (uint8_t)(0x80 | (c & 0x3f));
		return buf_add(b, u, 2);
	}
	if (c < 0x10000) {
		u[0] = (uint8_t)(0xe0 | c >> 12);
		u[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		u[2] = (uint8_t)(0x80 | (c & 0x3f));
		return buf_add(b, u, 3);
	}
	u[0] = (uint8_t)(0xf0 | c >> 18);
	u[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	u[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	u[3] = (uint8_t)(0x80 | (c & 0x3f));
	return buf_add(b, u, 4);
}

/* Take the escape at p->at, which is a backslash. */
static int take_escape(struct json_pull *p, struct buf *b)
{
	static const char letter[] = "\"\\/bfnrt", value[] = "\"\\/\b\f\n\r\t";
	struct span s = span_from(p->text, p->at + 1);
	const char *at = s.n && s.p[0] ? strchr(letter, s.p[0]) : NULL;
	unsigned c, low;

	if (at) {
		p->at += 2;
		return buf_add_byte(b, (uint8_t)value[at - letter]);
	}
	if (s.n == 0)
		return json_pull_bad(p, "string is truncated");
	if (s.p[0] != 'u')
		return json_pull_bad(p, "unknown escape");
	if (!json_hex4(span_from(s, 1), &c))
		return json_pull_bad(p, "malformed \\u escape");
	p->at += 6;
	if (c < 0xd800 || c >= 0xe000)
		return add_code(b, c);
	s = span_from(p->text, p->at);
	if (c >= 0xdc00 || s.n < 6 || s.p[0] != '\\' || s.p[1] != 'u' ||
	    !json_hex4(span_from(s, 2), &low) || low < 0xdc00 || low >= 0xe000)
		return json_pull_bad(p, "half of a surrogate pair");
	p->at += 6;
	return add_code(b, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
}

/* Take the string at p->at, which is a quote. b is used only when the string has escapes. */
static int take_string(struct json_pull *p, struct buf *b, struct span *ret)
{
	size_t from = ++p->at;
	bool escaped = false;
	int r = 0;

	buf_clear(b);
	for (;;) {
		size_t n;

		p->at += plain_len(span_from(p->text, p->at));
		if (p->at == p->text.n)
			return json_pull_bad(p, "string is truncated");
		if (p->text.p[p->at] == '"')
			break;
		if (p->text.p[p->at] == '\\') {
			r = buf_add(b, p->text.p + from, p->at - from);
			if (r >= 0)
				r = take_escape(p, b);
			if (r < 0)
				return no_memory(p, r);
			escaped = true;
			from = p->at;
			continue;
		}
		n = utf8_len(span_from(p->text, p->at));
		if (n < 2)
			return json_pull_bad(p, n ? "control character in a string" : "not UTF-8");
		p->at += n;
	}
	if (escaped)
		r = buf_add(b, p->text.p + from, p->at - from);
	if (r < 0)
		return no_memory(p, r);
	*ret = escaped ? buf_span(b) : span_of(p->text.p + from, p->at - from);
	p->at++;
	return 0;
}

int json_pull_str(struct json_pull *p, struct span *ret)
{
	int r = expect(p, JSON_STRING);

	return r < 0 ? r : take_string(p, &p->str, ret);
}

/* ---- containers ---- */

int json_pull_enter(struct json_pull *p, enum json_kind kind)
{
	int r = expect(p, kind);

	if (r < 0)
		return r;
	if (p->depth == LIMIT_JSON_PULL_DEPTH)
		return json_pull_bad(p, "nested too deeply");
	if (kind == JSON_OBJECT)
		p->object[p->depth / 64] |= (uint64_t)1 << p->depth % 64;
	else
		p->object[p->depth / 64] &= ~((uint64_t)1 << p->depth % 64);
	p->depth++;
	p->at++;
	p->fresh = true;
	return 0;
}

static bool in_object(const struct json_pull *p)
{
	unsigned i = p->depth - 1;

	return p->object[i / 64] >> i % 64 & 1;
}

int json_pull_next(struct json_pull *p, struct span *ret_name)
{
	struct span name;
	bool object;
	int c, r;

	if (p->error)
		return p->error;
	assert(p->depth > 0);
	object = in_object(p);
	c = peek(p);
	if (c == (object ? '}' : ']')) {
		p->at++;
		p->depth--;
		p->fresh = false;
		return 0;
	}
	if (!p->fresh) {
		if (c != ',')
			return json_pull_bad(p, c < 0 ? "the document is truncated" : "not JSON");
		p->at++;
		c = peek(p);
	}
	p->fresh = false;
	if (!object)
		return c == ']' ? json_pull_bad(p, "not JSON") : 1;
	if (c != '"')
		return json_pull_bad(p, c < 0 ? "the document is truncated" : "not JSON");
	r = take_string(p, &p->name, &name);
	if (r < 0)
		return r;
	if (peek(p) != ':')
		return json_pull_bad(p, "no colon after a member's name");
	p->at++;
	if (ret_name)
		*ret_name = name;
	return 1;
}

/* ---- other values ---- */

static int take_number(struct json_pull *p, struct span *ret)
{
	size_t n = json_number_len(span_from(p->text, p->at));

	if (!n)
		return json_pull_bad(p, "malformed number");
	*ret = span_of(p->text.p + p->at, n);
	p->at += n;
	return 0;
}

static bool is_integer(struct span number)
{
	for (size_t i = number.p[0] == '-'; i < number.n; i++)
		if (number.p[i] < '0' || number.p[i] > '9')
			return false;
	return true;
}

/*
 * The value of a number token of any length, or of a word. The copy is at most as long as the
 * document.
 */
static int number_double(struct json_pull *p, struct span number, double *ret)
{
	auto_buf text = { .metered = true };
	int r = buf_reserve(&text, number.n + 1);

	if (r < 0)
		return no_memory(p, r);
	buf_add_span(&text, number);
	*ret = strtod(buf_str(&text), NULL);
	return 0;
}

/* Take a number, and say where it was, for a message about it. */
static int take_number_at(struct json_pull *p, size_t *ret_at, struct span *ret)
{
	int r = expect(p, JSON_FLOAT);

	*ret_at = p->at;
	return r < 0 ? r : take_number(p, ret);
}

int json_pull_int(struct json_pull *p, int64_t *ret)
{
	struct json j = { .kind = JSON_FLOAT };
	struct span number;
	size_t was;
	int r = take_number_at(p, &was, &number);

	if (r < 0)
		return r;
	if (is_integer(number) && number.n <= 20) {
		char text[24] = "";

		memcpy(text, number.p, number.n);
		errno = 0;
		j.kind = JSON_INT;
		j.i = strtoll(text, NULL, 10);
		if (errno)
			j.kind = JSON_UNKNOWN;
	} else {
		r = number_double(p, number, &j.d);
		if (r < 0)
			return r;
	}
	if (json_as_int(&j, ret))
		return 0;
	p->at = was;
	return json_pull_bad(p, "not an integer of 64 bits");
}

int json_pull_uint(struct json_pull *p, uint64_t *ret)
{
	struct span number;
	size_t was;
	int r = take_number_at(p, &was, &number);

	if (r < 0)
		return r;
	*ret = 0;
	for (size_t i = 0; i < number.n; i++) {
		uint64_t digit = number.p[i] - (uint64_t)'0';

		if (digit <= 9 && mul_fits(*ret, 10, ret) && add_fits(*ret, digit, ret))
			continue;
		p->at = was;
		return json_pull_bad(p, "not an integer from 0 to 2^64");
	}
	return 0;
}

static int take_word(struct json_pull *p, const char *word)
{
	if (!span_starts(span_from(p->text, p->at), span_str(word)))
		return json_pull_bad(p, "not JSON");
	p->at += strlen(word);
	return 0;
}

int json_pull_bool(struct json_pull *p, bool *ret)
{
	int r = expect(p, JSON_BOOL);
	bool yes = r >= 0 && p->text.p[p->at] == 't';

	if (r < 0)
		return r;
	r = take_word(p, yes ? "true" : "false");
	if (r < 0)
		return r;
	*ret = yes;
	return r;
}

static int respell_number(struct json_pull *p, struct span number, struct buf *out)
{
	double d;
	int r;

	if (span_eq(number, span_str("-0")))
		return buf_add_byte(out, '0');
	if (is_integer(number))
		return buf_add_span(out, number);
	r = number_double(p, number, &d);
	if (r < 0)
		return r;
	/* A number beyond the range of double would become Infinity. */
	return isinf(d) && !memchr(number.p, 'I', number.n) ? buf_add_span(out, number) :
							      json_put_double(out, d, JSON_PYTHON);
}

/* Take any value but a container; out may be NULL. */
static int take_scalar(struct json_pull *p, enum json_kind kind, struct buf *out)
{
	const char *word = kind == JSON_NULL ? "null" : p->text.p[p->at] == 't' ? "true" : "false";
	struct span s;
	int r;

	switch (kind) {
	case JSON_STRING:
		r = take_string(p, &p->str, &s);
		return r < 0 || !out ? r : json_put_str(out, s, JSON_PYTHON);
	case JSON_FLOAT:
		r = take_number(p, &s);
		return r < 0 || !out ? r : respell_number(p, s, out);
	default:
		r = take_word(p, word);
		return r < 0 || !out ? r : buf_add_str(out, word);
	}
}

/*
 * Advance from the end of one value to the start of the next one below depth. Returns 1, or 0 when
 * the container at depth itself has ended.
 */
static int walk_on(struct json_pull *p, unsigned depth, struct buf *out)
{
	while (p->depth > depth) {
		bool object = in_object(p), first = p->fresh;
		struct span name;
		int r = json_pull_next(p, &name);

		if (r > 0 && out && !first)
			buf_add_str(out, ", ");
		if (r > 0 && out && object)
			json_put_name(out, name, JSON_PYTHON);
		if (r)
			return r;
		if (out)
			buf_add_str(out, object ? "}" : "]");
	}
	return 0;
}

/* Consume one whole value, and append it to out unless out is NULL. */
static int walk(struct json_pull *p, struct buf *out)
{
	unsigned depth = p->depth;
	int r;

	do {
		int kind = json_pull_kind(p);

		if (kind < 0)
			return kind;
		if (kind == JSON_OBJECT || kind == JSON_ARRAY) {
			r = json_pull_enter(p, (enum json_kind)kind);
			if (r >= 0 && out)
				buf_add_str(out, kind == JSON_OBJECT ? "{" : "[");
		} else {
			r = take_scalar(p, (enum json_kind)kind, out);
		}
		if (r >= 0)
			r = walk_on(p, depth, out);
		if (r >= 0 && out && buf_failed(out) < 0)
			r = buf_failed(out);
	} while (r > 0);
	return r < 0 ? no_memory(p, r) : r;
}

int json_pull_shape(struct json_pull *p, uint64_t *ret, unsigned *ret_rank)
{
	unsigned rank = 0;
	int r = json_pull_enter(p, JSON_ARRAY);

	while (r >= 0 && (r = json_pull_next(p, NULL)) > 0) {
		int64_t v;

		if (rank == LIMIT_RANK)
			return fail(-EFBIG, "%s: a shape has more than %d axes", p->what,
				    LIMIT_RANK);
		r = json_pull_int(p, &v);
		if (r < 0)
			return r;
		if (v < 0)
			return json_pull_bad(p, "a shape has a negative axis");
		ret[rank++] = (uint64_t)v;
	}
	*ret_rank = rank;
	return r;
}

int json_pull_skip(struct json_pull *p)
{
	return walk(p, NULL);
}

int json_pull_raw(struct json_pull *p, struct span *ret)
{
	size_t from;
	int r = json_pull_kind(p);

	if (r < 0)
		return r;
	from = p->at;
	r = walk(p, NULL);
	if (r < 0)
		return r;
	*ret = span_of(p->text.p + from, p->at - from);
	return r;
}

int json_pull_respell(struct json_pull *p, struct buf *out)
{
	size_t was = out->n;
	int r = walk(p, out);

	if (r < 0)
		out->n = was;
	return r;
}

int json_pull_end(struct json_pull *p)
{
	if (p->error)
		return p->error;
	return peek(p) < 0 ? 0 : json_pull_bad(p, "something follows the document");
}

int json_pull_check(struct span text)
{
	auto_json_pull p;
	int r;

	json_pull_init(&p, text, "a document");
	r = json_pull_skip(&p);
	if (r >= 0)
		r = json_pull_end(&p);
	err_clear();
	return r;
}
