/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_level.c - transposes and shards are resolved into axes; limits of shards and chains.
 */
#include "tests/unit/lib/unit.h"

#include <stdio.h>
#include <string.h>

#include "core/zarr/meta/zarr_meta.h"

#define BYTES "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define CRC "{\"name\":\"crc32c\"}"
#define T(order) "{\"name\":\"transpose\",\"configuration\":{\"order\":" order "}}"
#define SHARD_WITH(shape, codecs, index)                                           \
	"{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" shape \
	",\"codecs\":[" codecs "],\"index_codecs\":[" index "]}}"
#define SHARD(shape, codecs) SHARD_WITH(shape, codecs, BYTES "," CRC)

static int parse(const char *chunk, const char *codecs, struct zarr_meta *m)
{
	auto_buf b = { 0 };

	buf_addf(&b,
		 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"int16\","
		 "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":%s}},"
		 "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,\"codecs\":[%s]}",
		 chunk, chunk, codecs);
	return zarr_meta_parse(buf_span(&b), "x", m);
}

/* The levels as text, which test_zarr_meta.py compares with TensorStore's bytes. */
static void transposes_are_composed(void **state)
{
	static const struct {
		const char *chunk, *codecs, *text;
	} cases[] = {
		{ "[2,3,4]", T("[2,0,1]") "," BYTES, "elements shape [4, 2, 3] axes [2, 0, 1]" },
		{ "[2,3,4]", T("[2,0,1]") "," T("[2,0,1]") "," BYTES,
		  "elements shape [3, 4, 2] axes [1, 2, 0]" },
		{ "[2,3,4]", T("[2,0,1]") "," T("[1,2,0]") "," BYTES,
		  "elements shape [2, 3, 4] axes [0, 1, 2]" },
		{ "[2,3,4]", T("\"F\"") "," BYTES, "elements shape [4, 3, 2] axes [2, 1, 0]" },
		{ "[2,3,4]", T("\"C\"") "," BYTES, "elements shape [2, 3, 4] axes [0, 1, 2]" },
		{ "[4,6,8]", T("[2,0,1]") "," SHARD("[4,2,3]", T("[1,2,0]") "," BYTES),
		  "shard shape [8, 4, 6] axes [2, 0, 1] grid [2, 2, 2]\n"
		  "  index 132 bytes at end, little-endian, crc32c\n"
		  "  elements shape [2, 3, 4] axes [0, 1, 2]" },
		{ "[4,6]", SHARD("[2,6]", T("[1,0]") "," SHARD("[3,1]", BYTES)),
		  "shard shape [4, 6] axes [0, 1] grid [2, 1]\n"
		  "  index 36 bytes at end, little-endian, crc32c\n"
		  "  shard shape [6, 2] axes [1, 0] grid [2, 2]\n"
		  "    index 68 bytes at end, little-endian, crc32c\n"
		  "    elements shape [3, 1] axes [1, 0]" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_zarr_meta m = { 0 };
		auto_buf text = { 0 };

		assert_int_equal(parse(cases[i].chunk, cases[i].codecs, &m), 0);
		assert_int_equal(zarr_meta_text(&text, &m), 0);
		if (!strstr(buf_str(&text), cases[i].text))
			fail_msg("%s gave:\n%s", cases[i].codecs, buf_str(&text));
	}
}

static void axes_are_always_a_permutation(void **state)
{
	static const char *const orders[] = { "[0,1,2,3]", "[3,2,1,0]", "[1,2,3,0]", "[2,0,3,1]",
					      "[0,2,1,3]" };

	for (size_t a = 0; a < ARRAY_LEN(orders); a++) {
		for (size_t b = 0; b < ARRAY_LEN(orders); b++) {
			auto_zarr_meta m = { 0 };
			char codecs[1024];
			unsigned visited = 0;

			snprintf(codecs, sizeof(codecs), T("%s") "," T("%s") "," BYTES, orders[a],
				 orders[b]);
			assert_int_equal(parse("[2,3,4,5]", codecs, &m), 0);
			for (unsigned i = 0; i < 4; i++) {
				visited |= 1u << m.level.axis[i];
				assert_true(m.level.shape[i] == m.chunk[m.level.axis[i]]);
			}
			assert_int_equal(visited, 15);
		}
	}
}

static void refusals(void **state)
{
	static const struct {
		const char *chunk, *codecs;
		int r;
		const char *text;
	} cases[] = {
		{ "[4]", "", -EUCLEAN,
		  "x: 'codecs' have neither 'bytes' nor 'sharding_indexed' where it belongs" },
		{ "[4]", CRC, -EUCLEAN,
		  "x: 'codecs' have neither 'bytes' nor 'sharding_indexed' where it belongs" },
		{ "[4]", "{\"name\":\"bytes\"}", -EUCLEAN, "x: codec 'bytes' has no 'endian'" },
		{ "[4]", BYTES "," T("[0]"), -EUCLEAN,
		  "x: codec 'transpose' follows the array -> bytes codec" },
		{ "[4]", BYTES "," BYTES, -EUCLEAN,
		  "x: codec 'bytes' follows the array -> bytes codec" },
		{ "[4]", SHARD("[2]", BYTES) "," CRC, -EUCLEAN,
		  "x: codecs follow 'sharding_indexed'" },
		{ "[4]", T("[1]") "," BYTES, -EUCLEAN,
		  "x: codec 'transpose': 'order' is not a permutation" },
		{ "[4,4]", T("[1,1]") "," BYTES, -EUCLEAN,
		  "x: codec 'transpose': 'order' is not a permutation" },
		{ "[4,4]", T("[1]") "," BYTES, -EUCLEAN,
		  "x: codec 'transpose': 'order' is not a list of 2 dimensions" },
		{ "[4,6]", T("[1,0]") "," SHARD("[4,6]", BYTES), -EUCLEAN,
		  "x: inner chunk of 4 does not divide chunk of 6 in dimension 0" },
		{ "[4]", SHARD_WITH("[2]", BYTES, BYTES "," CRC "," CRC), -EOPNOTSUPP,
		  "x: index codec 'crc32c' in this place is not supported" },
		{ "[4]", SHARD_WITH("[2]", BYTES, T("[1,0]") "," BYTES), -EOPNOTSUPP,
		  "x: index codec 'transpose' in this place is not supported" },
		{ "[4]", SHARD_WITH("[2]", BYTES, CRC), -EUCLEAN,
		  "x: index codec 'crc32c' has no fixed size or stands in a wrong place" },
		{ "[4]", SHARD_WITH("[2]", BYTES, ""), -EUCLEAN,
		  "x: 'index_codecs' have no 'bytes'" },
		{ "[16777217]", SHARD("[1]", BYTES), -EFBIG,
		  "x: a shard has more than 16777216 inner chunks" },
		{ "[8589934592,8589934592,8589934592]", SHARD("[1,1,1]", BYTES), -EFBIG,
		  "x: a shard has more than 16777216 inner chunks" },
		{ "[2]",
		  SHARD("[2]", SHARD("[2]", SHARD("[2]", SHARD("[2]", SHARD("[2]", BYTES))))),
		  -EFBIG, "x: shards are nested more than 4 deep" },
		{ "[4]",
		  BYTES "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC
			"," CRC "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC "," CRC,
		  -EFBIG, "x: a chain has more than 16 codecs" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct zarr_meta m;

		assert_int_equal(parse(cases[i].chunk, cases[i].codecs, &m), cases[i].r);
		assert_string_equal(err_text(cases[i].r), cases[i].text);
	}
}

static void shards_up_to_the_limits(void **state)
{
	auto_zarr_meta a = { 0 }, b = { 0 };

	assert_int_equal(
		parse("[2]", SHARD("[2]", SHARD("[2]", SHARD("[2]", SHARD("[2]", BYTES)))), &a), 0);
	assert_int_equal(parse("[16777216]", SHARD_WITH("[1]", BYTES, BYTES), &b), 0);
	assert_true(b.level.shard->entries == 16777216 && b.level.shard->index_bytes == 268435456);
	assert_false(b.level.shard->index_crc32c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transposes_are_composed),
		cmocka_unit_test(axes_are_always_a_permutation),
		cmocka_unit_test(refusals),
		cmocka_unit_test(shards_up_to_the_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
