/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_meta.c - accepted documents and their contents, refusals by message, falsified documents.
 * test_zarr_meta.py compares some two hundred and fifty of them with TensorStore.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>
#include <string.h>

#include "core/zarr/meta/zarr_meta.h"

#define V2                                                                                               \
	"{\"chunks\":[5,11],\"compressor\":{\"id\":\"zstd\",\"level\":1},\"dimension_separator\":\".\"," \
	"\"dtype\":\"<f4\",\"fill_value\":null,\"filters\":null,\"order\":\"C\",\"shape\":[10,12],"      \
	"\"zarr_format\":2}"
#define V3                                                                                                       \
	"{\"chunk_grid\":{\"configuration\":{\"chunk_shape\":[5,11]},\"name\":\"regular\"},"                     \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"configuration\":{\"chunk_shape\":[5,1],"   \
	"\"codecs\":[{\"configuration\":{\"endian\":\"big\"},\"name\":\"bytes\"},{\"configuration\":"            \
	"{\"checksum\":false,\"level\":3},\"name\":\"zstd\"}],\"index_codecs\":[{\"configuration\":{\"endian\":" \
	"\"little\"},\"name\":\"bytes\"},{\"name\":\"crc32c\"}]},\"name\":\"sharding_indexed\"}],"               \
	"\"data_type\":\"float32\",\"fill_value\":1.5,\"node_type\":\"array\",\"shape\":[10,12],"                \
	"\"zarr_format\":3}"

static int parse(const char *text, struct zarr_meta *m)
{
	return zarr_meta_parse(span_str(text), "'x'", m);
}

/* text with its first `from` replaced. */
static char *with(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	char *s;

	assert_non_null(at);
	assert_true(asprintf(&s, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) >= 0);
	return s;
}

static void a_document_of_v2(void **state)
{
	auto_zarr_meta m = { 0 };

	assert_int_equal(parse(V2, &m), 0);
	assert_int_equal(m.format, 2);
	assert_int_equal(m.dtype, DTYPE_FLOAT32);
	assert_int_equal(m.rank, 2);
	assert_true(m.shape[0] == 10 && m.shape[1] == 12);
	assert_true(m.chunk[0] == 5 && m.chunk[1] == 11);
	assert_true(m.grid[0] == 2 && m.grid[1] == 2);
	assert_int_equal(m.keys, ZARR_KEYS_V2);
	assert_int_equal(m.separator, '.');
	assert_true(m.fill_is_null);
	assert_null(m.level.shard);
	assert_int_equal(m.level.codecs.n, 1);
	assert_int_equal(m.level.codecs.dialect, CODEC_V2);
	assert_true(m.level.bytes == 220 && m.n_elements == 120 && m.bytes == 480);
	assert_false(m.level.big_endian);
}

static void a_document_of_v3_with_a_shard(void **state)
{
	auto_zarr_meta m = { 0 };
	const struct zarr_shard *s;

	assert_int_equal(parse(V3, &m), 0);
	assert_int_equal(m.format, 3);
	assert_int_equal(m.keys, ZARR_KEYS_DEFAULT);
	assert_int_equal(m.separator, '/');
	assert_false(m.fill_is_null);
	assert_memory_equal(m.fill, "\0\0\xc0\x3f", 4);
	s = m.level.shard;
	assert_non_null(s);
	assert_true(m.level.shape[0] == 5 && m.level.shape[1] == 11 && m.level.codecs.n == 0);
	assert_true(s->grid[0] == 1 && s->grid[1] == 11 && s->entries == 11 &&
		    s->index_bytes == 180);
	assert_true(s->index_crc32c && !s->index_at_start && !s->index_big_endian);
	assert_true(s->inner.shape[0] == 5 && s->inner.shape[1] == 1 && s->inner.bytes == 20);
	assert_true(s->inner.big_endian && s->inner.codecs.n == 1);
}

static void order_f_is_reversed_axes(void **state)
{
	auto_free char *text = with(V2, "\"C\"", "\"F\"");
	auto_zarr_meta m = { 0 };

	assert_int_equal(parse(text, &m), 0);
	assert_true(m.level.axis[0] == 1 && m.level.axis[1] == 0);
	assert_true(m.level.shape[0] == 11 && m.level.shape[1] == 5);
	assert_true(m.chunk[0] == 5 && m.chunk[1] == 11);
}

static void a_base64_fill_value_is_as_stored(void **state)
{
	auto_free char *dtype = with(V2, "<f4", ">c8");
	auto_free char *text = with(dtype, "null", "\"P4AAAEAAAAA=\"");
	auto_zarr_meta m = { 0 };
	float z[2];

	assert_int_equal(parse(text, &m), 0);
	memcpy(z, m.fill, 8);
	assert_true(z[0] == 1 && z[1] == 2);
	assert_true(m.level.big_endian);
}

static void arrays_without_elements_or_dimensions(void **state)
{
	auto_free char *empty = with(V2, "[10,12]", "[0,4611686018427387904]");
	auto_free char *scalar = with(V2, "[10,12]", "[]");
	auto_free char *scalar2 = with(scalar, "[5,11]", "[]");
	auto_zarr_meta a = { 0 }, b = { 0 };

	assert_int_equal(parse(empty, &a), 0);
	assert_true(a.n_elements == 0 && a.bytes == 0 && a.grid[0] == 0);
	assert_int_equal(parse(scalar2, &b), 0);
	assert_true(b.rank == 0 && b.n_elements == 1 && b.bytes == 4 && b.level.bytes == 4);
}

static void refusals_name_the_reason(void **state)
{
	static const struct {
		const char *base, *from, *to;
		int r;
		const char *text;
	} cases[] = {
		{ V2, "\"zarr_format\":2", "\"zarr_format\":1", -EUCLEAN,
		  "'x': zarr_format is 1, not 2 or 3" },
		{ V2, ",\"zarr_format\":2", "", -EUCLEAN, "'x': 'zarr_format' is missing" },
		{ V2, "\"shape\":[10,12]", "\"shape\":[10]", -EUCLEAN,
		  "'x': 'chunks' has 2 dimensions, expected 1" },
		{ V2, "[5,11]", "[0,11]", -EUCLEAN, "'x': 'chunks': dimension 0 is not a size" },
		{ V2, "[5,11]", "[4294967296,536870912]", -EUCLEAN,
		  "'x': a chunk has 2^63 bytes or more" },
		{ V2, "[10,12]", "[4294967296,4294967296]", -EFBIG,
		  "'x': the array has 2^64 elements or more" },
		{ V2, "[10,12]", "[4294967296,1073741824]", -EFBIG,
		  "'x': the array has 2^63 bytes or more" },
		{ V2, "<f4", "|S5", -EOPNOTSUPP,
		  "'x': data type '|S5' is not supported: these are texts of a fixed length, of which "
		  "TensorStore returns no bytes; store them as uint8 with one more axis" },
		{ V2, "\"<f4\"", "[[\"a\",\"<f4\"]]", -EOPNOTSUPP,
		  "'x': structured data types are not supported" },
		{ V2, "\"filters\":null", "\"filters\":[{\"id\":\"delta\"}]", -EOPNOTSUPP,
		  "'x': filters are not supported" },
		{ V2, "\"zstd\"", "\"lz4\"", -EOPNOTSUPP, "'x': codec 'lz4' is not supported" },
		{ V2, "\"C\"", "\"A\"", -EUCLEAN, "'x': unknown order 'A'" },
		{ V2, "null", "NaN", -EUCLEAN, "'x': a number is not finite" },
		{ V3, "\"float32\"", "\"string\"", -EOPNOTSUPP,
		  "'x': data type 'string' is not supported" },
		{ V3, "\"node_type\":\"array\"", "\"node_type\":\"group\"", -EUCLEAN,
		  "'x': 'node_type' is not 'array'" },
		{ V3, "1.5", "null", -EUCLEAN, "'x': fill_value is not a number for float32" },
		{ V3, "\"regular\"", "\"rectilinear\"", -EOPNOTSUPP,
		  "'x': chunk grid 'rectilinear' is not supported" },
		{ V3, "\"default\"", "\"hashed\"", -EOPNOTSUPP,
		  "'x': chunk key encoding 'hashed' is not supported" },
		{ V3, "{\"chunk_grid\"", "{\"new\":{},\"chunk_grid\"", -EOPNOTSUPP,
		  "'x': extension 'new' is not supported" },
		{ V3, "{\"chunk_grid\"", "{\"storage_transformers\":[1],\"chunk_grid\"",
		  -EOPNOTSUPP, "'x': storage transformers are not supported" },
		{ V3, "{\"chunk_grid\"", "{\"dimension_names\":[\"a\",\"a\"],\"chunk_grid\"",
		  -EUCLEAN, "'x': 'dimension_names' has 'a' twice" },
		{ V3, "[5,1]", "[5,2]", -EUCLEAN,
		  "'x': inner chunk of 2 does not divide chunk of 11 in dimension 1" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free char *text = with(cases[i].base, cases[i].from, cases[i].to);
		struct zarr_meta m, same;
		int r;

		memset(&m, 0x5a, sizeof(m));
		memset(&same, 0x5a, sizeof(same));
		r = parse(text, &m);
		assert_int_equal(r, cases[i].r);
		assert_string_equal(err_text(r), cases[i].text);
		assert_memory_equal(&m, &same, sizeof(m));
	}
}

static void long_documents_are_refused_without_parsing(void **state)
{
	auto_buf b = { 0 };
	struct zarr_meta m;

	buf_add_str(&b, V2);
	for (uint64_t i = b.n; i <= LIMIT_ZARR_META_BYTES; i++)
		buf_add_byte(&b, ' ');
	assert_int_equal(zarr_meta_parse(buf_span(&b), "x", &m), -EFBIG);
	b.n--;
	assert_int_equal(zarr_meta_parse(buf_span(&b), "x", &m), 0);
	zarr_meta_release(&m);
}

/*
 * A truncated document is never accepted; with any byte changed it is accepted or refused, and is
 * complete when accepted.
 */
static void falsified_documents_fail_cleanly(void **state)
{
	static const char *const texts[] = { V2, V3 };
	static const char bytes[] = "0x,:]}[\"-";

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		size_t n = strlen(texts[i]);

		for (size_t cut = 0; cut < n; cut++) {
			/* A copy, so that the sanitizer finds every access beyond the end. */
			auto_free char *text = malloc(cut ? cut : 1);
			struct zarr_meta m;

			memcpy(text, texts[i], cut);
			assert_int_equal(zarr_meta_parse(span_of(text, cut), "x", &m), -EUCLEAN);
		}
		for (size_t at = 0; at < n; at++) {
			for (const char *c = bytes; *c; c++) {
				auto_free char *text = strdup(texts[i]);
				auto_zarr_meta m = { 0 };
				auto_buf out = { 0 };
				int r;

				text[at] = *c;
				r = parse(text, &m);
				assert_true(r == 0 || r == -EUCLEAN || r == -EOPNOTSUPP ||
					    r == -EFBIG);
				if (r == 0)
					assert_int_equal(zarr_meta_text(&out, &m), 0);
			}
		}
	}
}

/* Each member in turn is null, a string, a number, a list, an object. */
static void members_of_another_kind_are_refused(void **state)
{
	static const char *const members[] = {
		"[5,11]",  "\"zstd\"", "{\"id\":\"zstd\",\"level\":1}",
		"\"<f4\"", "\"C\"",    "[10,12]",
	};
	static const char *const kinds[] = { "{}", "[{}]", "true", "-1" };

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
			auto_free char *text = with(V2, members[i], kinds[k]);
			struct zarr_meta m;

			assert_int_equal(parse(text, &m), -EUCLEAN);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_of_v2),
		cmocka_unit_test(a_document_of_v3_with_a_shard),
		cmocka_unit_test(order_f_is_reversed_axes),
		cmocka_unit_test(a_base64_fill_value_is_as_stored),
		cmocka_unit_test(arrays_without_elements_or_dimensions),
		cmocka_unit_test(refusals_name_the_reason),
		cmocka_unit_test(long_documents_are_refused_without_parsing),
		cmocka_unit_test(falsified_documents_fail_cleanly),
		cmocka_unit_test(members_of_another_kind_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
