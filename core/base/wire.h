/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - bounds-checked reading and writing of bytes from disk.
 *
 * A reader that has failed once stays failed: after the first short or
 * malformed field every later call returns zeros, and wire_ok() is false. So a
 * parser may read a whole record and test once, as long as it tests before it
 * allocates from a count or follows a length. No pointer is ever cast onto file
 * bytes.
 */
#ifndef PYTREEFS_WIRE_H
#define PYTREEFS_WIRE_H

#include "core/base/buf.h"

struct wire {
	const uint8_t *p, *end;
	bool bad;
};

static inline struct wire wire_of(struct span s)
{
	/* Pointer arithmetic on the NULL of an empty span would be undefined. */
	return (struct wire){ s.p, s.n ? s.p + s.n : s.p, false };
}

static inline size_t wire_left(const struct wire *w)
{
	return w->bad ? 0 : (size_t)(w->end - w->p);
}

static inline bool wire_ok(const struct wire *w)
{
	return !w->bad;
}

/* The next n bytes, borrowed; an empty span when fewer are left. */
struct span wire_bytes(struct wire *w, uint64_t n);
uint8_t wire_u8(struct wire *w);
uint16_t wire_u16le(struct wire *w);
uint32_t wire_u32le(struct wire *w);
uint64_t wire_u64le(struct wire *w);
uint32_t wire_u32be(struct wire *w);
/* An unsigned LEB128 number of at most max. One that is too long, too large or truncated fails. */
uint64_t wire_varint(struct wire *w, uint64_t max);

int wire_put_u8(struct buf *b, uint8_t v);
int wire_put_u16le(struct buf *b, uint16_t v);
int wire_put_u32le(struct buf *b, uint32_t v);
int wire_put_u64le(struct buf *b, uint64_t v);
int wire_put_u32be(struct buf *b, uint32_t v);
int wire_put_varint(struct buf *b, uint64_t v);

/* Little-endian numbers in memory that is known to be long enough. */
static inline uint32_t get_u32le(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t get_u64le(const uint8_t *p)
{
	return (uint64_t)get_u32le(p) | (uint64_t)get_u32le(p + 4) << 32;
}

static inline void set_u32le(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline void set_u64le(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

#endif
