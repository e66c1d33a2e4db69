/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - fixed integers of both byte orders, and LEB128 varints.
 */
#include "core/base/wire.h"

struct span wire_bytes(struct wire *w, uint64_t n)
{
	struct span s = { w->p, 0 };

	if (w->bad || n > (uint64_t)(w->end - w->p)) {
		w->bad = true;
		return s;
	}
	s.n = (size_t)n;
	w->p += n;
	return s;
}

static uint64_t wire_le(struct wire *w, unsigned n)
{
	struct span s = wire_bytes(w, n);
	uint64_t v = 0;

	for (size_t i = s.n; i > 0; i--)
		v = v << 8 | s.p[i - 1];
	return v;
}

uint8_t wire_u8(struct wire *w)
{
	return (uint8_t)wire_le(w, 1);
}

uint16_t wire_u16le(struct wire *w)
{
	return (uint16_t)wire_le(w, 2);
}

uint32_t wire_u32le(struct wire *w)
{
	return (uint32_t)wire_le(w, 4);
}

uint64_t wire_u64le(struct wire *w)
{
	return wire_le(w, 8);
}

uint32_t wire_u32be(struct wire *w)
{
	return __builtin_bswap32(wire_u32le(w));
}

uint64_t wire_varint(struct wire *w, uint64_t max)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = wire_u8(w);

		if (w->bad)
			return 0;
		/* The tenth byte has room for one bit. */
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		if (v > max)
			break;
		return v;
	}
	w->bad = true;
	return 0;
}

static int wire_put_le(struct buf *b, uint64_t v, unsigned n)
{
	uint8_t bytes[8];

	for (unsigned i = 0; i < n; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	return buf_add(b, bytes, n);
}

int wire_put_u8(struct buf *b, uint8_t v)
{
	return wire_put_le(b, v, 1);
}

int wire_put_u16le(struct buf *b, uint16_t v)
{
	return wire_put_le(b, v, 2);
}

int wire_put_u32le(struct buf *b, uint32_t v)
{
	return wire_put_le(b, v, 4);
}

int wire_put_u64le(struct buf *b, uint64_t v)
{
	return wire_put_le(b, v, 8);
}

int wire_put_u32be(struct buf *b, uint32_t v)
{
	return wire_put_u32le(b, __builtin_bswap32(v));
}

int wire_put_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[10];
	unsigned n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	return buf_add(b, bytes, n);
}
