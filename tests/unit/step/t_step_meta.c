/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_step_meta.c - `_CHECKPOINT_METADATA` of every release, `_ROOT_METADATA`, and damaged ones.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/step/step_meta.h"

static const char composite[] =
	"{\"item_handlers\": {\"state\": \"a.PyTreeCheckpointHandler\", \"\\u00e9\": \"b.Json\"}, "
	"\"metrics\": {}, "
	"\"performance_metrics\": {}, \"init_timestamp_nsecs\": 1767225600000000001, "
	"\"commit_timestamp_nsecs\": null, \"custom_metadata\": {\"run\": \"r7\", \"big\": "
	"1000000000000000000000000}}";
static const char direct[] =
	"{\"item_handlers\": \"x.StandardCheckpointHandler\", \"metrics\": {\"loss\": NaN}, "
	"\"performance_metrics\": {\"a\": 0.5}, \"init_timestamp_nsecs\": null, "
	"\"commit_timestamp_nsecs\": -5, \"custom_metadata\": {}}";
static const char empty[] =
	"{\"item_handlers\": null, \"metrics\": {}, \"performance_metrics\": {}, "
	"\"init_timestamp_nsecs\": null, "
	"\"commit_timestamp_nsecs\": null, \"custom_metadata\": {}}";

static int parse(const char *text, struct step_meta **ret)
{
	return step_meta_parse(span_str(text), "'_CHECKPOINT_METADATA'", ret);
}

static void check(const char *text, const char *want)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_buf out = { 0 };

	if (parse(text, &m) < 0)
		fail_msg("'%s': %s", text, unit_last_note());
	assert_int_equal(step_meta_print(m, &out), 0);
	assert_string_equal(buf_str(&out), want);
}

static void files_are_parsed_and_printed(void **state)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	struct span handler;

	check(composite, composite);
	check(direct, direct);
	check(empty, empty);
	assert_int_equal(parse(composite, &m), 0);
	assert_int_equal(m->kind, STEP_ITEMS_MAP);
	assert_int_equal(m->n_items, 2);
	assert_true(m->has_init);
	assert_true(m->init_ns == 1767225600000000001);
	assert_false(m->has_commit);
	assert_int_equal(step_meta_handler(m, span_str("\xc3\xa9"), &handler), 1);
	assert_true(span_eq(handler, span_str("b.Json")));
	assert_int_equal(step_meta_handler(m, span_str("other"), &handler), 0);
}

static void members_are_optional(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{}", empty },
		{ "{\"item_handlers\": null, \"metrics\": null, \"performance_metrics\": null, "
		  "\"custom_metadata\": null}",
		  empty },
		/* The two times only: releases 0.5.11 to 0.10.3. */
		{ "{\"init_timestamp_nsecs\": 1, \"commit_timestamp_nsecs\": 2}",
		  "{\"item_handlers\": null, \"metrics\": {}, \"performance_metrics\": {}, "
		  "\"init_timestamp_nsecs\": 1, "
		  "\"commit_timestamp_nsecs\": 2, \"custom_metadata\": {}}" },
		/* Values that are false in Python. */
		{ "{\"metrics\": []}", empty },
		{ "{\"metrics\": 0.0}", empty },
		{ "{\"metrics\": false}", empty },
		/* Only floats are kept. */
		{ "{\"performance_metrics\": {\"i\": 1, \"f\": 1.0, \"s\": \"x\", \"n\": null, "
		  "\"e\": 1e3, \"x\": NaN}}",
		  "{\"item_handlers\": null, \"metrics\": {}, \"performance_metrics\": {\"f\": "
		  "1.0, \"e\": 1000.0, "
		  "\"x\": NaN}, \"init_timestamp_nsecs\": null, \"commit_timestamp_nsecs\": null, "
		  "\"custom_metadata\": {}}" },
		/* Unknown members are custom metadata: 0.11.2 wrote "custom". */
		{ "{\"custom\": {\"a\": 1}, \"more\": [2]}",
		  "{\"item_handlers\": null, \"metrics\": {}, \"performance_metrics\": {}, "
		  "\"init_timestamp_nsecs\": null, "
		  "\"commit_timestamp_nsecs\": null, \"custom_metadata\": {\"custom\": {\"a\": "
		  "1}, \"more\": [2]}}" },
		{ "{\"custom_metadata\": {}, \"x\": 1}",
		  "{\"item_handlers\": null, \"metrics\": {}, \"performance_metrics\": {}, "
		  "\"init_timestamp_nsecs\": null, "
		  "\"commit_timestamp_nsecs\": null, \"custom_metadata\": {\"x\": 1}}" },
		/* A handler that is not a string. */
		{ "{\"item_handlers\": {\"a\": 5}}",
		  "{\"item_handlers\": {\"a\": null}, \"metrics\": {}, \"performance_metrics\": "
		  "{}, "
		  "\"init_timestamp_nsecs\": null, \"commit_timestamp_nsecs\": null, "
		  "\"custom_metadata\": {}}" },
		{ "{\"item_handlers\": {}}",
		  "{\"item_handlers\": {}, \"metrics\": {}, \"performance_metrics\": {}, "
		  "\"init_timestamp_nsecs\": null, "
		  "\"commit_timestamp_nsecs\": null, \"custom_metadata\": {}}" },
		{ "{\"init_timestamp_nsecs\": 1, \"init_timestamp_nsecs\": null}", empty },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check(cases[i].text, cases[i].want);
}

static void a_file_that_is_not_json_counts_as_absent(void **state)
{
	static const char *const cases[] = {
		"", "  ", "{", "{\"a\": }", "\xff", "nonsense", "{} {}"
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(step_meta) struct step_meta *m = NULL;
		auto_buf out = { 0 };

		assert_int_equal(parse(cases[i], &m), 0);
		assert_true(m->absent);
		assert_int_equal(m->kind, STEP_ITEMS_NONE);
		step_meta_print(m, &out);
		assert_string_equal(buf_str(&out), empty);
	}
}

static void wrong_types_are_refused(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "[]", "not an object" },
		{ "5", "not an object" },
		{ "{\"item_handlers\": []}", "member 'item_handlers' is not an object or a "
					     "string" },
		{ "{\"metrics\": [1]}", "member 'metrics' is not an object" },
		{ "{\"metrics\": \"x\"}", "member 'metrics' is not an object" },
		{ "{\"performance_metrics\": []}", "member 'performance_metrics' is not an "
						   "object" },
		{ "{\"init_timestamp_nsecs\": 1.0}", "member 'init_timestamp_nsecs' is not an "
						     "integer" },
		{ "{\"commit_timestamp_nsecs\": \"1\"}",
		  "member 'commit_timestamp_nsecs' is not an integer" },
		{ "{\"commit_timestamp_nsecs\": 9223372036854775808}", "an integer of 64 bits" },
		{ "{\"custom_metadata\": []}", "member 'custom_metadata' is not an object" },
		{ "{\"custom_metadata\": {\"a\": 1}, \"more\": 2}",
		  "unknown members beside 'custom_metadata': \"more\": 2" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct step_meta *m = NULL;

		assert_int_equal(parse(cases[i].text, &m), -EUCLEAN);
		assert_null(m);
		if (!strstr(err_text(-EUCLEAN), cases[i].want))
			fail_msg("'%s' gave '%s'", cases[i].text, err_text(-EUCLEAN));
	}
}

static void a_new_file_is_written(void **state)
{
	const struct step_item item = { span_str("default"), span_str("h") };
	const struct step_meta m = {
		.kind = STEP_ITEMS_MAP, .items = &item, .n_items = 1, .has_init = true, .init_ns = 7
	};
	auto_buf out = { 0 };

	assert_int_equal(step_meta_print(&m, &out), 0);
	assert_string_equal(buf_str(&out),
			    "{\"item_handlers\": {\"default\": \"h\"}, \"metrics\": {}, "
			    "\"performance_metrics\": {}, "
			    "\"init_timestamp_nsecs\": 7, \"commit_timestamp_nsecs\": null, "
			    "\"custom_metadata\": {}}");
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-1.e\\nt\xff";
	size_t n = sizeof(composite) - 1;
	char text[sizeof(composite)];

	for (size_t at = 0; at <= n; at++)
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(step_meta) struct step_meta *m = NULL;
			auto_of(step_meta) struct step_meta *again = NULL;
			auto_buf a = { 0 }, b = { 0 };

			memcpy(text, composite, n);
			if (at < n)
				text[at] = (char)bytes[k];
			/* Also truncated, at one length for each byte tried. */
			if (step_meta_parse(span_of(text, k ? n : at), "x", &m) < 0)
				continue;
			assert_int_equal(step_meta_print(m, &a), 0);
			assert_int_equal(step_meta_parse(buf_span(&a), "x", &again), 0);
			assert_int_equal(step_meta_print(again, &b), 0);
			assert_string_equal(buf_str(&a), buf_str(&b));
		}
}

static void root_files(void **state)
{
	static const struct {
		const char *text, *want; /* NULL: refused */
	} cases[] = {
		{ "", "{\"internal_metadata\": {}, \"custom_metadata\": {}}" },
		{ "{}", "{\"internal_metadata\": {}, \"custom_metadata\": {}}" },
		{ "{\"internal_metadata\": {}, \"custom_metadata\": {\"experiment\": \"r7\", "
		  "\"seed\": 5}}",
		  "{\"internal_metadata\": {}, \"custom_metadata\": {\"experiment\": \"r7\", "
		  "\"seed\": 5}}" },
		{ "{\"experiment\":\"r7\", \"n\": null}",
		  "{\"internal_metadata\": {}, \"custom_metadata\": {\"experiment\": \"r7\", "
		  "\"n\": null}}" },
		{ "{\"internal_metadata\": {\"a\": 1}}",
		  "{\"internal_metadata\": {\"a\": 1}, \"custom_metadata\": {}}" },
		{ "{\"custom_metadata\": {\"a\": 1}, \"b\": 2}", NULL },
		{ "{\"custom_metadata\": 5}", NULL },
		{ "{", NULL },
		{ "[]", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(root_meta) struct root_meta *m = NULL;
		auto_buf out = { 0 };
		int r = root_meta_parse(span_str(cases[i].text), "x", &m);

		assert_int_equal(r, cases[i].want ? 0 : -EUCLEAN);
		if (r < 0)
			continue;
		assert_int_equal(root_meta_print(m, &out), 0);
		assert_string_equal(buf_str(&out), cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_parsed_and_printed),
		cmocka_unit_test(members_are_optional),
		cmocka_unit_test(a_file_that_is_not_json_counts_as_absent),
		cmocka_unit_test(wrong_types_are_refused),
		cmocka_unit_test(a_new_file_is_written),
		cmocka_unit_test(damage_is_refused_or_read),
		cmocka_unit_test(root_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
