/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharding_file.c - the file `_sharding`: parameter -> text of its sharding.
 *
 * TensorStore writes it as one compact object with sorted members. A member name is the URL-safe
 * base64 of the parameter, because TensorStore treats member names as JSON pointers.
 */
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json_pull.h"
#include "core/tree/sharding.h"
#include "core/tree/interner.h"

static int no_memory(const char *what)
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
	size_t place;
};

static int by_param(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;
	int c = span_cmp(x->e.param, y->e.param);

	return c ? c : (x->place > y->place) - (x->place < y->place);
}

/* Set the sorted entries; of two members with the same name the last one wins. */
static int set_entries(struct shardings *s, struct placed *all, size_t n)
{
	if (!n)
		return 0;
	qsort(all, n, sizeof(*all), by_param);
	s->entries = arena_calloc(&s->arena, n, sizeof(*s->entries));
	if (!s->entries)
		return no_memory("shardings");
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || !span_eq(all[i].e.param, all[i + 1].e.param))
			s->entries[s->n++] = all[i].e;
	return 0;
}

static int take_entry(struct json_pull *in, struct span name, struct shardings *s,
		      struct interner *texts, struct buf *entries)
{
	struct placed placed = { .place = entries->n / sizeof(placed) };
	auto_buf param = { .metered = true };
	struct span text;
	int r = base64_get(&param, name, BASE64_URL);

	if (r < 0)
		return r == -EUCLEAN ? json_pull_bad(in, "a parameter's name is not base64") : r;
	r = json_pull_str(in, &text);
	if (r >= 0)
		r = interner_add(texts, &s->arena, text, &placed.e.text);
	if (r >= 0)
		r = arena_keep(&s->arena, buf_span(&param), &placed.e.param);
	return r < 0 ? r : buf_add(entries, &placed, sizeof(placed));
}

int shardings_parse(struct span json, const char *what, struct shardings **ret)
{
	auto_of(shardings) struct shardings *s = calloc(1, sizeof(*s));
	auto_interner texts = { 0 };
	auto_buf entries = { .metered = true };
	auto_json_pull in = { 0 };
	struct span name;
	int r;

	json_pull_init(&in, json, what);
	if (!s)
		return no_memory(what);
	s->arena.metered = true;
	r = json_pull_enter(&in, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&in, &name)) > 0)
		r = take_entry(&in, name, s, &texts, &entries);
	if (r >= 0)
		r = json_pull_end(&in);
	if (r >= 0)
		r = set_entries(s, (void *)entries.p, entries.n / sizeof(struct placed));
	if (r < 0)
		return r;
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
		return no_memory("shardings");
	r = make_members(entries, n, &names, members);
	if (r >= 0)
		r = buf_add_byte(ret, '{');
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = buf_add_str(ret, i ? "," : "");
		if (r >= 0)
			r = json_put_str(ret, members[i].name, JSON_COMPACT);
		if (r >= 0)
			r = buf_add_byte(ret, ':');
		if (r >= 0)
			r = json_put_str(ret, members[i].entry->text, JSON_COMPACT);
	}
	if (r >= 0)
		r = buf_add_byte(ret, '}');
	if (r < 0)
		ret->n = was;
	return r;
}
