/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_sharding.c - the text of one sharding, malformed texts, and boxes. tests/interop compares all
 * of it with JAX.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/sharding.h"

#define NAMED(mesh, names, spec)                                                             \
	"{\"sharding_type\": \"NamedSharding\", \"shape\": " mesh ", \"axis_names\": " names \
	", \"partition_spec\": " spec "}"

static const char full[] =
	"{\"sharding_type\": \"NamedSharding\", \"shape\": [2, 2], \"axis_names\": [\"x\", \"y\"], "
	"\"axis_types\": [\"AxisType.Auto\", \"AxisType.Explicit\"], "
	"\"partition_spec\": [[\"y\", \"x\"], null, []], "
	"\"device_mesh\": {\"mesh\": [[{\"id\": 0}, {\"id\": 2048}], [{\"id\": 2}, {\"id\": "
	"-3}]]}}";

static void texts_are_parsed_and_printed(void **state)
{
	static const char *const cases[] = {
		full,
		NAMED("[2, 2]", "[\"x\", \"y\"]", "[\"x\", null]"),
		NAMED("[]", "[]", "[]"),
		NAMED("[8]", "[\"\\u00e9\\\"\"]", "[[\"\\u00e9\\\"\"]]"),
		"{\"sharding_type\": \"NamedSharding\", \"shape\": [], \"axis_names\": [], "
		"\"partition_spec\": [], "
		"\"device_mesh\": {\"mesh\": {\"id\": 5}}}",
		"{\"sharding_type\": \"NamedSharding\", \"shape\": [1, 3, 1], \"axis_names\": "
		"[\"a\", \"b\", \"c\"], "
		"\"partition_spec\": [\"b\"], \"device_mesh\": {\"mesh\": [[[{\"id\": 1}], "
		"[{\"id\": 2}], [{\"id\": 0}]]]}}",
		"{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"cpu:0\"}",
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(sharding) struct sharding *s = NULL;
		auto_buf out = { 0 };

		if (sharding_parse(span_str(cases[i]), "x", &s) < 0)
			fail_msg("'%s': %s", cases[i], unit_last_note());
		assert_int_equal(sharding_print(s, &out), 0);
		assert_string_equal(buf_str(&out), cases[i]);
	}
}

static void old_and_foreign_texts_are_read(void **state)
{
	auto_of(sharding) struct sharding *s = NULL;

	assert_int_equal(
		sharding_parse(
			span_str(
				"{\"partition_spec\": [\"x\"], \"device_mesh\": null, \"axis_types\": null, "
				"\"memory_kind\": {}, "
				"\"axis_names\": [\"x\"], \"shape\": [4.0], \"sharding_type\": \"NamedSharding\"}"),
			"x", &s),
		0);
	assert_int_equal(s->n_devices, 4);
	assert_null(s->ids);
	assert_false(s->has_types);
	assert_int_equal(s->spec[0].n, 1);
}

static void malformed_texts_are_refused(void **state)
{
	static const struct {
		const char *text;
		int want;
		const char *why;
	} cases[] = {
		{ "", -EUCLEAN, "truncated" },
		{ "{}", -EUCLEAN, "sharding_type is missing" },
		{ "{\"sharding_type\": \"PositionalSharding\"}", -EOPNOTSUPP,
		  "'PositionalSharding' is not supported" },
		{ "{\"sharding_type\": \"GSPMDSharding\"}", -EOPNOTSUPP, "not supported" },
		{ "{\"sharding_type\": \"SingleDeviceSharding\"}", -EUCLEAN,
		  "device_str is missing" },
		{ "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": null}", -EUCLEAN,
		  "not a string" },
		{ "{\"sharding_type\": \"NamedSharding\", \"axis_names\": [], \"partition_spec\": "
		  "[]}",
		  -EUCLEAN, "is missing" },
		{ NAMED("[2]", "[]", "[]"), -EUCLEAN, "as many names" },
		{ NAMED("[2, 2]", "[\"x\", \"x\"]", "[]"), -EUCLEAN,
		  "two mesh axes have one name" },
		{ NAMED("[0]", "[\"x\"]", "[]"), -EUCLEAN, "not positive" },
		{ NAMED("[-2]", "[\"x\"]", "[]"), -EUCLEAN, "not positive" },
		{ NAMED("[2]", "[\"x\"]", "[\"y\"]"), -EUCLEAN, "names no axis" },
		{ NAMED("[2]", "[\"x\"]", "[\"x\", \"x\"]"), -EUCLEAN, "occurs twice" },
		{ NAMED("[2]", "[\"x\"]", "[[\"x\", \"x\"]]"), -EUCLEAN, "occurs twice" },
		{ NAMED("[2]", "[\"x\"]", "[5]"), -EUCLEAN, "not a string" },
		{ NAMED("[2]", "[\"x\"]", "\"x\""), -EUCLEAN, "not an array" },
		{ NAMED("[1048577]", "[\"x\"]", "[]"), -EFBIG, "more than 1048576 devices" },
		{ NAMED("[4294967296, 4294967296]", "[\"x\", \"y\"]", "[]"), -EFBIG, "devices" },
		{ "{\"sharding_type\": \"NamedSharding\", \"shape\": [2], \"axis_names\": "
		  "[\"x\"], \"partition_spec\": [], "
		  "\"device_mesh\": {\"mesh\": [{\"id\": 1}]}}",
		  -EUCLEAN, "not as many devices" },
		{ "{\"sharding_type\": \"NamedSharding\", \"shape\": [1], \"axis_names\": "
		  "[\"x\"], \"partition_spec\": [], "
		  "\"device_mesh\": {\"mesh\": [{\"di\": 1}]}}",
		  -EUCLEAN, "a device has no id" },
		{ "{\"sharding_type\": \"NamedSharding\", \"shape\": [1], \"axis_names\": "
		  "[\"x\"], \"partition_spec\": [], "
		  "\"axis_types\": [\"a\", \"b\"]}",
		  -EUCLEAN, "types" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct sharding *s = NULL;
		int r = sharding_parse(span_str(cases[i].text), "x", &s);

		if (r != cases[i].want || !strstr(err_text(r), cases[i].why))
			fail_msg("'%s': %d %s", cases[i].text, r, err_text(r));
		assert_null(s);
	}
}

/* "id/replica start:stop,...; ..." for all devices. */
static const char *boxes(const char *text, const uint64_t *shape, unsigned rank, struct buf *out)
{
	auto_of(sharding) struct sharding *s = NULL;

	assert_int_equal(sharding_parse(span_str(text), "x", &s), 0);
	assert_int_equal(sharding_check(s, shape, rank), 0);
	for (uint64_t i = 0; i < s->n_devices; i++) {
		struct sharding_box b;

		sharding_box(s, shape, rank, i, &b);
		buf_addf(out, "%s%d/%d", i ? "; " : "", (int)b.device, (int)b.replica);
		for (unsigned d = 0; d < rank; d++)
			buf_addf(out, "%c%d:%d", d ? ',' : ' ', (int)b.start[d], (int)b.stop[d]);
	}
	return buf_str(out);
}

static void boxes_of_devices(void **state)
{
	static const uint64_t shape[] = { 8, 4, 3 }, nothing[] = { 0, 4 };
	static const struct {
		const char *text;
		const uint64_t *shape;
		unsigned rank;
		const char *want;
	} cases[] = {
		{ full, shape, 3,
		  "0/0 0:2,0:4,0:3; 2048/0 4:6,0:4,0:3; 2/0 2:4,0:4,0:3; -3/0 "
		  "6:8,0:4,0:3" },
		{ NAMED("[2, 2]", "[\"x\", \"y\"]", "[\"y\"]"), shape, 2,
		  "0/0 0:4,0:4; 1/0 4:8,0:4; 2/1 0:4,0:4; 3/1 4:8,0:4" },
		{ NAMED("[2]", "[\"x\"]", "[]"), shape, 0, "0/0; 1/1" },
		{ NAMED("[2]", "[\"x\"]", "[\"x\"]"), nothing, 2, "0/0 0:0,0:4; 1/1 0:0,0:4" },
		{ "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"TFRT_CPU_12\"}",
		  shape, 1, "12/0 0:8" },
		{ "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": \"cpu\"}", shape,
		  1, "0/0 0:8" },
		{ "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": "
		  "\"99999999999999999999999999999999\"}",
		  shape, 0, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf out = { 0 };
		const char *got = boxes(cases[i].text, cases[i].shape, cases[i].rank, &out);

		if (cases[i].want)
			assert_string_equal(got, cases[i].want);
	}
}

static void arrays_that_do_not_fit_are_refused(void **state)
{
	static const uint64_t shape[] = { 6, 4 };
	auto_of(sharding) struct sharding *s = NULL;

	assert_int_equal(sharding_parse(span_str(NAMED("[4]", "[\"x\"]", "[\"x\"]")), "x", &s), 0);
	assert_int_equal(sharding_check(s, shape, 2), -EINVAL);
	assert_string_equal(err_text(-EINVAL), "axis 0 of 6 cannot be cut in 4 equal parts");
	assert_int_equal(sharding_check(s, shape, 0), -EINVAL);
	assert_string_equal(err_text(-EINVAL), "the partition spec has 1 axis, the array 0");
	assert_int_equal(sharding_check(s, shape + 1, 1), 0);
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-1x\\/nt\xff";
	size_t n = sizeof(full) - 1;
	char text[sizeof(full)];

	for (size_t at = 0; at < n; at++) {
		struct sharding *cut = NULL;

		assert_int_equal(sharding_parse(span_of(full, at), "x", &cut), -EUCLEAN);
		assert_null(cut);
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(sharding) struct sharding *s = NULL;
			auto_of(sharding) struct sharding *again = NULL;
			auto_buf a = { 0 }, b = { 0 };

			memcpy(text, full, n);
			text[at] = (char)bytes[k];
			if (sharding_parse(span_of(text, n), "x", &s) < 0)
				continue;
			assert_int_equal(sharding_print(s, &a), 0);
			assert_int_equal(sharding_parse(buf_span(&a), "x", &again), 0);
			assert_int_equal(sharding_print(again, &b), 0);
			assert_string_equal(buf_str(&a), buf_str(&b));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_parsed_and_printed),
		cmocka_unit_test(old_and_foreign_texts_are_read),
		cmocka_unit_test(malformed_texts_are_refused),
		cmocka_unit_test(boxes_of_devices),
		cmocka_unit_test(arrays_that_do_not_fit_are_refused),
		cmocka_unit_test(damage_is_refused_or_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
