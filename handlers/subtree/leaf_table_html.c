/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_table_html.c - the table of leaves as a page that a browser opens without any other file.
 *
 * The build compiles handlers/subtree/page.html into the program; the document of leaf_table_json.c
 * replaces its marker.
 */
#include "core/base/err.h"
#include "core/base/json.h"
#include "handlers/subtree/leaf_table.h"

extern const char report_page[];
extern const size_t report_page_size;

#define MARKER "@@DOCUMENT@@"
#define TITLE "@@TITLE@@"
#define SOURCE "@@SOURCE@@"

/*
 * Escape "<", which is the only character that could end a script element or have a meaning in it.
 */
static int put_script(struct buf *out, struct span json)
{
	int r = buf_reserve(out, json.n + json.n / 16);

	while (json.n && r >= 0) {
		const uint8_t *lt = memchr(json.p, '<', json.n);
		size_t n = lt ? (size_t)(lt - json.p) : json.n;

		r = buf_add(out, json.p, n);
		if (r < 0)
			return r;
		if (lt)
			r = buf_add_str(out, "\\u003c");
		json = span_from(json, n + (lt != NULL));
	}
	return r;
}

static int leaf_table_html_put_escaped(struct buf *out, const char *text)
{
	int r = 0;

	for (; *text && r >= 0; text++) {
		if (strchr("<>&\"", *text))
			r = buf_addf(out, "&#%d;", *text);
		else
			r = buf_add_byte(out, (uint8_t)*text);
	}
	return r;
}

/*
 * Append the page up to a marker. A missing marker is a bug, since the page is part of the program.
 */
static int put_until(struct buf *out, struct span *page, const char *marker)
{
	const uint8_t *at = memmem(page->p, page->n, marker, strlen(marker));
	size_t n;

	if (!at)
		abort();
	n = (size_t)(at - page->p);
	*page = span_from(*page, n + strlen(marker));
	return buf_add(out, at - n, n);
}

/* Append the path of the subtree on this machine; nothing when none of its items can be opened. */
static int leaf_table_html_put_path(const struct subtree *st, struct buf *out)
{
	const struct subtree_part *part = NULL;
	auto_free char *source = NULL;
	struct span item;
	int r;

	for (size_t i = 0; i < st->n && !part; i++)
		part = st->part[i].kind == PART_TREE ? &st->part[i] : NULL;
	if (!part)
		return 0;
	source = realpath(part->item->ckpt->source->path, NULL);
	item = span_str(part->item->path);
	/* For a step, remove the name of the item. */
	item.n -= MIN(item.n, strlen(part->path));
	while (item.n && item.p[item.n - 1] == '/')
		item.n--;
	if (span_eq(item, span_str(".")))
		item.n = 0;
	r = buf_addf(out, "%s%s%.*s%s", source ? source : part->item->ckpt->source->path,
		     item.n ? "/" : "", SPAN_ARG(item), part->tree->parent ? "/" : "");
	return r < 0 || !part->tree->parent ? r : tree_path(part->tree, out);
}

/* Append {"path": ..., "time": ...}: facts about this copy of the checkpoint. */
static int put_source(const struct subtree *st, struct buf *out)
{
	auto_buf path = { .metered = true }, json = { .metered = true };
	int r = leaf_table_html_put_path(st, &path);

	if (r < 0)
		return r;
	r = buf_add_str(&json, "{\"path\": ");
	if (r < 0)
		return r;
	r = json_put_str(&json, buf_span(&path), JSON_COMPACT);
	if (r < 0)
		return r;
	r = buf_addf(&json, ", \"time\": %lld}", (long long)st->mtime.tv_sec);
	return r < 0 ? r : put_script(out, buf_span(&json));
}

int leaf_table_page(struct span page, const char *title, struct span document, struct buf *ret)
{
	int r = put_until(ret, &page, TITLE);

	if (r < 0)
		return r;
	r = leaf_table_html_put_escaped(ret, title);
	if (r < 0)
		return r;
	r = put_until(ret, &page, MARKER);
	if (r < 0)
		return r;
	r = put_script(ret, document);
	return r < 0 ? r : buf_add_span(ret, page);
}

int leaf_table_html(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret)
{
	struct span page = span_of(report_page, report_page_size);
	auto_buf json = { .metered = true }, out = { .metered = true };
	int r = leaf_table_json(s, name, more, arg, &json);

	if (r < 0)
		return r;
	r = put_until(&out, &page, TITLE);
	if (r < 0)
		return r;
	r = leaf_table_html_put_escaped(&out, name);
	if (r < 0)
		return r;
	r = put_until(&out, &page, SOURCE);
	if (r < 0)
		return r;
	r = put_source(s->subtree, &out);
	if (r < 0)
		return r;
	r = put_until(&out, &page, MARKER);
	if (r < 0)
		return r;
	r = put_script(&out, buf_span(&json));
	if (r < 0)
		return r;
	r = buf_add_span(&out, page);
	return r < 0 ? r : buf_add_span(ret, buf_span(&out));
}
