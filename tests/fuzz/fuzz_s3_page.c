/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_s3_page.c - a page of a bucket's listing: what parses is the same when it was printed; and
 * what comes with a failure, which always gives words.
 */
#include "core/remote/documents/s3_xml.h"
#include "tests/fuzz/fuzz.h"

#define KEY_MAX 2048

struct printing {
	struct buf *xml;
	size_t n;
	bool too_long; /* to be escaped */
};

static int print(void *arg, struct span key, const struct io_object *o)
{
	struct printing *p = arg;
	auto_buf name = { 0 };

	p->too_long |= key.n > KEY_MAX;
	for (size_t i = 0; i < key.n; i++)
		must(buf_addf(&name, "%%%02x", key.p[i]) >= 0);
	must(strlen(o->tag) < sizeof(o->tag));
	if (o->is_dir)
		must(buf_addf(p->xml, "<CommonPrefixes><Prefix>%.*s</Prefix></CommonPrefixes>",
			      SPAN_ARG(buf_span(&name))) >= 0);
	else
		must(buf_addf(p->xml, "<Contents><Size>%llu</Size><Key>%.*s</Key></Contents>",
			      (unsigned long long)o->size, SPAN_ARG(buf_span(&name))) >= 0);
	p->n++;
	return 0;
}

static bool is_word(const char *s, size_t max)
{
	size_t n = strnlen(s, max);

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] >= 0x7f)
			return false;
	return n < max;
}

static int count(void *arg, struct span key, struct span id)
{
	must(id.n);
	return 0;
}

static void check_uploads(struct span text)
{
	auto_buf id = { 0 };
	bool is_truncated;

	must(s3_parse_upload(text, &id) < 0 || id.n);
	s3_parse_uploads(text, count, NULL, &is_truncated);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf xml = { 0 }, again = { 0 };
	struct printing p = { .xml = &xml }, q = { .xml = &again };
	struct bucket_page page = { 0 };
	struct s3_error e;

	check_uploads(span_of(data, size));
	s3_parse_error(span_of(data, size), &e);
	must(is_word(e.code, sizeof(e.code)) && is_word(e.region, sizeof(e.region)) &&
	     is_word(e.time, sizeof(e.time)));
	must(buf_add_str(&xml, "<ListBucketResult><EncodingType>url</EncodingType>") >= 0);
	must(buf_add_span(&again, buf_span(&xml)) >= 0);
	if (s3_parse_page(span_of(data, size), print, &p, &page) >= 0 && !p.too_long) {
		must(p.n == page.n && (!page.is_truncated || page.next.n));
		must(buf_add_str(&xml, "</ListBucketResult>") >= 0);
		must(s3_parse_page(buf_span(&xml), print, &q, &page) == 0);
		must(buf_add_str(&again, "</ListBucketResult>") >= 0);
		must(q.n == p.n && span_eq(buf_span(&xml), buf_span(&again)));
	}
	buf_release(&page.next);
	return 0;
}
