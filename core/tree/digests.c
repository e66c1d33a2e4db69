/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digests.c - `.sha256sums`: lines of sha256sum(1) <-> a sorted table.
 */
#include "core/tree/digests.h"

#include <stdlib.h>

#include "core/base/err.h"

#define HEX (2 * DIGEST_BYTES)

void digest_text(const uint8_t sha256[DIGEST_BYTES], char ret[DIGEST_TEXT])
{
	hex_text(span_of(sha256, DIGEST_BYTES), ret);
}

bool digest_of_text(struct span text, uint8_t ret[DIGEST_BYTES])
{
	uint8_t d[DIGEST_BYTES] = { 0 };

	if (text.n != HEX)
		return false;
	for (unsigned i = 0; i < HEX; i++) {
		uint8_t c = text.p[i];
		int digit = c >= '0' && c <= '9' ? c - '0' :
			    c >= 'a' && c <= 'f' ? c - 'a' + 10 :
						   -1;

		if (digit < 0)
			return false;
		d[i / 2] = (uint8_t)(d[i / 2] << 4 | digit);
	}
	memcpy(ret, d, sizeof(d));
	return true;
}

/* ---- writing ---- */

int digests_print(struct span name, const uint8_t sha256[DIGEST_BYTES], struct buf *ret)
{
	bool escaped = memchr(name.p, '\\', name.n) || memchr(name.p, '\n', name.n) ||
		       memchr(name.p, '\r', name.n);
	char hex[DIGEST_TEXT];
	size_t was = ret->n;
	int r;

	digest_text(sha256, hex);
	r = buf_addf(ret, "%s%s  ", escaped ? "\\" : "", hex);
	for (size_t i = 0; i < name.n && r >= 0; i++)
		r = name.p[i] == '\\' ? buf_add_str(ret, "\\\\") :
		    name.p[i] == '\n' ? buf_add_str(ret, "\\n") :
		    name.p[i] == '\r' ? buf_add_str(ret, "\\r") :
					buf_add_byte(ret, name.p[i]);
	if (r >= 0)
		r = buf_add_byte(ret, '\n');
	if (r < 0)
		ret->n = was;
	return r;
}

/* ---- reading ---- */

/* Get the name of a line, without its escapes, in the arena. */
static int take_name(struct arena *a, struct span text, bool escaped, struct span *ret)
{
	uint8_t *p = arena_alloc(a, text.n + 1);
	size_t n = 0;

	if (!p)
		return fail(-ENOMEM, "not enough memory");
	for (size_t i = 0; i < text.n; i++) {
		uint8_t c = text.p[i];

		if (escaped && c == '\\') {
			c = i + 1 < text.n ? text.p[++i] : 0;
			if (c != '\\' && c != 'n' && c != 'r')
				return fail(-EUCLEAN, "an escape other than \\\\, \\n and \\r");
			c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
		}
		p[n++] = c;
	}
	*ret = span_of(p, n);
	return n ? 0 : fail(-EUCLEAN, "no name");
}

static int take_line(struct digests *d, struct span line)
{
	struct digests_entry *e = &d->entry[d->n];
	bool escaped = line.n && line.p[0] == '\\';
	int r;

	line = span_from(line, escaped);
	if (line.n < HEX + 2 || line.p[HEX] != ' ' || line.p[HEX + 1] != ' ' ||
	    !digest_of_text(span_of(line.p, HEX), e->sha256))
		return fail(-EUCLEAN, "not a SHA-256, two spaces and a name");
	r = take_name(&d->arena, span_from(line, HEX + 2), escaped, &e->name);
	d->n += r >= 0;
	return r;
}

static int digests_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct digests_entry *)a)->name,
			((const struct digests_entry *)b)->name);
}

static int parse_digests(struct span text, const char *what, struct digests *d)
{
	size_t lines = 0, number = 0;

	if (text.n && text.p[text.n - 1] != '\n')
		return fail(-EUCLEAN, "%s: its last line is truncated", what);
	for (size_t i = 0; i < text.n; i++)
		lines += text.p[i] == '\n';
	/* A line is longer than its digest. */
	if (lines > text.n / HEX)
		return fail(-EUCLEAN, "%s: %zu lines in %zu bytes", what, lines, text.n);
	d->entry = arena_calloc(&d->arena, lines + 1, sizeof(*d->entry));
	if (!d->entry)
		return fail(-ENOMEM, "%s: not enough memory", what);
	while (text.n) {
		size_t n = (size_t)((const uint8_t *)memchr(text.p, '\n', text.n) - text.p);
		int r = take_line(d, span_of(text.p, n));

		number++;
		if (r < 0)
			return err_at(r, "%s: line %zu", what, number);
		text = span_from(text, n + 1);
	}
	if (d->n)
		qsort(d->entry, d->n, sizeof(*d->entry), digests_by_name);
	for (size_t i = 1; i < d->n; i++)
		if (span_eq(d->entry[i - 1].name, d->entry[i].name))
			return fail(-EUCLEAN, "%s: '%.*s' comes twice", what,
				    SPAN_ARG(d->entry[i].name));
	return 0;
}

int digests_parse(struct span text, const char *what, struct digests **ret)
{
	auto_of(digests) struct digests *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return fail(-ENOMEM, "%s: not enough memory", what);
	d->arena.metered = true;
	r = parse_digests(text, what, d);
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

const struct digests_entry *digests_find(const struct digests *d, struct span name)
{
	const struct digests_entry key = { .name = name };

	return d->n ? bsearch(&key, d->entry, d->n, sizeof(key), digests_by_name) : NULL;
}

void digests_free(struct digests *d)
{
	if (!d)
		return;
	arena_release(&d->arena);
	free(d);
}
