/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - the only file that uses cJSON.
 *
 * cJSON stores every number as a double, ends strings at NUL, and accepts neither NaN nor Infinity.
 * Checkpoints have times of 19 digits, keys with NUL and losses that are NaN. So a first pass turns
 * these into strings (pre-escape): every number token T becomes "\1nT", a NUL inside a string "\1"
 * "0", and a real \1 "\1" "1". JSON strings may not contain raw control characters, so no other
 * string begins with \1. The second pass converts cJSON's tree into ours and undoes the escapes.
 *
 * The first pass checks tokens (numbers, escapes, UTF-8, depth); cJSON checks the grammar.
 */
#include "core/base/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/base/lfs.h"
#include "core/base/meter.h"

#define SORT_FROM 16 /* number of members from which look-ups use a sorted index */
/* cJSON's memory for one value: its node, its text and its name, each an allocation. */
#define CJSON_NODE_BYTES (sizeof(cJSON) + 16 + 2 * 32)

size_t utf8_len(struct span s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c;
	size_t n;

	if (s.n == 0)
		return 0;
	if (s.p[0] < 0x80)
		return 1;
	n = s.p[0] >= 0xf0 ? 4 : s.p[0] >= 0xe0 ? 3 : 2;
	if (s.p[0] < 0xc2 || s.p[0] > 0xf4 || s.n < n)
		return 0;
	c = s.p[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s.p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s.p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

bool utf8_valid(struct span s)
{
	for (size_t i = 0, n; i < s.n; i += n) {
		n = utf8_len(span_from(s, i));
		if (n == 0)
			return false;
	}
	return true;
}

/* ---- first pass: escape what cJSON cannot represent ---- */

struct pre_escape {
	struct span in;
	size_t at; /* next input byte */
	struct buf *out;
	unsigned depth;
	unsigned nodes;  /* values so far; a lower bound */
	uint64_t most;   /* limit of nodes; more fail with -EFBIG */
	const char *bad; /* reason of the failure at `at` */
};

static int pre_escape_bad(struct pre_escape *c, const char *bad)
{
	c->bad = bad;
	return -EUCLEAN;
}

bool json_hex4(struct span s, unsigned *ret)
{
	unsigned v = 0;

	if (s.n < 4)
		return false;
	for (size_t i = 0; i < 4; i++) {
		uint8_t ch = s.p[i];
		unsigned d = ch >= '0' && ch <= '9' ? ch - 0u - '0' :
			     ch >= 'a' && ch <= 'f' ? ch - 'a' + 10u :
			     ch >= 'A' && ch <= 'F' ? ch - 'A' + 10u :
						      16;
		if (d == 16)
			return false;
		v = v << 4 | d;
	}
	*ret = v;
	return true;
}

static int pre_escape_backslash(struct pre_escape *c)
{
	bool is_code = c->in.n - c->at >= 2 && c->in.p[c->at + 1] == 'u';
	size_t n = is_code ? 6 : 2;
	unsigned v = UINT_MAX;

	if (c->in.n - c->at < 2)
		return pre_escape_bad(c, "string is truncated");
	if (is_code && !json_hex4(span_from(c->in, c->at + 2), &v))
		return pre_escape_bad(c, "malformed \\u escape");
	if (!is_code && (!strchr("\"\\/bfnrt", c->in.p[c->at + 1]) || !c->in.p[c->at + 1]))
		return pre_escape_bad(c, "unknown escape");
	if (v <= 1)
		buf_add_str(c->out, v ? "\\u00011" : "\\u00010");
	else
		buf_add(c->out, c->in.p + c->at, n);
	c->at += n;
	return 0;
}

static int pre_escape_string(struct pre_escape *c)
{
	buf_add_byte(c->out, '"');
	c->at++;
	while (!buf_failed(c->out)) {
		size_t from = c->at, n;
		int r;

		/* Runs of plain ASCII are copied as a whole. */
		while (c->at < c->in.n && c->in.p[c->at] >= 0x20 && c->in.p[c->at] < 0x80 &&
		       c->in.p[c->at] != '"' && c->in.p[c->at] != '\\')
			c->at++;
		buf_add(c->out, c->in.p + from, c->at - from);
		if (c->at == c->in.n)
			return pre_escape_bad(c, "string is truncated");
		if (c->in.p[c->at] == '"') {
			c->at++;
			return buf_add_byte(c->out, '"');
		}
		if (c->in.p[c->at] == '\\') {
			r = pre_escape_backslash(c);
			if (r < 0)
				return r;
			continue;
		}
		n = utf8_len(span_from(c->in, c->at));
		if (n < 2)
			return pre_escape_bad(c, n ? "control character in a string" : "not UTF-8");
		buf_add(c->out, c->in.p + c->at, n);
		c->at += n;
	}
	return buf_failed(c->out);
}

static bool is_digit(struct span s, size_t at)
{
	return at < s.n && s.p[at] >= '0' && s.p[at] <= '9';
}

size_t json_number_len(struct span s)
{
	static const char *const words[] = { "NaN", "Infinity", "-Infinity" };
	size_t at = s.n && s.p[0] == '-';

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (span_starts(s, span_str(words[i])))
			return strlen(words[i]);
	if (!is_digit(s, at))
		return 0;
	if (s.p[at] == '0')
		at++;
	else
		while (is_digit(s, at))
			at++;
	if (at < s.n && s.p[at] == '.') {
		if (!is_digit(s, ++at))
			return 0;
		while (is_digit(s, at))
			at++;
	}
	if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
		at++;
		if (at < s.n && (s.p[at] == '+' || s.p[at] == '-'))
			at++;
		if (!is_digit(s, at))
			return 0;
		while (is_digit(s, at))
			at++;
	}
	return at;
}

/* Copy until the input ends or, to find where cJSON failed, the output has `stop` bytes. */
static int pre_escape_run(struct pre_escape *c, size_t stop)
{
	while (c->at < c->in.n && c->out->n < stop && !buf_failed(c->out)) {
		uint8_t ch = c->in.p[c->at];
		size_t n;
		int r;

		if (ch == '"') {
			r = pre_escape_string(c);
			if (r < 0)
				return r;
		} else if (ch == '-' || (ch >= '0' && ch <= '9') || ch == 'N' || ch == 'I') {
			n = json_number_len(span_from(c->in, c->at));
			if (!n)
				return pre_escape_bad(c, "malformed number");
			buf_addf(c->out, "\"\\u0001n%.*s\"", (int)n, (const char *)c->in.p + c->at);
			c->at += n;
		} else {
			if ((ch == '[' || ch == '{') && ++c->depth > LIMIT_JSON_DEPTH)
				return pre_escape_bad(c, "nested too deeply");
			if ((ch == ']' || ch == '}') && c->depth)
				c->depth--;
			/* cJSON accepts every control character as white space. */
			if (ch < 0x20 && ch != '\t' && ch != '\n' && ch != '\r')
				return pre_escape_bad(c, "control character outside a string");
			if ((ch == ',' || ch == '[' || ch == '{') && ++c->nodes > c->most)
				return -EFBIG;
			buf_add_byte(c->out, ch);
			c->at++;
		}
	}
	return buf_failed(c->out);
}

int json_bad(const char *what, struct span text, size_t at, const char *why)
{
	size_t line = 1, column = 1;

	if (lfs_check(what, text) < 0)
		return -EUCLEAN;
	for (size_t i = 0; i < at && i < text.n; i++) {
		column = text.p[i] == '\n' ? 1 : column + 1;
		line += text.p[i] == '\n';
	}
	return fail(-EUCLEAN, "%s: line %zu, column %zu: %s", what, line, column, why);
}

/* ---- second pass: convert cJSON's tree ---- */

static struct span unescape_str(struct arena *a, const char *s)
{
	size_t n = strlen(s), m = 0;
	uint8_t *p = arena_dup(a, span_of(s, n));

	if (!p)
		return span_of(NULL, 0);
	if (!memchr(p, 1, n))
		return span_of(p, n);
	for (size_t i = 0; i < n; i++) {
		if (s[i] == 1)
			p[m++] = s[++i] == '0' ? 0 : 1;
		else
			p[m++] = (uint8_t)s[i];
	}
	p[m] = '\0';
	return span_of(p, m);
}

static int unescape_number(struct arena *a, const char *s, struct json *ret)
{
	bool integral = !strpbrk(s, ".eENI");
	char *end;

	if (integral) {
		errno = 0;
		ret->kind = JSON_INT;
		ret->i = strtoll(s, &end, 10);
		if (!errno)
			return 0;
		errno = 0;
		ret->kind = JSON_UINT;
		ret->u = strtoull(s, &end, 10);
		if (!errno && s[0] != '-')
			return 0;
	}
	ret->kind = JSON_FLOAT;
	ret->d = strtod(s, &end);
	ret->is_beyond = integral || (isinf(ret->d) && !strchr(s, 'I'));
	return ret->is_beyond ? arena_keep(a, span_str(s), &ret->number) : 0;
}

struct convert {
	struct arena *arena;
	int error;
};

static void convert(struct convert *cv, const cJSON *from, struct json *to);

static int by_name(const void *a, const void *b, void *items)
{
	const struct json *j = items;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int c = span_cmp(j[x].name, j[y].name);

	return c ? c : (x > y) - (x < y);
}

static void convert_children(struct convert *cv, const cJSON *from, struct json *to)
{
	size_t n = 0, i = 0;
	uint32_t *sorted;
	struct json *items;

	for (const cJSON *c = from->child; c; c = c->next)
		n++;
	items = arena_calloc(cv->arena, n, sizeof(*items));
	if (!items || n > UINT32_MAX) {
		cv->error = -ENOMEM;
		return;
	}
	for (const cJSON *c = from->child; c && !cv->error; c = c->next, i++) {
		/* The first pass has bounded the depth. */
		convert(cv, c, &items[i]);
		if (to->kind == JSON_OBJECT) {
			/* Numbers are pre-escaped as strings, so cJSON accepts {1: 2}. */
			if (c->string[0] == 1 && c->string[1] == 'n')
				cv->error = -EUCLEAN;
			items[i].name = unescape_str(cv->arena, c->string);
		}
	}
	to->items = items;
	to->n = n;
	if (to->kind != JSON_OBJECT || n < SORT_FROM || cv->error)
		return;
	sorted = arena_calloc(cv->arena, n, sizeof(*sorted));
	if (!sorted) {
		cv->error = -ENOMEM;
		return;
	}
	for (i = 0; i < n; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, n, sizeof(*sorted), by_name, items);
	to->sorted = sorted;
}

static void convert(struct convert *cv, const cJSON *from, struct json *to)
{
	if (cJSON_IsNull(from)) {
		to->kind = JSON_NULL;
	} else if (cJSON_IsBool(from)) {
		to->kind = JSON_BOOL;
		to->b = cJSON_IsTrue(from);
	} else if (cJSON_IsString(from)) {
		const char *s = from->valuestring;

		if (s[0] == 1 && s[1] == 'n') {
			cv->error = unescape_number(cv->arena, s + 2, to);
			return;
		}
		to->kind = JSON_STRING;
		to->s = unescape_str(cv->arena, s);
		if (!to->s.p)
			cv->error = -ENOMEM;
	} else {
		to->kind = cJSON_IsArray(from) ? JSON_ARRAY : JSON_OBJECT;
		convert_children(cv, from, to);
	}
}

static int json_parse_escaped(struct span text, struct span escaped, const char *what,
			      struct json_doc *ret)
{
	auto_json doc = { .arena.metered = true };
	struct json *root = arena_calloc(&doc.arena, 1, sizeof(*root));
	struct convert cv = { &doc.arena, 0 };
	const char *end = NULL;
	cJSON *c = cJSON_ParseWithLengthOpts((const char *)escaped.p, escaped.n, &end, 0);

	/* Only white space may follow the value; cJSON itself stops at the value's end. */
	while (c && end < (const char *)escaped.p + escaped.n && strchr(" \t\r\n", *end))
		end++;
	if (!c || end != (const char *)escaped.p + escaped.n) {
		auto_buf scratch = { .metered = true };
		struct pre_escape again = { .in = text, .out = &scratch, .most = UINT64_MAX };
		size_t stop = end ? (size_t)(end - (const char *)escaped.p) : 0;
		int r = pre_escape_run(&again, stop);

		cJSON_Delete(c);
		if (r == -ENOMEM || r == -EFBIG)
			return r;
		if (json_pull_check(text) != -EUCLEAN)
			return fail(-ENOMEM, "%s: not enough memory", what);
		return json_bad(what, text, again.at, "not JSON");
	}
	if (root)
		convert(&cv, c, root);
	cJSON_Delete(c);
	if (!root || cv.error) {
		if (cv.error == -EUCLEAN)
			return fail(-EUCLEAN, "%s: a member's name is a number", what);
		return fail(-ENOMEM, "%s: not enough memory", what);
	}
	doc.root = root;
	*ret = doc;
	doc = (struct json_doc){ 0 };
	return 0;
}

/* Explain that there are too many values: the meter's reason, or -ENOMEM if they fit now. */
static int too_many_values(struct span text, const char *what, const struct pre_escape *c)
{
	uint64_t charge = c->out->n + c->nodes * CJSON_NODE_BYTES;
	int r = meter_charge(charge);

	meter_release(r < 0 ? 0 : charge);
	return err_at(r < 0 ? r : -ENOMEM, "%s: more than %u values in %zu bytes of JSON", what,
		      c->nodes - 1, text.n);
}

static int parse_document(struct span text, const char *what, struct json_doc *ret)
{
	auto_buf escaped = { .metered = true };
	struct pre_escape c = { .in = text, .out = &escaped };
	uint64_t charge;
	int r;

	if (text.n > LIMIT_JSON_BYTES)
		return fail(-EFBIG, "%s: %zu bytes of JSON exceed the limit of %llu", what, text.n,
			    (unsigned long long)LIMIT_JSON_BYTES);
	/* One byte-order mark is accepted, as by TensorStore; cJSON would skip a second. */
	if (span_starts(text, span_str("\xef\xbb\xbf")))
		c.at = 3;
	if (span_starts(span_from(text, c.at), span_str("\xef\xbb\xbf")))
		return json_bad(what, text, c.at, "a second byte-order mark");
	c.most = MIN((uint64_t)LIMIT_JSON_NODES, meter_most() / CJSON_NODE_BYTES);
	r = buf_reserve(&escaped, text.n + text.n / 4 + 64);
	if (r >= 0)
		r = pre_escape_run(&c, SIZE_MAX);
	if (r == -EFBIG && c.nodes > LIMIT_JSON_NODES)
		return fail(-EFBIG, "%s: more than %d JSON values", what, LIMIT_JSON_NODES);
	if (r == -EFBIG && c.nodes > c.most)
		return too_many_values(text, what, &c);
	if (r < 0)
		return c.bad ? json_bad(what, text, c.at, c.bad) : r;
	/* Memory that cJSON allocates: nodes, and strings that are together as long as the text. */
	charge = escaped.n + (c.nodes + 1) * CJSON_NODE_BYTES;
	r = meter_charge(charge);
	if (r < 0)
		return err_at(r, "%s: at most %u values in %zu bytes of JSON", what, c.nodes + 1,
			      text.n);
	r = json_parse_escaped(text, buf_span(&escaped), what, ret);
	meter_release(charge);
	return r;
}

int json_parse(struct span text, const char *what, struct json_doc *ret)
{
	int r;

	meter_begin();
	r = parse_document(text, what, ret);
	meter_end();
	return r;
}

void json_release(struct json_doc *doc)
{
	arena_release(&doc->arena);
	doc->root = NULL;
}

/* ---- access ---- */

const struct json *json_member_span(const struct json *obj, struct span name)
{
	size_t lo = 0, hi;

	if (!json_is(obj, JSON_OBJECT))
		return NULL;
	if (!obj->sorted) {
		for (size_t i = obj->n; i > 0; i--)
			if (span_eq(obj->items[i - 1].name, name))
				return &obj->items[i - 1];
		return NULL;
	}
	/*
	 * Find the last item whose name is not greater; of equal names, the last in the document.
	 */
	for (hi = obj->n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (span_cmp(obj->items[obj->sorted[mid]].name, name) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0 || !span_eq(obj->items[obj->sorted[lo - 1]].name, name))
		return NULL;
	return &obj->items[obj->sorted[lo - 1]];
}

const struct json *json_member(const struct json *obj, const char *name)
{
	return json_member_span(obj, span_str(name));
}

bool json_as_int(const struct json *j, int64_t *ret)
{
	if (json_is(j, JSON_INT)) {
		*ret = j->i;
		return true;
	}
	/* Every integral double below 2^63 is an exact integer; TensorStore accepts them all. */
	if (json_is(j, JSON_FLOAT) && j->d == floor(j->d) && j->d >= -0x1p63 && j->d < 0x1p63) {
		*ret = (int64_t)j->d;
		return true;
	}
	return false;
}

bool json_as_double(const struct json *j, double *ret)
{
	if (json_is(j, JSON_INT))
		*ret = (double)j->i;
	else if (json_is(j, JSON_UINT))
		*ret = (double)j->u;
	else if (json_is(j, JSON_FLOAT))
		*ret = j->d;
	else
		return false;
	return true;
}

int json_get_int(const struct json *obj, const char *name, const char *what, int64_t *ret)
{
	const struct json *j = json_member(obj, name);

	if (!j || json_as_int(j, ret))
		return j != NULL;
	return fail(-EUCLEAN, "%s: member '%s' is not an integer", what, name);
}

static int get_kind(const struct json *obj, const char *name, const char *what, enum json_kind kind,
		    const char *want, const struct json **ret)
{
	const struct json *j = json_member(obj, name);

	if (!j)
		return 0;
	if (j->kind != kind)
		return fail(-EUCLEAN, "%s: member '%s' is not %s", what, name, want);
	*ret = j;
	return 1;
}

int json_get_bool(const struct json *obj, const char *name, const char *what, bool *ret)
{
	const struct json *j = NULL;
	int r = get_kind(obj, name, what, JSON_BOOL, "true or false", &j);

	if (r > 0)
		*ret = j->b;
	return r;
}

int json_get_str(const struct json *obj, const char *name, const char *what, struct span *ret)
{
	const struct json *j = NULL;
	int r = get_kind(obj, name, what, JSON_STRING, "a string", &j);

	if (r > 0)
		*ret = j->s;
	return r;
}

int json_get_array(const struct json *obj, const char *name, const char *what,
		   const struct json **ret)
{
	return get_kind(obj, name, what, JSON_ARRAY, "an array", ret);
}

int json_get_object(const struct json *obj, const char *name, const char *what,
		    const struct json **ret)
{
	return get_kind(obj, name, what, JSON_OBJECT, "an object", ret);
}
