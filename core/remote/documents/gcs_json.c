/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcs_json.c - the documents of Google Cloud Storage.
 */
#include "core/remote/documents/gcs_json.h"

#include <stdio.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json_pull.h"

#define WHAT "its JSON"

/* ---- an object ---- */

struct object {
	struct buf name;
	bool has_name, has_size, has_crc;
	uint32_t crc;
	struct io_object is;
};

/* A size is a string of digits; some servers write it as a number. */
static int take_size(struct json_pull *p, struct object *o)
{
	struct span text;
	int64_t n = 0;
	int r = json_pull_kind(p);

	if (r == JSON_FLOAT) {
		r = json_pull_int(p, &n);
		o->is.size = (uint64_t)n;
		o->has_size = n >= 0;
	} else if (r >= 0) {
		r = json_pull_str(p, &text);
		o->has_size = r >= 0 && parse_size(text, &o->is.size);
	}
	return r >= 0 && !o->has_size ? json_pull_bad(p, "a size that is not a number") : r;
}

static int take_crc(struct json_pull *p, struct object *o)
{
	struct span text;
	auto_buf bytes = { 0 };
	int r = json_pull_str(p, &text);

	if (r >= 0)
		r = base64_get(&bytes, text, BASE64_STD);
	if (r == -ENOMEM)
		return r;
	if (r < 0 || bytes.n != 4)
		return json_pull_bad(p, "a checksum that is not one");
	o->crc = (uint32_t)bytes.p[0] << 24 | (uint32_t)bytes.p[1] << 16 |
		 (uint32_t)bytes.p[2] << 8 | bytes.p[3];
	o->has_crc = true;
	return 0;
}

static int gcs_json_take_member(struct json_pull *p, struct span member, struct object *o)
{
	uint64_t generation;
	struct span text;
	int r;

	if (span_eq(member, span_str("size")))
		return take_size(p, o);
	if (span_eq(member, span_str("generation"))) {
		r = json_pull_str(p, &text);
		if (r < 0)
			return r;
		if (!parse_size(text, &generation))
			return json_pull_bad(p, "a generation that is not a number");
		snprintf(o->is.tag, sizeof(o->is.tag), "%.*s", SPAN_ARG(text));
		return r;
	}
	if (span_eq(member, span_str("crc32c")))
		return take_crc(p, o);
	if (span_eq(member, span_str("name"))) {
		r = json_pull_str(p, &text);
		buf_clear(&o->name);
		o->has_name = true;
		return r < 0 ? r : buf_add_span(&o->name, text);
	}
	if (span_eq(member, span_str("updated"))) {
		r = json_pull_str(p, &text);
		return r >= 0 && !parse_time(text, &o->is.mtime.tv_sec) ?
			       json_pull_bad(p, "a time that is not one") :
			       r;
	}
	return json_pull_skip(p);
}

static int gcs_json_take_object(struct json_pull *p, struct object *o)
{
	struct span member;
	int r = json_pull_enter(p, JSON_OBJECT);

	o->has_name = o->has_size = o->has_crc = false;
	o->is = (struct io_object){ 0 };
	while (r >= 0 && (r = json_pull_next(p, &member)) > 0)
		r = gcs_json_take_member(p, member, o);
	if (r < 0)
		return r;
	if (!(o->has_name && o->has_size))
		r = json_pull_bad(p, "an object without a name and a size");
	return r;
}

int gcs_parse_written(struct span text, struct io_object *ret, bool *ret_has_crc, uint32_t *ret_crc)
{
	auto_json_pull p;
	struct object o = { 0 };
	int r;

	json_pull_init(&p, text, WHAT);
	r = gcs_json_take_object(&p, &o);
	if (r >= 0)
		r = json_pull_end(&p);
	buf_release(&o.name);
	if (r < 0)
		return r;
	*ret = o.is;
	*ret_has_crc = o.has_crc;
	*ret_crc = o.crc;
	return 0;
}

int gcs_parse_object(struct span text, struct io_object *ret)
{
	bool has_crc;
	uint32_t crc;

	return gcs_parse_written(text, ret, &has_crc, &crc);
}

/* ---- a page ---- */

struct page {
	struct json_pull p;
	bucket_entry_fn *each;
	void *arg;
	struct bucket_page *ret;
	struct object object;
};

static int gcs_json_take_items(struct page *g)
{
	int r = json_pull_enter(&g->p, JSON_ARRAY);

	while (r >= 0 && (r = json_pull_next(&g->p, NULL)) > 0) {
		r = gcs_json_take_object(&g->p, &g->object);
		if (r < 0)
			return r;
		r = g->each(g->arg, buf_span(&g->object.name), &g->object.is);
		g->ret->n++;
	}
	return r;
}

static int take_prefixes(struct page *g)
{
	const struct io_object dir = { .is_dir = true };
	struct span text;
	int r = json_pull_enter(&g->p, JSON_ARRAY);

	while (r >= 0 && (r = json_pull_next(&g->p, NULL)) > 0) {
		r = json_pull_str(&g->p, &text);
		if (r < 0)
			return r;
		r = g->each(g->arg, text, &dir);
		g->ret->n++;
	}
	return r;
}

static int gcs_json_take_token(struct page *g)
{
	struct span text;
	int r = json_pull_str(&g->p, &text);

	buf_clear(&g->ret->next);
	if (r < 0)
		return r;
	if (!text.n || memchr(text.p, 0, text.n))
		return json_pull_bad(&g->p, "a token of a page that is not one");
	g->ret->is_truncated = true;
	return buf_add_span(&g->ret->next, text);
}

int gcs_parse_page(struct span text, bucket_entry_fn *each, void *arg, struct bucket_page *ret)
{
	struct page g = { .each = each, .arg = arg, .ret = ret };
	struct span member;
	int r;

	ret->is_truncated = false;
	ret->n = 0;
	buf_clear(&ret->next);
	if (text.n > BUCKET_PAGE_BYTES)
		return fail(-EUCLEAN, "it has more than %d bytes", BUCKET_PAGE_BYTES);
	json_pull_init(&g.p, text, WHAT);
	r = json_pull_enter(&g.p, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&g.p, &member)) > 0) {
		if (span_eq(member, span_str("items")))
			r = gcs_json_take_items(&g);
		else if (span_eq(member, span_str("prefixes")))
			r = take_prefixes(&g);
		else if (span_eq(member, span_str("nextPageToken")))
			r = gcs_json_take_token(&g);
		else
			r = json_pull_skip(&g.p);
	}
	if (r >= 0)
		r = json_pull_end(&g.p);
	json_pull_release(&g.p);
	buf_release(&g.object.name);
	return r;
}

/* ---- an error ---- */

static int take_reason(struct json_pull *p, const char *name, char *ret, size_t max)
{
	struct span member, text;
	int r = json_pull_enter(p, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(p, &member)) > 0) {
		if (!span_eq(member, span_str(name)) || json_pull_kind(p) != JSON_STRING) {
			r = json_pull_skip(p);
			continue;
		}
		r = json_pull_str(p, &text);
		if (r < 0)
			return r;
		parse_word(text, ret, max);
	}
	return r;
}

/* {"code": 403, "errors": [{"reason": "forbidden", ...}], ...} */
static int take_error(struct json_pull *p, char *ret, size_t max)
{
	struct span member;
	int r = json_pull_enter(p, JSON_OBJECT);

	while (r >= 0 && (r = json_pull_next(p, &member)) > 0) {
		if (!span_eq(member, span_str("errors")) || json_pull_kind(p) != JSON_ARRAY) {
			r = json_pull_skip(p);
			continue;
		}
		r = json_pull_enter(p, JSON_ARRAY);
		while (r >= 0 && (r = json_pull_next(p, NULL)) > 0)
			r = take_reason(p, "reason", ret, max);
	}
	return r;
}

void gcs_parse_error(struct span text, char *ret, size_t max)
{
	auto_json_pull p;
	struct span member, word;
	int r;

	*ret = '\0';
	json_pull_init(&p, text, WHAT);
	r = json_pull_enter(&p, JSON_OBJECT);
	while (r >= 0 && (r = json_pull_next(&p, &member)) > 0) {
		bool is_error = span_eq(member, span_str("error"));
		int kind = json_pull_kind(&p);

		if (is_error && kind == JSON_STRING) {
			r = json_pull_str(&p, &word);
			if (r < 0)
				break;
			parse_word(word, ret, max);
		} else if (is_error && kind == JSON_OBJECT) {
			r = take_error(&p, ret, max);
		} else {
			r = json_pull_skip(&p);
		}
	}
	err_clear();
}
