/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding_file.c - the file `_sharding`: parameter -> text of its sharding.
 *
 * TensorStore writes it as one compact object with sorted members. A member name is the URL-safe
 * base64 of the parameter, because TensorStore treats member names as JSON pointers. Orbax 0.4.0
 * and 0.4.1 passed the parameter itself as a pointer: "a/b" is the member b of the object a, and
 * "~0" and "~1" in it are '~' and '/'. These releases wrote an empty text for a sharding that they
 * could not express.
 */
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/tree/sharding.h"
#include "core/tree/interner.h"

static int sharding_file_no_memory(const char *what)
{
	return fail(-ENOMEM, "%s: not enough memory", what);
}

void shardings_free(struct shardings *s)
{
	if (!s)
		return;
	arena_release(&s->arena);
	free(s);
}

/* An entry and its place in the document. */
struct placed {
	struct sharding_entry e;
	struct span name; /* of the member */
	size_t place;
};

/* Reading one document. */
struct reading {
	struct json_pull in;
	struct shardings *s;
	struct interner texts;
	struct buf entries; /* of struct placed */
	struct buf name;    /* of the current member, behind those of the objects around it */
	bool plain;         /* names are parameters, not base64 */
};

static void reading_release(struct reading *d)
{
	json_pull_release(&d->in);
	interner_release(&d->texts);
	buf_release(&d->entries);
	buf_release(&d->name);
}

static int sharding_file_by_param(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;
	int c = span_cmp(x->e.param, y->e.param);

	return c ? c : (x->place > y->place) - (x->place < y->place);
}

/* Append a member's name as a part of a JSON pointer. */
static int add_pointer(struct buf *out, struct span name)
{
	int r = 0;

	for (size_t i = 0; i < name.n && r >= 0; i++)
		r = name.p[i] == '~' ? buf_add_str(out, "~0") :
		    name.p[i] == '/' ? buf_add_str(out, "~1") :
				       buf_add_byte(out, name.p[i]);
	return r;
}

static int sharding_file_take_text(struct reading *d)
{
	struct placed placed = { .place = d->entries.n / sizeof(placed) };
	struct span text;
	int r = json_pull_str(&d->in, &text);

	if (r < 0 || text.n == 0)
		return r;
	r = interner_add(&d->texts, &d->s->arena, text, &placed.e.text);
	if (r < 0)
		return r;
	r = arena_keep(&d->s->arena, buf_span(&d->name), &placed.name);
	if (r < 0)
		return r;
	placed.e.param = placed.name;
	return buf_add(&d->entries, &placed, sizeof(placed));
}

/* Take the members of an object and of those in it. */
static int sharding_file_take_members(struct reading *d)
{
	size_t length[LIMIT_TREE_DEPTH];
	unsigned depth = 0;
	struct span name;
	int r = json_pull_enter(&d->in, JSON_OBJECT);

	while (r >= 0) {
		d->name.n = depth ? length[depth - 1] : 0;
		r = json_pull_next(&d->in, &name);
		if (r == 0 && depth-- == 0)
			return 0;
		if (r <= 0)
			continue;
		r = add_pointer(&d->name, name);
		if (r < 0)
			return r;
		r = json_pull_kind(&d->in);
		if (r != JSON_OBJECT) {
			r = r < 0 ? r : sharding_file_take_text(d);
			continue;
		}
		if (depth == LIMIT_TREE_DEPTH)
			return json_pull_bad(&d->in, "objects are nested too deeply");
		d->plain = true;
		r = buf_add_byte(&d->name, '/');
		length[depth++] = d->name.n;
		if (r < 0)
			return r;
		r = json_pull_enter(&d->in, JSON_OBJECT);
	}
	return r;
}

/* Decode the name of an entry. Returns 0 when it is not base64 of a text. */
static int sharding_file_decode(struct reading *d, struct placed *p)
{
	int r;

	buf_clear(&d->name);
	r = base64_get(&d->name, p->name, BASE64_URL);
	if (r == -EUCLEAN || (r >= 0 && !utf8_valid(buf_span(&d->name)))) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	r = arena_keep(&d->s->arena, buf_span(&d->name), &p->e.param);
	return r < 0 ? r : 1;
}

/* All names of a file are of one kind: a single one that is not base64 shows which. */
static int decode_all(struct reading *d, struct placed *all, size_t n)
{
	int r = !d->plain;

	for (size_t i = 0; i < n && r > 0; i++)
		r = sharding_file_decode(d, &all[i]);
	for (size_t i = 0; i < n && r == 0; i++)
		all[i].e.param = all[i].name;
	return MIN(r, 0);
}

int shardings_parse(struct span json, const char *what, struct shardings **ret)
{
	auto_of(shardings) struct shardings *s = calloc(1, sizeof(*s));
	__attribute__((cleanup(reading_release))) struct reading d = { .s = s,
								       .entries.metered = true,
								       .name.metered = true };
	struct placed *all;
	size_t n;
	int r;

	json_pull_init(&d.in, json, what);
	if (!s)
		return sharding_file_no_memory(what);
	s->arena.metered = true;
	r = sharding_file_take_members(&d);
	if (r < 0)
		return r;
	r = json_pull_end(&d.in);
	if (r < 0)
		return r;
	all = (void *)d.entries.p;
	n = d.entries.n / sizeof(*all);
	r = decode_all(&d, all, n);
	if (r < 0)
		return r;
	if (n) {
		qsort(all, n, sizeof(*all), sharding_file_by_param);
		s->entries = arena_calloc(&s->arena, n, sizeof(*s->entries));
		if (!s->entries)
			return sharding_file_no_memory("shardings");
	}
	/* Of two members with the same name the last one wins. */
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || !span_eq(all[i].e.param, all[i + 1].e.param))
			s->entries[s->n++] = all[i].e;
	*ret = take(s);
	return 0;
}

int shardings_find(const struct shardings *s, struct span param, struct span *ret_text)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = span_cmp(s->entries[mid].param, param);

		if (c == 0) {
			*ret_text = s->entries[mid].text;
			return 1;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return 0;
}

/* ---- writing ---- */

struct member {
	struct span name; /* base64; all names are in one buffer */
	size_t off, len;
	const struct sharding_entry *entry;
};

static int by_member_name(const void *a, const void *b)
{
	return span_cmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* Make the names of all members, sorted. */
static int make_members(const struct sharding_entry *entries, size_t n, struct buf *names,
			struct member *members)
{
	for (size_t i = 0; i < n; i++) {
		int r;

		members[i].entry = &entries[i];
		members[i].off = names->n;
		r = base64_put(names, entries[i].param, BASE64_URL);
		if (r < 0)
			return r;
		members[i].len = names->n - members[i].off;
	}
	for (size_t i = 0; i < n; i++)
		members[i].name =
			span_of(span_from(buf_span(names), members[i].off).p, members[i].len);
	qsort(members, n, sizeof(*members), by_member_name);
	for (size_t i = 1; i < n; i++)
		if (span_eq(members[i - 1].name, members[i].name))
			return fail(-EINVAL, "two shardings of the parameter '%.*s'",
				    SPAN_ARG(members[i].entry->param));
	return 0;
}

int shardings_print(const struct sharding_entry *entries, size_t n, struct buf *ret)
{
	auto_free struct member *members = calloc(n + 1, sizeof(*members));
	auto_buf names = { 0 };
	size_t was = ret->n;
	int r;

	if (!members)
		return sharding_file_no_memory("shardings");
	r = make_members(entries, n, &names, members);
	if (r < 0)
		return r;
	r = buf_add_byte(ret, '{');
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = json_put_member(ret, members[i].name, JSON_COMPACT);
		if (r >= 0)
			r = json_put_str(ret, members[i].entry->text, JSON_COMPACT);
	}
	if (r >= 0)
		r = buf_add_byte(ret, '}');
	if (r < 0)
		ret->n = was;
	return r;
}
