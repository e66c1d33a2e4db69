/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_create.c - documents as TensorStore writes them for Orbax; our documents can be parsed.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/zarr/meta/zarr_meta.h"

static const uint64_t shape[] = { 128, 64 }, chunk[] = { 64, 64 };

#define NONE                             \
	{                                \
		.kind = COMPRESSION_NONE \
	}
#define ZSTD(of)                                      \
	{                                             \
		.kind = COMPRESSION_ZSTD, .level = of \
	}
#define BLOSC(name, of, how)                                                           \
	{                                                                              \
		.kind = COMPRESSION_BLOSC, .cname = name, .level = of, .shuffle = how, \
		.block = 524288                                                        \
	}

static void documents_of_orbax(void **state)
{
	static const struct {
		struct zarr_create c;
		const char *text;
	} cases[] = {
		{ { 2, { DTYPE_FLOAT32, 2, shape }, chunk, ZSTD(1), false },
		  "{\"chunks\":[64,64],\"compressor\":{\"id\":\"zstd\",\"level\":1},\"dimension_separator\":\".\","
		  "\"dtype\":\"<f4\",\"fill_value\":null,\"filters\":null,\"order\":\"C\",\"shape\":[128,64],"
		  "\"zarr_format\":2}" },
		{ { 2, { DTYPE_BFLOAT16, 0, shape }, chunk, NONE, false },
		  "{\"chunks\":[],\"compressor\":null,\"dimension_separator\":\".\",\"dtype\":\"bfloat16\","
		  "\"fill_value\":null,\"filters\":null,\"order\":\"C\",\"shape\":[],\"zarr_format\":2}" },
		{ { 3, { DTYPE_FLOAT32, 2, shape }, chunk, ZSTD(3), true },
		  "{\"chunk_grid\":{\"configuration\":{\"chunk_shape\":[64,64]},\"name\":\"regular\"},"
		  "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"configuration\":{\"chunk_shape\":"
		  "[64,64],\"codecs\":[{\"configuration\":{\"endian\":\"little\"},\"name\":\"bytes\"},"
		  "{\"configuration\":{\"checksum\":false,\"level\":3},\"name\":\"zstd\"}],\"index_codecs\":["
		  "{\"configuration\":{\"endian\":\"little\"},\"name\":\"bytes\"},{\"name\":\"crc32c\"}]},"
		  "\"name\":\"sharding_indexed\"}],\"data_type\":\"float32\",\"fill_value\":0.0,\"node_type\":"
		  "\"array\",\"shape\":[128,64],\"zarr_format\":3}" },
		{ { 3, { DTYPE_BOOL, 1, shape }, chunk, NONE, false },
		  "{\"chunk_grid\":{\"configuration\":{\"chunk_shape\":[64]},\"name\":\"regular\"},"
		  "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"}],"
		  "\"data_type\":\"bool\",\"fill_value\":false,\"node_type\":\"array\",\"shape\":[128],"
		  "\"zarr_format\":3}" },
		{ { 2, { DTYPE_BFLOAT16, 2, shape }, chunk, BLOSC(0, 1, 1), false },
		  "{\"chunks\":[64,64],\"compressor\":{\"blocksize\":524288,\"clevel\":1,\"cname\":\"zstd\","
		  "\"id\":\"blosc\",\"shuffle\":1},\"dimension_separator\":\".\",\"dtype\":\"bfloat16\","
		  "\"fill_value\":null,\"filters\":null,\"order\":\"C\",\"shape\":[128,64],\"zarr_format\":2}" },
		{ { 3, { DTYPE_FLOAT32, 1, shape }, chunk, BLOSC(1, 5, 2), false },
		  "{\"chunk_grid\":{\"configuration\":{\"chunk_shape\":[64]},\"name\":\"regular\"},"
		  "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"configuration\":{\"endian\":"
		  "\"little\"},\"name\":\"bytes\"},{\"configuration\":{\"blocksize\":524288,\"clevel\":5,"
		  "\"cname\":\"lz4\",\"shuffle\":\"bitshuffle\",\"typesize\":4},\"name\":\"blosc\"}],"
		  "\"data_type\":\"float32\",\"fill_value\":0.0,\"node_type\":\"array\",\"shape\":[128],"
		  "\"zarr_format\":3}" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_zarr_meta m = { 0 };
		auto_buf text = { 0 };

		assert_int_equal(zarr_meta_print(&cases[i].c, &text), 0);
		assert_string_equal(buf_str(&text), cases[i].text);
		assert_int_equal(zarr_meta_parse(buf_span(&text), "x", &m), 0);
		assert_int_equal(m.dtype, cases[i].c.array.dtype);
		assert_int_equal(m.level.shard != NULL, cases[i].c.sharded);
	}
}

static void every_type_of_every_form_can_be_parsed(void **state)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++) {
		for (int format = 0; format < 6; format++) {
			struct zarr_create c = {
				format < 2 ? 2 : 3, { t, 2, shape }, chunk, ZSTD(-5), format >= 4
			};
			auto_zarr_meta m = { 0 };
			auto_buf text = { 0 };

			assert_int_equal(zarr_meta_print(&c, &text), 0);
			assert_int_equal(zarr_meta_parse(buf_span(&text), "x", &m), 0);
			assert_true(m.dtype == c.array.dtype && m.format == c.format &&
				    m.rank == 2);
			assert_int_equal(m.fill_is_null, c.format == 2);
			assert_true(m.grid[0] == 2 && m.grid[1] == 1);
		}
	}
}

static void nonsense_is_refused(void **state)
{
	static const struct zarr_create cases[] = {
		{ 4, { DTYPE_FLOAT32, 2, shape }, chunk, ZSTD(1), false },
		{ 3, { DTYPE_FLOAT32, 33, shape }, chunk, ZSTD(1), false },
		{ 2, { DTYPE_FLOAT32, 2, shape }, chunk, ZSTD(1), true },
		{ 2, { DTYPE_FLOAT32, 2, shape }, chunk, ZSTD(23), false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf text = { 0 };

		buf_add_str(&text, "kept");
		assert_int_equal(zarr_meta_print(&cases[i], &text), -EINVAL);
		assert_int_equal(text.n, 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documents_of_orbax),
		cmocka_unit_test(every_type_of_every_form_can_be_parsed),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
