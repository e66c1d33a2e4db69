/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h - struct span, borrowed bytes, and struct buf, owned bytes that grow.
 *
 * A zeroed struct buf is empty and ready for use. Adding to it can fail with -ENOMEM, and with
 * -EFBIG when the buffer is metered; the buffer is then unchanged. Only buf_release() returns the
 * memory of a metered buffer.
 */
#ifndef PYTREEFS_BUF_H
#define PYTREEFS_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/mem.h"

struct span {
	const uint8_t *p;
	size_t n;
};

struct buf {
	uint8_t *p;
	size_t n; /* bytes in use */
	size_t cap;
	bool metered; /* cap is charged to the meter (meter.h); set while cap is 0 */
	/*
	 * p is a block (blocks.h), for large buffers that come and go; set while cap is 0. p then
	 * belongs to the buffer for good.
	 */
	bool in_block;
	int failed; /* buf_failed() */
};

static inline struct span span_of(const void *p, size_t n)
{
	return (struct span){ (const uint8_t *)p, n };
}

static inline struct span span_str(const char *s)
{
	return span_of(s, strlen(s));
}

static inline struct span buf_span(const struct buf *b)
{
	return span_of(b->p, b->n);
}

/* The next byte goes there, once there is room for it. Nothing is added to the NULL of a fresh one.
 */
static inline uint8_t *buf_end(const struct buf *b)
{
	return b->n ? b->p + b->n : b->p;
}

/* Order of OCDBT keys: unsigned bytes, a proper prefix first. */
static inline int span_cmp(struct span a, struct span b)
{
	size_t n = MIN(a.n, b.n);
	int c = n ? memcmp(a.p, b.p, n) : 0;

	return c ? c : (a.n > b.n) - (a.n < b.n);
}

static inline bool span_eq(struct span a, struct span b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* The number of bytes at the start that both have. */
static inline size_t span_common(struct span a, struct span b)
{
	size_t n = MIN(a.n, b.n), i = 0;

	while (i < n && a.p[i] == b.p[i])
		i++;
	return i;
}

static inline bool span_starts(struct span s, struct span prefix)
{
	return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

static inline bool span_ends(struct span s, struct span suffix)
{
	return s.n >= suffix.n &&
	       (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}

static inline struct span span_from(struct span s, size_t at)
{
	size_t skip = MIN(at, s.n);

	/* Pointer arithmetic on the NULL of an empty span would be undefined. */
	return skip ? span_of(s.p + skip, s.n - skip) : s;
}

/* For printf: ("%.*s", SPAN_ARG(s)). s is evaluated more than once. */
#define SPAN_ARG(s) (int)(s).n, (s).p ? (const char *)(s).p : ""

/*
 * The number of bytes of the control character at the start of s; 0 when s does not start with one.
 */
size_t span_control(struct span s);

/* Make room for `extra` more bytes. */
int buf_reserve(struct buf *b, size_t extra);
int buf_add(struct buf *b, const void *p, size_t n);
int buf_add_span(struct buf *b, struct span s);
int buf_add_str(struct buf *b, const char *s);
int buf_add_byte(struct buf *b, uint8_t byte);
int buf_add_zero(struct buf *b, size_t n);
/* Append two lowercase hexadecimal digits for each byte of s. */
int buf_add_hex(struct buf *b, struct span s);
/* The same into 2 * s.n + 1 bytes, with a zero at the end. */
void hex_text(struct span s, char *ret);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * Append a name from disk for people to read, with '?' in place of control characters, which could
 * otherwise send commands to a terminal.
 */
int buf_add_shown(struct buf *b, struct span s);
int buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/*
 * Put a NUL after the contents, not counted in n. Returns the text, or NULL when memory is short.
 */
const char *buf_str(struct buf *b);
/*
 * The error of the first add that failed since the buffer was empty; 0: none did. So a sequence of
 * adds is checked once, at its end. Only buf_clear() and buf_release() forget it.
 */
static inline int buf_failed(const struct buf *b)
{
	return b->failed;
}
/* Empty the buffer; its memory stays allocated. */
static inline void buf_clear(struct buf *b)
{
	b->n = 0;
	b->failed = 0;
}
/* Return unused memory to the heap, if there is much of it. */
void buf_shrink(struct buf *b);
/* Release the charge but not the memory: someone else accounts for it from now on. */
void buf_unmeter(struct buf *b);
/* Free the memory; the buffer is then empty and usable again. Accepts a zeroed buffer. */
void buf_release(struct buf *b);

/*
 * Of a buffer of texts, each followed by a NUL: the one after `at`; the first for NULL. NULL: there
 * is no other.
 */
const char *buf_next_text(const struct buf *b, const char *at);

/* A NUL-terminated copy of the bytes, owned by the caller; NULL when memory is short. */
char *span_dup_str(struct span s);
/* The same, from a printf format. */
char *str_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define auto_buf __attribute__((cleanup(buf_release))) struct buf

#endif
