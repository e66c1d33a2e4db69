/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c - growing byte buffers. The capacity grows by half, so adding n bytes one by one takes
 * linear time.
 */
#include "core/base/buf.h"

#include <ctype.h>
#include <stdio.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/meter.h"

#define SHRINK_FROM 65536 /* less unused memory is not worth a copy */

#ifdef PYTREEFS_POISON
#define POISON_ON_RELEASE 1
#else
#define POISON_ON_RELEASE 0
#endif

static uint8_t *resize(const struct buf *b, size_t cap)
{
	uint8_t *p;

	if (!b->in_block)
		return realloc(b->p, cap);
	p = block_alloc(cap);
	if (p && b->n)
		memcpy(p, b->p, b->n);
	if (p)
		block_free(b->p, b->cap);
	return p;
}

static int buf_grow(struct buf *b, size_t extra)
{
	uint64_t need;
	size_t cap;
	uint8_t *p;

	if (!add_fits(b->n, extra, &need))
		return fail(-ENOMEM, "cannot allocate: size overflows");
	if (need <= b->cap)
		return 0;
	cap = MAX(need, MAX((size_t)64, b->cap + b->cap / 2));
	if (b->metered) {
		int r = meter_charge(cap - b->cap);

		if (r < 0)
			return r;
	}
	p = resize(b, cap);
	if (!p) {
		meter_release(b->metered ? cap - b->cap : 0);
		return fail(-ENOMEM, "cannot allocate %zu bytes", cap);
	}
	b->p = p;
	b->cap = cap;
	return 0;
}

int buf_reserve(struct buf *b, size_t extra)
{
	int r = buf_grow(b, extra);

	if (r < 0 && !b->failed)
		b->failed = r;
	return r;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	int r = buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

int buf_add_span(struct buf *b, struct span s)
{
	return buf_add(b, s.p, s.n);
}

int buf_add_str(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_add_byte(struct buf *b, uint8_t byte)
{
	return buf_add(b, &byte, 1);
}

static void put_digits(struct span s, char *to)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < s.n; i++) {
		to[2 * i] = digits[s.p[i] >> 4];
		to[2 * i + 1] = digits[s.p[i] & 15];
	}
}

int buf_add_hex(struct buf *b, struct span s)
{
	int r = buf_reserve(b, 2 * s.n);

	if (r < 0 || !s.n)
		return r;
	put_digits(s, (char *)b->p + b->n);
	b->n += 2 * s.n;
	return 0;
}

void hex_text(struct span s, char *ret)
{
	put_digits(s, ret);
	ret[2 * s.n] = '\0';
}

int buf_add_zero(struct buf *b, size_t n)
{
	int r = buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n)
		memset(b->p + b->n, 0, n);
	b->n += n;
	return 0;
}

int buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return b->failed = fail(-EINVAL, "cannot format '%s'", fmt);
	r = buf_reserve(b, (size_t)n + 1);
	if (r < 0)
		return r;
	vsnprintf((char *)b->p + b->n, (size_t)n + 1, fmt, ap);
	b->n += (size_t)n;
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vaddf(b, fmt, ap);
	va_end(ap);
	return r;
}

size_t span_control(struct span s)
{
	/* Terminals also obey control characters of two bytes (C1 in UTF-8). */
	if (s.n > 1 && s.p[0] == 0xc2 && s.p[1] >= 0x80 && s.p[1] <= 0x9f)
		return 2;
	return s.n && iscntrl(s.p[0]) ? 1 : 0;
}

int buf_add_shown(struct buf *b, struct span s)
{
	int r = 0;

	while (s.n && r >= 0) {
		size_t n = span_control(s);

		r = buf_add_byte(b, n ? '?' : s.p[0]);
		s = span_from(s, MAX(n, (size_t)1));
	}
	return r;
}

const char *buf_str(struct buf *b)
{
	if (buf_reserve(b, 1) < 0)
		return NULL;
	b->p[b->n] = '\0';
	return (const char *)b->p;
}

void buf_shrink(struct buf *b)
{
	size_t cap = MAX(b->n, (size_t)64);
	uint8_t *p;

	if (b->cap - b->n < SHRINK_FROM)
		return;
	p = resize(b, cap);
	if (!p)
		return;
	meter_release(b->metered ? b->cap - cap : 0);
	b->p = p;
	b->cap = cap;
}

void buf_unmeter(struct buf *b)
{
	meter_release(b->metered ? b->cap : 0);
	b->metered = false;
}

void buf_release(struct buf *b)
{
	if (POISON_ON_RELEASE && b->p)
		memset(b->p, 0xff, MIN(b->cap, (size_t)4096));
	if (b->in_block)
		block_free(b->p, b->cap);
	else
		free(b->p);
	meter_release(b->metered ? b->cap : 0);
	*b = (struct buf){ 0 };
}

const char *buf_next_text(const struct buf *b, const char *at)
{
	const char *next = at ? at + strlen(at) + 1 : (const char *)b->p;

	return b->n && next < (const char *)b->p + b->n ? next : NULL;
}

char *span_dup_str(struct span s)
{
	char *p = malloc(s.n + 1);

	if (!p)
		return NULL;
	if (s.n)
		memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return p;
}

char *str_fmt(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	/* After a failure, the pointer that vasprintf() sets is undefined. */
	return n < 0 ? NULL : s;
}
