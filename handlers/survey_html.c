/*
 * survey_html.c - a described subtree as a page that a browser opens without any other file.
 *
 * The page is tools/report.html, put into the program by the build; the document
 * of survey_json.c takes the place of its marker.
 */
#include "core/base/err.h"
#include "core/base/json.h"
#include "handlers/survey.h"

extern const char report_page[];
extern const size_t report_page_size;

#define MARKER "@@DOCUMENT@@"
#define TITLE "@@TITLE@@"

/* Inside a script element nothing but "<" could end it or mean anything. */
static int put_script(struct buf *out, struct span json)
{
	int r = buf_reserve(out, json.n + json.n / 16);

	while (json.n && r >= 0) {
		const uint8_t *lt = memchr(json.p, '<', json.n);
		size_t n = lt ? (size_t)(lt - json.p) : json.n;

		r = buf_add(out, json.p, n);
		if (r >= 0 && lt)
			r = buf_add_str(out, "\\u003c");
		json = span_from(json, n + (lt != NULL));
	}
	return r;
}

static int put_escaped(struct buf *out, const char *text)
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

/* The page up to a marker, which must be there: the page is our own. */
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

int survey_html(const struct survey *s, const char *name, survey_more_fn *more, void *arg, struct buf *ret)
{
	struct span page = span_of(report_page, report_page_size);
	auto_buf json = { 0 }, out = { 0 };
	int r = survey_json(s, name, more, arg, &json);

	if (r >= 0)
		r = put_until(&out, &page, TITLE);
	if (r >= 0)
		r = put_escaped(&out, name);
	if (r >= 0)
		r = put_until(&out, &page, MARKER);
	if (r >= 0)
		r = put_script(&out, buf_span(&json));
	if (r >= 0)
		r = buf_add_span(&out, page);
	return r < 0 ? r : buf_add_span(ret, buf_span(&out));
}
