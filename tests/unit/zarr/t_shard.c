/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_shard.c - shard indices: TensorStore's own bytes, decoded and encoded, and every kind of fault.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/crc32c.h"
#include "core/base/limits.h"
#include "core/base/wire.h"
#include "core/zarr/meta/shard.h"

#define NONE UINT64_MAX

struct vector {
	const char *name;
	uint64_t entries;
	bool big, crc;
	uint64_t object_len;
	const char *bytes;
	size_t n;
	uint64_t want[8];
};

#define V(s) s, sizeof(s) - 1
#define U64(b) b "\0\0\0\0\0\0\0"
#define FF8 "\xff\xff\xff\xff\xff\xff\xff\xff"
#define ABSENT FF8 FF8

/* zarr.md 13.5 to 13.7: shards that TensorStore wrote. */
/* clang-format off */
static const struct vector vectors[] = {
	{ "opaque chunks, index at the end", 4, false, true, 74,
	  V(U64("\0") U64("\4") ABSENT U64("\4") U64("\2") ABSENT "\xb4\x81\x52\xb8"),
	  { 0, 4, NONE, NONE, 4, 2, NONE, NONE } },
	{ "opaque chunks, index at the start", 4, false, true, 74,
	  V(U64("\x44") U64("\4") ABSENT U64("\x48") U64("\2") ABSENT "\x7a\x88\xd4\x4c"),
	  { 0x44, 4, NONE, NONE, 0x48, 2, NONE, NONE } },
	{ "int32, first shard", 2, false, true, 52, V(U64("\0") U64("\x08") U64("\x08") U64("\x08") "\x12\xa4\x6c\x81"),
	  { 0, 8, 8, 8 } },
	{ "int32, second shard", 2, false, true, 44, V(U64("\0") U64("\x08") ABSENT "\x15\x59\xed\xe7"),
	  { 0, 8, NONE, NONE } },
	{ "two axes, first shard", 4, false, true, 92,
	  V(U64("\0") U64("\x08") U64("\x08") U64("\x08") ABSENT U64("\x10") U64("\x08") "\x4b\xcf\x75\xe4"),
	  { 0, 8, 8, 8, NONE, NONE, 16, 8 } },
	{ "two axes, second shard", 4, false, true, 84,
	  V(U64("\0") U64("\x08") ABSENT U64("\x08") U64("\x08") ABSENT "\x9f\xd6\x57\x80"),
	  { 0, 8, NONE, NONE, 8, 8, NONE, NONE } },
	{ "big-endian, no checksum", 1, true, false, 100, V("\0\0\0\0\0\0\0\x05" "\0\0\0\0\0\0\0\x5f"), { 5, 0x5f } },
};
/* clang-format on */

static struct zarr_shard shard_of(const struct vector *v)
{
	return (struct zarr_shard){ .entries = v->entries,
				    .index_bytes = 16 * v->entries + (v->crc ? 4 : 0),
				    .index_crc32c = v->crc,
				    .index_big_endian = v->big };
}

static void tensorstores_own_bytes_are_decoded_and_encoded(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct zarr_shard s = shard_of(v);
		uint64_t got[8] = { 0 };
		auto_buf back = { 0 };
		int r = shard_index_decode(&s, span_of(v->bytes, v->n), v->object_len, got);

		if (r < 0)
			fail_msg("%s: %s", v->name, err_text(r));
		assert_memory_equal(got, v->want, 16 * v->entries);
		assert_int_equal(buf_add_str(&back, "before"), 0);
		assert_int_equal(shard_index_encode(&s, got, &back), 0);
		assert_int_equal(back.n, v->n + 6);
		assert_memory_equal(back.p + 6, v->bytes, v->n);
	}
}

static void decoded_in_place(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct zarr_shard s = shard_of(v);
		uint64_t place[10];

		memcpy(place, v->bytes, v->n);
		assert_int_equal(shard_index_decode(&s, span_of(place, v->n), v->object_len, place),
				 0);
		assert_memory_equal(place, v->want, 16 * v->entries);
	}
}

static void any_other_length_is_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct zarr_shard s = shard_of(v);
		uint8_t bytes[80] = { 0 };
		uint64_t got[8];

		memcpy(bytes, v->bytes, v->n);
		for (size_t n = 0; n <= v->n + 1; n++)
			if (n != v->n)
				assert_int_equal(shard_index_decode(&s, span_of(bytes, n),
								    v->object_len, got),
						 -EUCLEAN);
	}
}

static void a_flipped_bit_breaks_the_checksum(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		const struct vector *v = &vectors[i];
		struct zarr_shard s = shard_of(v);
		uint8_t bytes[80];
		uint64_t got[8];

		for (size_t bit = 0; bit < 8 * v->n && v->crc; bit++) {
			memcpy(bytes, v->bytes, v->n);
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(shard_index_decode(&s, span_of(bytes, v->n), v->object_len,
							    got),
					 -EBADMSG);
		}
	}
}

static void entries_must_be_inside_their_shard(void **state)
{
	/* clang-format off */
	static const struct {
		uint64_t off, len, object;
		int code;
	} cases[] = {
		{ 0, 0, 0, 0 },		     { 0, 10, 10, 0 },		   { 10, 0, 10, 0 },
		{ 0, 11, 10, -EUCLEAN },     { 10, 1, 10, -EUCLEAN },	   { 11, 0, 10, -EUCLEAN },
		{ NONE, 0, 10, -EUCLEAN },   { 0, NONE, 10, -EUCLEAN },	   { NONE, 5, UINT64_MAX, -EUCLEAN },
		{ NONE, NONE, 0, 0 },	     { NONE - 1, 2, NONE, -EUCLEAN }, { NONE - 1, 1, NONE, 0 },
		{ (uint64_t)1 << 63, (uint64_t)1 << 63, NONE, -EUCLEAN },
	};
	/* clang-format on */

	for (int big = 0; big < 2; big++)
		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			struct zarr_shard s = { .entries = 1,
						.index_bytes = 20,
						.index_crc32c = true,
						.index_big_endian = big };
			uint64_t entry[2] = { cases[i].off, cases[i].len }, got[2];
			auto_buf index = { 0 };

			assert_int_equal(shard_index_encode(&s, entry, &index), 0);
			assert_int_equal(shard_index_decode(&s, buf_span(&index), cases[i].object,
							    got),
					 cases[i].code);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensorstores_own_bytes_are_decoded_and_encoded),
		cmocka_unit_test(decoded_in_place),
		cmocka_unit_test(any_other_length_is_refused),
		cmocka_unit_test(a_flipped_bit_breaks_the_checksum),
		cmocka_unit_test(entries_must_be_inside_their_shard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
