/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gcs_page.c - the documents of Google Cloud Storage: a page that parses is the same when it
 * was printed; an object; and what comes with a failure, which always gives a word.
 */
#include "core/base/json.h"
#include "core/remote/documents/gcs_json.h"
#include "tests/fuzz/fuzz.h"

struct printing {
	struct buf items, prefixes;
	size_t n;
};

static int print(void *arg, struct span key, const struct io_object *o)
{
	struct printing *p = arg;
	struct buf *out = o->is_dir ? &p->prefixes : &p->items;

	must(strspn(o->tag, "0123456789") == strlen(o->tag));
	must(buf_add_str(out, out->n ? "," : "") >= 0);
	if (!o->is_dir)
		must(buf_addf(out, "{\"generation\":\"%s\",\"size\":\"%llu\",\"name\":",
			      *o->tag ? o->tag : "0", (unsigned long long)o->size) >= 0);
	must(json_put_str(out, key, JSON_COMPACT) >= 0);
	must(buf_add_str(out, o->is_dir ? "" : "}") >= 0);
	p->n++;
	return 0;
}

static void put_page(struct printing *p, struct buf *out)
{
	must(buf_add_str(out, "{\"items\":[") >= 0 && buf_add_span(out, buf_span(&p->items)) >= 0);
	must(buf_add_str(out, "],\"prefixes\":[") >= 0 &&
	     buf_add_span(out, buf_span(&p->prefixes)) >= 0 && buf_add_str(out, "]}") >= 0);
	buf_release(&p->items);
	buf_release(&p->prefixes);
}

static void check_page(struct span text)
{
	struct printing p = { 0 }, q = { 0 };
	struct bucket_page page = { 0 };
	auto_buf first = { 0 }, second = { 0 };

	if (gcs_parse_page(text, print, &p, &page) >= 0) {
		must(p.n == page.n && page.is_truncated == (page.next.n > 0));
		put_page(&p, &first);
		must(gcs_parse_page(buf_span(&first), print, &q, &page) == 0);
		put_page(&q, &second);
		must(p.n == q.n && span_eq(buf_span(&first), buf_span(&second)));
	}
	buf_release(&p.items);
	buf_release(&p.prefixes);
	buf_release(&page.next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char reason[GCS_REASON_MAX];
	struct io_object o = { 0 };

	check_page(span_of(data, size));
	if (gcs_parse_object(span_of(data, size), &o) >= 0)
		must(!o.is_dir && strspn(o.tag, "0123456789") == strlen(o.tag));
	gcs_parse_error(span_of(data, size), reason, sizeof(reason));
	must(strnlen(reason, sizeof(reason)) < sizeof(reason));
	for (const char *c = reason; *c; c++)
		must(*c > ' ' && *c < 0x7f);
	return 0;
}
