/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece.c - the format of a file of the cache on disk.
 *
 *     data                     n bytes
 *     crc32c of each block     4 bytes each, little-endian, as all numbers are
 *     "pytreefs piece1" and 0  16 bytes
 *     n                        4 bytes
 *     identity of the piece    32 bytes, SHA-256 of object and index
 *     crc32c                   4 bytes, of all between the data and itself
 */
#include "core/remote/cache/piece.h"

#include <assert.h>

#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/wire.h"

#define MAGIC "pytreefs piece1"
#define MAGIC_BYTES 16
#define NAME_DIGITS 62

static_assert(PIECE_TAIL_MAX == 4 * PIECE_BLOCKS + MAGIC_BYTES + 4 + 32 + 4, "the tail is larger");

/* ---- names ---- */

void piece_object_id(struct span url, const char *tag, uint64_t size, struct piece_id *ret)
{
	uint8_t n[8];
	/* The zeros between the texts keep ("ab", "c") distinct from ("a", "bc"). */
	const struct span parts[] = {
		url,
		span_of("", 1),
		span_of(tag, strlen(tag) + 1),
		span_of(n, sizeof(n)),
	};

	set_u64le(n, size);
	sha256_parts(parts, ARRAY_LEN(parts), ret->hash);
}

void piece_id_of(const struct piece_id *object, uint64_t index, struct piece_id *ret)
{
	uint8_t text[sizeof(object->hash) + 8];

	memcpy(text, object->hash, sizeof(object->hash));
	set_u64le(text + sizeof(object->hash), index);
	sha256(span_of(text, sizeof(text)), ret->hash);
}

void piece_name(const struct piece_id *id, char ret[PIECE_NAME_MAX])
{
	hex_text(span_of(id->hash, 1), ret);
	ret[2] = '/';
	hex_text(span_of(id->hash + 1, sizeof(id->hash) - 1), ret + 3);
}

bool piece_is_name(const char *name)
{
	return strspn(name, "0123456789abcdef") == NAME_DIGITS && !name[NAME_DIGITS];
}

/* ---- the tail ---- */

size_t piece_tail_bytes(size_t n)
{
	return 4 * div_up(n, PIECE_BLOCK) + MAGIC_BYTES + 4 + 32 + 4;
}

void piece_tail_pack(const struct piece_id *id, struct span data, uint8_t ret[PIECE_TAIL_MAX])
{
	uint8_t *at = ret;

	assert(data.n && data.n <= PIECE_BYTES);
	for (size_t from = 0; from < data.n; from += PIECE_BLOCK, at += 4)
		set_u32le(at, crc32c(span_of(data.p + from, MIN(PIECE_BLOCK, data.n - from))));
	memcpy(at, MAGIC, MAGIC_BYTES);
	at += MAGIC_BYTES;
	set_u32le(at, (uint32_t)data.n);
	memcpy(at + 4, id->hash, sizeof(id->hash));
	at += 4 + sizeof(id->hash);
	set_u32le(at, crc32c(span_of(ret, (size_t)(at - ret))));
}

bool piece_tail_is_of(const uint8_t *tail, const struct piece_id *id, size_t n)
{
	size_t bytes = piece_tail_bytes(n);
	const uint8_t *at = tail + 4 * div_up(n, PIECE_BLOCK);

	return get_u32le(tail + bytes - 4) == crc32c(span_of(tail, bytes - 4)) &&
	       !memcmp(at, MAGIC, MAGIC_BYTES) && get_u32le(at + MAGIC_BYTES) == n &&
	       !memcmp(at + MAGIC_BYTES + 4, id->hash, sizeof(id->hash));
}

bool piece_blocks_match(const uint8_t *tail, size_t from, struct span data)
{
	assert(from % PIECE_BLOCK == 0);
	for (size_t at = 0; at < data.n; at += PIECE_BLOCK)
		if (get_u32le(tail + 4 * ((from + at) / PIECE_BLOCK)) !=
		    crc32c(span_of(data.p + at, MIN(PIECE_BLOCK, data.n - at))))
			return false;
	return true;
}
