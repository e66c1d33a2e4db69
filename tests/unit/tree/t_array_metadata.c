/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_array_metadata.c - `array_metadatas/process_N`: entries, the PRNG implementation, and writing.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/limits.h"
#include "core/tree/array_metadata.h"

static const char document[] =
	"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"params.w\", "
	"\"write_shape\": [64, 0], "
	"\"chunk_shape\": [64, 1], \"ext_metadata\": null}}, {\"array_metadata\": "
	"{\"param_name\": \"rng\", "
	"\"write_shape\": [2], \"chunk_shape\": [2], \"ext_metadata\": {\"random_key_impl\": "
	"\"threefry2x32\"}}}, "
	"{\"array_metadata\": {\"param_name\": \"\\u00e9\", \"write_shape\": [], \"chunk_shape\": "
	"[], "
	"\"ext_metadata\": {\"other\": [1, 2.5]}}}]}";

static int parse(const char *text, struct array_metadatas **ret)
{
	return array_metadatas_parse(span_str(text), "x", ret);
}

static void entries_are_found_and_printed(void **state)
{
	auto_of(array_metadatas) struct array_metadatas *a = NULL;
	const struct array_metadata *e;
	auto_buf out = { 0 };

	assert_int_equal(parse(document, &a), 0);
	assert_int_equal(a->n, 3);
	e = array_metadatas_find(a, span_str("params.w"));
	assert_int_equal(e->write_rank, 2);
	assert_int_equal(e->write_shape[0], 64);
	assert_int_equal(e->write_shape[1], 0);
	assert_int_equal(e->chunk_shape[1], 1);
	assert_null(e->ext.p);
	assert_null(e->key_impl.p);
	e = array_metadatas_find(a, span_str("rng"));
	assert_true(span_eq(e->key_impl, span_str("threefry2x32")));
	e = array_metadatas_find(a, span_str("\xc3\xa9"));
	assert_int_equal(e->write_rank, 0);
	assert_null(e->key_impl.p);
	assert_null(array_metadatas_find(a, span_str("params")));
	assert_int_equal(array_metadatas_print(a->entries, a->n, &out), 0);
	assert_string_equal(buf_str(&out), document);
}

static void optional_members(void **state)
{
	static const struct {
		const char *text;
		size_t n;
	} cases[] = {
		{ "{}", 0 },
		{ "{\"array_metadatas\": []}", 0 },
		{ "{\"array_metadatas\": [{}, {\"other\": 1}]}", 0 },
		{ "{\"x\": 1, \"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\", "
		  "\"write_shape\": [1], "
		  "\"chunk_shape\": [1], \"new\": {}}}]}",
		  1 },
		{ "{\"array_metadatas\": [{}], \"array_metadatas\": []}", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(array_metadatas) struct array_metadatas *a = NULL;

		assert_int_equal(parse(cases[i].text, &a), 0);
		assert_int_equal(a->n, cases[i].n);
	}
}

static void the_last_of_two_is_found(void **state)
{
	auto_of(array_metadatas) struct array_metadatas *a = NULL;

	assert_int_equal(parse("{\"array_metadatas\": ["
			       "{\"array_metadata\": {\"param_name\": \"a\", \"write_shape\": "
			       "[1], \"chunk_shape\": [1]}},"
			       "{\"array_metadata\": {\"param_name\": \"a\", \"write_shape\": "
			       "[2], \"chunk_shape\": [1]}}]}",
			       &a),
			 0);
	assert_int_equal(array_metadatas_find(a, span_str("a"))->write_shape[0], 2);
}

static void malformed_files_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{\"array_metadatas\": {}}",
		"{\"array_metadatas\": [1]}",
		"{\"array_metadatas\": [{\"array_metadata\": {}}]}",
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\", "
		"\"write_shape\": [1]}}]}",
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": 5, \"write_shape\": "
		"[1], "
		"\"chunk_shape\": [1]}}]}",
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\", "
		"\"write_shape\": [-1], "
		"\"chunk_shape\": [1]}}]}",
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\", "
		"\"write_shape\": [1.5], "
		"\"chunk_shape\": [1]}}]}",
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\", "
		"\"write_shape\": [1], "
		"\"chunk_shape\": [1], \"ext_metadata\": 5}}]}",
		"{\"array_metadatas\": []} x",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct array_metadatas *a = NULL;

		if (parse(bad[i], &a) != -EUCLEAN)
			fail_msg("'%s' was taken", bad[i]);
		assert_null(a);
	}
}

static void axes_are_bounded(void **state)
{
	for (int rank = LIMIT_RANK; rank <= LIMIT_RANK + 1; rank++) {
		auto_of(array_metadatas) struct array_metadatas *a = NULL;
		auto_buf doc = { 0 };

		buf_add_str(&doc, "{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": "
				  "\"a\", \"chunk_shape\": [], "
				  "\"write_shape\": [");
		for (int i = 0; i < rank; i++)
			buf_addf(&doc, "%s1", i ? ", " : "");
		buf_add_str(&doc, "]}}]}");
		assert_int_equal(array_metadatas_parse(buf_span(&doc), "x", &a),
				 rank > LIMIT_RANK ? -EFBIG : 0);
	}
}

static void the_ext_of_a_prng_key_is_written(void **state)
{
	auto_buf out = { 0 };

	assert_int_equal(array_metadata_key_ext(span_str("rbg\""), &out), 0);
	assert_string_equal(buf_str(&out), "{\"random_key_impl\": \"rbg\\\"\"}");
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-1x\\/nt\xff";
	size_t n = sizeof(document) - 1;
	char text[sizeof(document)];

	for (size_t at = 0; at < n; at++) {
		struct array_metadatas *cut = NULL;

		assert_int_equal(array_metadatas_parse(span_of(document, at), "x", &cut), -EUCLEAN);
		assert_null(cut);
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(array_metadatas) struct array_metadatas *a = NULL;
			auto_of(array_metadatas) struct array_metadatas *again = NULL;
			auto_buf x = { 0 }, y = { 0 };

			memcpy(text, document, n);
			text[at] = (char)bytes[k];
			if (array_metadatas_parse(span_of(text, n), "x", &a) < 0)
				continue;
			assert_int_equal(array_metadatas_print(a->entries, a->n, &x), 0);
			assert_int_equal(array_metadatas_parse(buf_span(&x), "x", &again), 0);
			assert_int_equal(array_metadatas_print(again->entries, again->n, &y), 0);
			assert_string_equal(buf_str(&x), buf_str(&y));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_found_and_printed),
		cmocka_unit_test(optional_members),
		cmocka_unit_test(the_last_of_two_is_found),
		cmocka_unit_test(malformed_files_are_refused),
		cmocka_unit_test(axes_are_bounded),
		cmocka_unit_test(the_ext_of_a_prng_key_is_written),
		cmocka_unit_test(damage_is_refused_or_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
