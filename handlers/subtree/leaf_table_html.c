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
static void put_script(struct buf *out, struct span json)
{
	buf_reserve(out, json.n + json.n / 16);
	while (json.n && !buf_failed(out)) {
		const uint8_t *lt = memchr(json.p, '<', json.n);
		size_t n = lt ? (size_t)(lt - json.p) : json.n;

		buf_add(out, json.p, n);
		if (lt)
			buf_add_str(out, "\\u003c");
		json = span_from(json, n + (lt != NULL));
	}
}

static void leaf_table_html_put_escaped(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("<>&\"", *text))
			buf_addf(out, "&#%d;", *text);
		else
			buf_add_byte(out, (uint8_t)*text);
	}
}

/*
 * Append the page up to a marker. A missing marker is a bug, since the page is part of the program.
 */
static void put_until(struct buf *out, struct span *page, const char *marker)
{
	const uint8_t *at = memmem(page->p, page->n, marker, strlen(marker));
	size_t n;

	if (!at)
		abort();
	n = (size_t)(at - page->p);
	*page = span_from(*page, n + strlen(marker));
	buf_add(out, at - n, n);
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
	buf_add_str(&json, "{\"path\": ");
	json_put_str(&json, buf_span(&path), JSON_COMPACT);
	buf_addf(&json, ", \"time\": %lld}", (long long)st->mtime.tv_sec);
	put_script(out, buf_span(&json));
	return buf_failed(&json);
}

int leaf_table_page(struct span page, const char *title, struct span document, struct buf *ret)
{
	put_until(ret, &page, TITLE);
	leaf_table_html_put_escaped(ret, title);
	put_until(ret, &page, MARKER);
	put_script(ret, document);
	buf_add_span(ret, page);
	return buf_failed(ret);
}

int leaf_table_html(const struct leaf_table *s, const char *name, leaf_table_more_fn *more,
		    void *arg, struct buf *ret)
{
	struct span page = span_of(report_page, report_page_size);
	auto_buf json = { .metered = true }, out = { .metered = true };
	int r = leaf_table_json(s, name, more, arg, &json);

	if (r < 0)
		return r;
	put_until(&out, &page, TITLE);
	leaf_table_html_put_escaped(&out, name);
	put_until(&out, &page, SOURCE);
	r = put_source(s->subtree, &out);
	if (r < 0)
		return r;
	put_until(&out, &page, MARKER);
	put_script(&out, buf_span(&json));
	buf_add_span(&out, page);
	r = buf_failed(&out);
	return r < 0 ? r : buf_add_span(ret, buf_span(&out));
}
