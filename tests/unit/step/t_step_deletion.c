/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_step_deletion.c - `_CHECKPOINT_DELETION`: parsing, printing, and the
 * records that are refused.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/step/step_deletion.h"

#define ID "0123456789abcdef0123456789abcdef"

static const char record[] =
	"{\"checkpointable_name\": \"c\", \"destination\": null, \"operation_id\": \"" ID "\", "
	"\"original_metadata\": {\"\": 1, \"item_handlers\": {\"a\": \"h\", \"c\": \"g\"}, "
	"\"metrics\": {}}, "
	"\"updated_metadata\": {\"\": 1, \"item_handlers\": {\"a\": \"h\"}, \"metrics\": {}}}";

static void records_are_parsed_and_printed(void **state)
{
	auto_of(step_deletion) struct step_deletion *d = NULL;
	auto_buf out = { 0 };

	assert_int_equal(step_deletion_parse(span_str(record), "x", &d), 0);
	assert_true(span_eq(d->item, span_str("c")));
	assert_true(span_eq(d->operation, span_str(ID)));
	assert_null(d->destination.p);
	assert_int_equal(step_deletion_print(d, &out), 0);
	assert_string_equal(buf_str(&out), record);
}

static void the_step_must_match_one_of_both_documents(void **state)
{
	auto_of(step_deletion) struct step_deletion *d = NULL;

	assert_int_equal(step_deletion_parse(span_str(record), "x", &d), 0);
	assert_int_equal(
		step_deletion_matches(
			d,
			span_str(
				"{\"metrics\":{},\"item_handlers\":{\"c\":\"g\",\"a\":\"h\"},\"\":1}")),
		1);
	assert_int_equal(
		step_deletion_matches(
			d, span_str("{\"metrics\":{},\"item_handlers\":{\"a\":\"h\"},\"\":1}")),
		1);
	assert_int_equal(step_deletion_matches(
				 d, span_str("{\"metrics\":{},\"item_handlers\":{\"a\":\"h\"}}")),
			 0);
	assert_int_equal(step_deletion_matches(d, span_str("{}")), 0);
	assert_int_equal(step_deletion_matches(d, span_str("{")), -EUCLEAN);
}

static void malformed_records_are_refused(void **state)
{
	/* A piece of the record, its replacement, and the expected error. */
	static const struct {
		const char *from, *to, *want;
	} cases[] = {
		{ "{\"checkpointable_name\"", "[\"checkpointable_name\"", "not JSON" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": \"b\"",
		  "has no item 'b'" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": 5", "not a string" },
		{ "\"checkpointable_name\": \"c\"", "\"x\": \"c\"", "'' is not a name of an item" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": \"metrics\"",
		  "'metrics' is not a name" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": \"..\"",
		  "'..' is not a name" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": \"a/b\"",
		  "'a/b' is not a name" },
		{ "\"checkpointable_name\": \"c\"", "\"checkpointable_name\": \"a\\\\b\"",
		  "is not a name" },
		{ "\"destination\": null", "\"destination\": 5", "'destination' is not a string" },
		{ "\"operation_id\": \"0", "\"operation_id\": \"", "32 hex digits" },
		{ "\"operation_id\": \"0", "\"operation_id\": \"A", "32 hex digits" },
		{ "\"operation_id\"", "\"x\"", "32 hex digits" },
		{ "\"original_metadata\": {", "\"x\": {", "is missing" },
		{ "\"updated_metadata\": {", "\"x\": {", "is missing" },
		{ "\"updated_metadata\": {\"\": 1", "\"updated_metadata\": {\"\": 2",
		  "is not the original without 'c'" },
		{ "\"updated_metadata\": {", "\"updated_metadata\": {\"more\": 1, ",
		  "is not the original without 'c'" },
		{ "\"original_metadata\": {", "\"original_metadata\": [], \"x\": {",
		  "not an object" },
		{ "{\"a\": \"h\", \"c\": \"g\"}", "[]", "has no item 'c'" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *at = strstr(record, cases[i].from);
		struct step_deletion *d = NULL;
		auto_buf text = { 0 };

		assert_non_null(at);
		buf_add(&text, record, (size_t)(at - record));
		buf_add_str(&text, cases[i].to);
		buf_add_str(&text, at + strlen(cases[i].from));
		if (step_deletion_parse(buf_span(&text), "x", &d) != -EUCLEAN ||
		    !strstr(err_text(-EUCLEAN), cases[i].want))
			fail_msg("case %zu: %s", i, unit_last_note());
		assert_null(d);
	}
}

static void truncated_records_are_refused(void **state)
{
	for (size_t n = 0; n < sizeof(record) - 1; n++) {
		struct step_deletion *d = NULL;

		assert_int_equal(step_deletion_parse(span_of(record, n), "x", &d), -EUCLEAN);
		assert_null(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_are_parsed_and_printed),
		cmocka_unit_test(the_step_must_match_one_of_both_documents),
		cmocka_unit_test(malformed_records_are_refused),
		cmocka_unit_test(truncated_records_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
