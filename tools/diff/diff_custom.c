/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_custom.c - compares what users have stored beside the leaves: custom metadata.
 */
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tools/diff/diff.h"

#define SHOWN 120 /* bytes of a value in a line of text */

/* 1 equal, 0 not. Accepts NULL for what is absent. */
static int equal(const struct json *a, const struct json *b)
{
	auto_buf ta = { 0 }, tb = { 0 };
	int r;

	if (!a || !b)
		return a == b;
	r = json_print(&ta, a, JSON_PYTHON_SORTED);
	if (r < 0)
		return r;
	r = json_print(&tb, b, JSON_PYTHON_SORTED);
	return r < 0 ? r : span_eq(buf_span(&ta), buf_span(&tb));
}

/* The name of a member of a or b that differs: 1; 0: none does. */
static int find_member(const struct json *a, const struct json *b, struct span *ret)
{
	for (size_t i = 0; i < a->n + b->n; i++) {
		struct span name = i < a->n ? a->items[i].name : b->items[i - a->n].name;
		int r = equal(json_member_span(a, name), json_member_span(b, name));

		if (r > 0)
			continue;
		*ret = name;
		return r < 0 ? r : 1;
	}
	return 0;
}

static int diff_custom_put_value(struct buf *out, const struct json *j)
{
	size_t had = out->n;
	int r = j ? json_print(out, j, JSON_PYTHON) : buf_add_str(out, "absent");

	if (r < 0 || out->n - had <= SHOWN)
		return r;
	out->n = had + SHOWN;
	return buf_add_str(out, "...");
}

/* Append the innermost member that differs, or the first of several, with both values. */
static int diff_custom_put_text(struct buf *out, const struct json *a, const struct json *b)
{
	struct span name;
	int r = 0;

	while (json_is(a, JSON_OBJECT) && json_is(b, JSON_OBJECT) &&
	       (r = find_member(a, b, &name)) > 0) {
		a = json_member_span(a, name);
		b = json_member_span(b, name);
		if (buf_add_byte(out, '[') < 0 || json_put_str(out, name, JSON_PYTHON) < 0 ||
		    buf_add_byte(out, ']') < 0)
			return -ENOMEM;
	}
	if (r < 0)
		return r;
	if (out->n && buf_add_str(out, ": ") < 0)
		return -ENOMEM;
	r = diff_custom_put_value(out, a);
	if (r < 0)
		return r;
	r = buf_add_str(out, ", and ");
	return r < 0 ? r : diff_custom_put_value(out, b);
}

/* Append members of an object: both documents, or null. */
static int diff_custom_put_json(struct buf *out, const struct json *a, const struct json *b)
{
	auto_buf ta = { 0 }, tb = { 0 };
	int r = a ? json_print(&ta, a, JSON_PRETTY) : buf_add_str(&ta, "null");

	if (r < 0)
		return r;
	r = b ? json_print(&tb, b, JSON_PRETTY) : buf_add_str(&tb, "null");
	return r < 0 ? r :
		       buf_addf(out, "\"a\": %.*s, \"b\": %.*s", SPAN_ARG(buf_span(&ta)),
				SPAN_ARG(buf_span(&tb)));
}

/* An empty object is what Orbax writes where nothing was given. */
static int diff_custom_parse(struct span text, struct json_doc *doc, const struct json **ret)
{
	int r = text.n ? json_parse(text, "custom metadata", doc) : 0;

	if (r < 0)
		return r;
	*ret = json_is(doc->root, JSON_OBJECT) && !doc->root->n ? NULL : doc->root;
	return r;
}

int diff_custom(struct diff *d, const char *path, struct span a, struct span b)
{
	auto_json da = { 0 }, db = { 0 };
	const struct json *ja = NULL, *jb = NULL;
	size_t n = strlen(path);
	auto_buf at = { 0 }, more = { 0 };
	int r;

	if (span_eq(a, b))
		return 0;
	r = diff_custom_parse(a, &da, &ja);
	if (r < 0)
		return r;
	r = diff_custom_parse(b, &db, &jb);
	if (r < 0)
		return r;
	r = equal(ja, jb);
	if (r != 0)
		return MIN(r, 0);
	r = d->json ? diff_custom_put_json(&more, ja, jb) : diff_custom_put_text(&more, ja, jb);
	if (r < 0)
		return r;
	r = buf_addf(&at, "%.*s", (int)(n && path[n - 1] == '/' ? n - 1 : n), path);
	if (r < 0)
		return r;
	diff_say(d, buf_str(&at), "custom metadata", buf_str(&more));
	return 0;
}
