/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings.c - `_strings.json`: index, texts, and writing.
 *
 * The name of a parameter is its JSON pointer without the first '/', and pointers have one
 * spelling. So the index has the pointer of each value, and a look-up compares texts. Objects and
 * arrays have no text here (the reference reader would show them as Python's repr of a dict).
 */
#include "core/tree/strings.h"

#include <math.h>

#include "core/base/err.h"
#include "core/base/json_pull.h"

#define PLAIN_BYTES 65536   /* a shorter text may be copied */
#define REPLACED UINT64_MAX /* the size of a text that a later member has replaced */

static int strings_no_memory(const char *what)
{
	return fail(-ENOMEM, "%s: not enough memory", what);
}

/* ---- reading ---- */

/* For each level: the length of the path, and the next element of an array. */
struct level {
	size_t path_len; /* length of the container's own pointer */
	uint64_t index;
	bool is_array;
};

struct indexing {
	struct json_pull in;
	struct strings *strings;
	struct buf path;    /* pointer of the current value, without the first '/' */
	struct buf entries; /* of struct strings_entry */
	struct level levels[LIMIT_JSON_PULL_DEPTH];
	uint64_t names; /* total size of names so far */
};

/* Append a member's name as a part of a pointer. */
static int put_part(struct buf *path, struct span name)
{
	int r = 0;

	for (size_t i = 0; i < name.n && r >= 0; i++) {
		if (name.p[i] == '~' || name.p[i] == '/')
			r = buf_add_str(path, name.p[i] == '~' ? "~0" : "~1");
		else
			r = buf_add_byte(path, name.p[i]);
	}
	return r;
}

/* Advance from one value to the next. Returns 1, or 0 at the end of the document. */
static int go_on(struct indexing *x)
{
	while (x->in.depth) {
		struct level *level = &x->levels[x->in.depth - 1];
		struct span name;
		int r = json_pull_next(&x->in, &name);

		if (r < 0)
			return r;
		if (r == 0)
			continue;
		x->path.n = level->path_len;
		/* At the top, this would be the '/' that names do not have. */
		if (level != x->levels)
			r = buf_add_byte(&x->path, '/');
		if (r < 0)
			return r;
		r = level->is_array ?
			    buf_addf(&x->path, "%llu", (unsigned long long)level->index++) :
			    put_part(&x->path, name);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int add_entry(struct indexing *x, struct span raw, uint64_t text_len)
{
	struct strings_entry e = { .off = (uint64_t)(raw.p - x->in.text.p),
				   .len = raw.n,
				   .text_len = text_len };
	int r;

	x->names += x->path.n;
	if (x->names > LIMIT_STRINGS_BYTES)
		return fail(-EFBIG, "%s: the names exceed %llu bytes", x->in.what,
			    (unsigned long long)LIMIT_STRINGS_BYTES);
	r = arena_keep(&x->strings->arena, buf_span(&x->path), &e.name);
	return r < 0 ? r : buf_add(&x->entries, &e, sizeof(e));
}

/*
 * The text of a number, true, false or null: Python's str(), with numbers of 64 bits as in
 * TensorStore.
 */
static int scalar_text(struct span raw, struct buf *ret)
{
	auto_json doc = { 0 };
	int r = json_parse(raw, "value", &doc);

	if (r < 0)
		return r;
	switch (doc.root->kind) {
	case JSON_NULL:
		return buf_add_str(ret, "None");
	case JSON_BOOL:
		return buf_add_str(ret, doc.root->b ? "True" : "False");
	default:
		if (doc.root->kind == JSON_FLOAT && isnan(doc.root->d))
			return buf_add_str(ret, "nan");
		if (doc.root->kind == JSON_FLOAT && isinf(doc.root->d))
			return buf_add_str(ret, doc.root->d < 0 ? "-inf" : "inf");
		/* Also of an integer beyond 64 bits. */
		if (doc.root->kind == JSON_FLOAT)
			return json_put_double(ret, doc.root->d, JSON_PYTHON);
		return json_print(ret, doc.root, JSON_PYTHON);
	}
}

static int strings_take_scalar(struct indexing *x, int kind)
{
	auto_buf text = { .metered = true };
	size_t from = x->in.at;
	struct span raw, s;
	int r;

	if (kind == JSON_STRING) {
		r = json_pull_str(&x->in, &s);
		raw = span_of(x->in.text.p + from, x->in.at - from);
		return r < 0 ? r : add_entry(x, raw, s.n);
	}
	r = json_pull_raw(&x->in, &raw);
	if (r < 0)
		return r;
	r = scalar_text(raw, &text);
	return r < 0 ? r : add_entry(x, raw, text.n);
}

static int index_document(struct indexing *x)
{
	int r;

	do {
		int kind = json_pull_kind(&x->in);

		if (kind < 0)
			return kind;
		if (kind != JSON_OBJECT && kind != JSON_ARRAY) {
			r = x->in.depth ? strings_take_scalar(x, kind) : json_pull_skip(&x->in);
		} else {
			/* For drop_replaced(). */
			r = x->in.depth ? add_entry(x, span_of(x->in.text.p + x->in.at, 0), 0) : 0;
			if (r < 0)
				return r;
			r = json_pull_enter(&x->in, (enum json_kind)kind);
			if (r < 0)
				return r;
			x->levels[x->in.depth - 1] =
				(struct level){ .path_len = x->path.n,
						.is_array = kind == JSON_ARRAY };
		}
		if (r < 0)
			return r;
		r = go_on(x);
	} while (r > 0);
	return r < 0 ? r : json_pull_end(&x->in);
}

static int strings_by_name(const void *a, const void *b)
{
	const struct strings_entry *x = a, *y = b;
	int c = span_cmp(x->name, y->name);

	return c ? c : (x->off > y->off) - (x->off < y->off);
}

/* The last entry of that name in the document, or NULL. */
static struct strings_entry *last_of(const struct strings *s, struct span name)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (span_cmp(s->entries[mid].name, name) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && span_eq(s->entries[lo - 1].name, name) ? &s->entries[lo - 1] : NULL;
}

const struct strings_entry *strings_find(const struct strings *s, struct span param)
{
	return last_of(s, param);
}

/* Whether it is a text, and no later member has replaced it or an object that it is in. */
static bool is_last(const struct strings *s, const struct strings_entry *e)
{
	if (!e->len || last_of(s, e->name) != e)
		return false;
	for (size_t i = 0; i < e->name.n; i++) {
		const struct strings_entry *outer =
			e->name.p[i] == '/' ? last_of(s, span_of(e->name.p, i)) : NULL;

		if (outer && outer->off > e->off)
			return false;
	}
	return true;
}

/* Drop the entries of containers, and of values that a later member has replaced. */
static void drop_replaced(struct strings *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (!is_last(s, &s->entries[i]))
			s->entries[i].text_len = REPLACED;
	for (size_t i = 0; i < s->n; i++)
		if (s->entries[i].text_len != REPLACED)
			s->entries[n++] = s->entries[i];
	s->n = n;
}

int strings_parse(struct span json, const char *what, struct strings **ret)
{
	auto_of(strings) struct strings *s = calloc(1, sizeof(*s));
	auto_free struct indexing *x = calloc(1, sizeof(*x));
	int r;

	if (!s || !x)
		return strings_no_memory(what);
	x->strings = s;
	s->arena.metered = x->path.metered = x->entries.metered = true;
	json_pull_init(&x->in, json, what);
	r = index_document(x);
	s->n = x->entries.n / sizeof(*s->entries);
	if (r >= 0) {
		s->entries = (void *)arena_dup(&s->arena, buf_span(&x->entries));
		r = s->entries ? 0 : strings_no_memory(what);
	}
	json_pull_release(&x->in);
	buf_release(&x->path);
	buf_release(&x->entries);
	if (r < 0)
		return r;
	if (s->n)
		qsort(s->entries, s->n, sizeof(*s->entries), strings_by_name);
	drop_replaced(s);
	*ret = take(s);
	return 0;
}

void strings_free(struct strings *s)
{
	if (!s)
		return;
	arena_release(&s->arena);
	free(s);
}

int strings_text(struct span json, const char *what, struct buf *ret)
{
	auto_json_pull p = { 0 };
	struct span s;
	int r;

	json_pull_init(&p, json, what);
	r = json_pull_kind(&p);
	if (r < 0)
		return r;
	if (r == JSON_OBJECT || r == JSON_ARRAY)
		return json_pull_bad(&p, "not a string");
	if (r != JSON_STRING) {
		r = json_pull_raw(&p, &s);
		return r < 0 ? r : scalar_text(s, ret);
	}
	r = json_pull_str(&p, &s);
	return r < 0 ? r : buf_add_span(ret, s);
}

/* Whether a long text equals its JSON, without the quotes. */
static bool is_plain(struct span json)
{
	struct span text = span_of(json.p + 1, json.n - 2);

	if (json.p[0] != '"' || json.p[json.n - 1] != '"')
		return false;
	for (size_t i = 0; i < text.n; i++)
		if (text.p[i] < ' ' || text.p[i] == '"' || text.p[i] == '\\')
			return false;
	return utf8_valid(text);
}

int strings_take(struct buf *json, uint64_t text_len, const char *what, struct buf *ret)
{
	if (text_len < PLAIN_BYTES || json->n != text_len + 2 || ret->cap > 0 ||
	    !is_plain(buf_span(json)))
		return strings_text(buf_span(json), what, ret);
	json->n = text_len;
	memmove(json->p, json->p + 1, json->n);
	*ret = *json;
	*json = (struct buf){ 0 };
	return 0;
}

int strings_parse_leaf(struct span json, const char *what, struct span param, struct buf *ret)
{
	auto_json_pull p = { 0 };
	struct span name, raw = span_of(NULL, 0);
	int r;

	json_pull_init(&p, json, what);
	r = json_pull_enter(&p, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p, &name)) > 0)
		r = span_eq(name, param) ? json_pull_raw(&p, &raw) : json_pull_skip(&p);
	if (r < 0)
		return r;
	r = json_pull_end(&p);
	if (r < 0)
		return r;
	if (!raw.p)
		return fail(-EUCLEAN, "%s: member '%.*s' does not exist", what, SPAN_ARG(param));
	return strings_text(raw, what, ret);
}

/* ---- writing ---- */

int strings_check_name(struct span param)
{
	unsigned parts = 1;

	for (size_t i = 0, n; i < param.n; i += n) {
		n = utf8_len(span_from(param, i));
		if (n == 0)
			return fail(-EINVAL,
				    "string '%.*s' cannot be stored: its name is not UTF-8",
				    SPAN_ARG(param));
		parts += param.p[i] == '/';
		if (param.p[i] == '~' &&
		    (i + 1 == param.n || (param.p[i + 1] != '0' && param.p[i + 1] != '1')))
			return fail(-EINVAL,
				    "string '%.*s' cannot be stored: '~' is not followed by 0 or 1",
				    SPAN_ARG(param));
	}
	if (parts > LIMIT_TREE_DEPTH)
		return fail(-EINVAL,
			    "string '%.*s' cannot be stored: its name has more than %d parts",
			    SPAN_ARG(param), LIMIT_TREE_DEPTH);
	return 0;
}

/* Take the first part of a name, decoded into part. */
static int strings_take_part(struct span *name, struct buf *part)
{
	size_t i = 0;
	int r = 0;

	buf_clear(part);
	for (; i < name->n && name->p[i] != '/' && r >= 0; i++) {
		uint8_t c = name->p[i];

		if (c == '~')
			c = name->p[++i] == '0' ? '~' : '/';
		r = buf_add_byte(part, c);
	}
	/* A '/' at the end is followed by an empty part. */
	*name = i < name->n ? span_from(*name, i + 1) : span_of(NULL, 0);
	return r;
}

/*
 * Compare names in the order of members: a part's end is below every byte, '~' and '/' are decoded.
 */
static int cmp_names(struct span a, struct span b)
{
	size_t i = 0, k = 0;

	for (;; i++, k++) {
		bool a_ends = i == a.n || a.p[i] == '/', b_ends = k == b.n || b.p[k] == '/';
		uint8_t x, y;

		if (a_ends || b_ends) {
			if (!a_ends || !b_ends)
				return a_ends ? -1 : 1;
			/* Both parts end here; a name may end, too. */
			if (i == a.n || k == b.n)
				return (i < a.n) - (k < b.n);
			continue;
		}
		x = a.p[i] != '~' ? a.p[i] : a.p[++i] == '0' ? '~' : '/';
		y = b.p[k] != '~' ? b.p[k] : b.p[++k] == '0' ? '~' : '/';
		if (x != y)
			return x < y ? -1 : 1;
	}
}

static int by_pair_name(const void *a, const void *b)
{
	return cmp_names((*(const struct strings_pair *const *)a)->name,
			 (*(const struct strings_pair *const *)b)->name);
}

/* Refuse two names for the same place, and a name inside another one; a sorts before b. */
static int check_pair(const struct strings_pair *a, const struct strings_pair *b)
{
	if (cmp_names(a->name, b->name) == 0)
		return fail(-EINVAL, "two strings have the name '%.*s'", SPAN_ARG(a->name));
	if (span_starts(b->name, a->name) && b->name.p[a->name.n] == '/')
		return fail(-EINVAL, "string '%.*s' cannot be stored: its place is inside '%.*s'",
			    SPAN_ARG(b->name), SPAN_ARG(a->name));
	return 0;
}

/* The number of leading parts that two names have in common, not counting the last ones. */
static unsigned common_parts(struct span a, struct span b)
{
	unsigned parts = 0;

	for (size_t i = 0; i < a.n && i < b.n && a.p[i] == b.p[i]; i++)
		parts += a.p[i] == '/';
	return parts;
}

static unsigned count_parts(struct span name)
{
	unsigned parts = 0;

	for (size_t i = 0; i < name.n; i++)
		parts += name.p[i] == '/';
	return parts;
}

/* Close the levels of the last name beyond the common parts, and open those of this one. */
static int put_pair(const struct strings_pair *last, const struct strings_pair *pair,
		    struct buf *out)
{
	unsigned common = last ? common_parts(last->name, pair->name) : 0;
	unsigned open = last ? count_parts(last->name) : 0, parts = count_parts(pair->name);
	auto_buf part = { 0 };
	struct span rest = pair->name;
	int r = 0;

	for (unsigned i = common; i < open && r >= 0; i++)
		r = buf_add_byte(out, '}');
	if (r < 0)
		return r;
	if (last)
		r = buf_add_byte(out, ',');
	for (unsigned i = 0; i <= parts && r >= 0; i++) {
		r = strings_take_part(&rest, &part);
		if (r < 0 || i < common)
			continue;
		r = json_put_str(out, buf_span(&part), JSON_COMPACT);
		if (r < 0)
			return r;
		r = buf_add_str(out, i < parts ? ":{" : ":");
	}
	return r < 0 ? r : json_put_str(out, pair->text, JSON_COMPACT);
}

int strings_print(const struct strings_pair *pairs, size_t n, struct buf *ret)
{
	auto_free const struct strings_pair **order = calloc(n + 1, sizeof(*order));
	size_t was = ret->n;
	int r;

	if (!order)
		return strings_no_memory("strings");
	for (size_t i = 0; i < n; i++) {
		order[i] = &pairs[i];
		r = strings_check_name(pairs[i].name);
		if (r < 0)
			return r;
		if (!utf8_valid(pairs[i].text))
			return fail(-EINVAL,
				    "string '%.*s' cannot be stored: its text is not UTF-8",
				    SPAN_ARG(pairs[i].name));
	}
	qsort(order, n, sizeof(*order), by_pair_name);
	for (size_t i = 1; i < n; i++) {
		r = check_pair(order[i - 1], order[i]);
		if (r < 0)
			return r;
	}
	r = buf_add_byte(ret, '{');
	for (size_t i = 0; i < n && r >= 0; i++)
		r = put_pair(i ? order[i - 1] : NULL, order[i], ret);
	/* Braces of the levels of the last name, and of the document. */
	for (unsigned i = n ? count_parts(order[n - 1]->name) + 1 : 1; i > 0 && r >= 0; i--)
		r = buf_add_byte(ret, '}');
	if (r < 0)
		ret->n = was;
	return r;
}
