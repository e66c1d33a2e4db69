/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_text.c - the text of a document names every member.
 */
#include "tests/unit/lib/unit.h"

#include "core/zarr/meta/zarr_meta.h"

static void one_line_per_member(void **state)
{
	static const struct {
		const char *document, *text;
	} cases[] = {
		{ "{\"chunks\":[5,11],\"compressor\":{\"id\":\"zstd\"},\"dimension_separator\":\"/\",\"dtype\":\">f4\","
		  "\"fill_value\":null,\"filters\":null,\"order\":\"F\",\"shape\":[10,12],\"zarr_format\":2}",
		  "zarr 2\ndtype float32\nshape [10, 12]\nchunk [5, 11]\ngrid [2, 2]\nkeys v2 '/'\nfill null\n"
		  "elements 120\nbytes 480\nelements shape [11, 5] axes [1, 0] big-endian 220 bytes\n"
		  "  codec {\"id\":\"zstd\",\"level\":1}\n" },
		{ "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[],\"data_type\":\"complex64\",\"chunk_grid\":"
		  "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[]}},\"chunk_key_encoding\":{\"name\":"
		  "\"default\"},\"fill_value\":[0.5,\"NaN\"],\"codecs\":[{\"name\":\"sharding_indexed\","
		  "\"configuration\":{\"chunk_shape\":[],\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":"
		  "\"little\"}},{\"name\":\"crc32c\"}],\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":"
		  "{\"endian\":\"big\"}}],\"index_location\":\"start\"}}]}",
		  "zarr 3\ndtype complex64\nshape []\nchunk []\ngrid []\nkeys default '/'\nfill [0.5,\"NaN\"]\n"
		  "elements 1\nbytes 8\nshard shape [] axes [] grid []\n  index 16 bytes at start, big-endian\n"
		  "  elements shape [] axes [] little-endian 8 bytes\n    codec {\"name\":\"crc32c\"}\n" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_zarr_meta m = { 0 };
		auto_buf text = { 0 };

		assert_int_equal(zarr_meta_parse(span_str(cases[i].document), "x", &m), 0);
		assert_int_equal(zarr_meta_text(&text, &m), 0);
		assert_string_equal(buf_str(&text), cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_line_per_member),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
