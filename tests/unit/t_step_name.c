/*
 * t_step_name.c - names of steps, temporary directories and drafts.
 */
#include "tests/unit/unit.h"

#include <string.h>

#include "core/step/step_name.h"

static void temporary_names_are_told(void **state)
{
	static const struct {
		const char *name, *final;	/* final NULL: not temporary */
	} cases[] = {
		{ "10", NULL }, { "10.tmp", NULL }, { "", NULL }, { "10.orbax-checkpoint-tm",
		  NULL },
		{ "10.orbax-checkpoint-tmp", "10" }, { "10.orbax-checkpoint-tmp-3", "10" },
		{ "ckpt_10.orbax-checkpoint-tmp-1690000000123456", "ckpt_10" },
		{ ".orbax-checkpoint-tmp", "" }, { "a.orbax-checkpoint-tmp.orbax-checkpoint-tmp",
		  "a" },
		{ "foo.orbax-checkpoint-tmpbar", "foo" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span name = span_str(cases[i].name), final = step_name_final(name);

		assert_int_equal(step_name_is_tmp(name), cases[i].final != NULL);
		assert_true(span_eq(final, cases[i].final ? span_str(cases[i].final) : name));
	}
}

static void numbers_are_at_the_end(void **state)
{
	static const struct {
		const char *name;
		int is;
		const char *prefix;
		uint64_t number;
		bool orbax;
	} cases[] = {
		{ "0", 1, "", 0, true }, { "23", 1, "", 23, true }, { "000023", 1, "", 23, true },
		{ "ckpt_5", 1, "ckpt_", 5, true }, { "checkpoint3", 1, "checkpoint", 3, false },
		{ "a_1_2", 1, "a_1_", 2, true }, { "_7", 1, "_", 7, true },
		{ "-3", 1, "-", 3, false },
		{ "1.5", 1, "1.", 5, false }, { "12a", 0 }, { "", 0 }, { "metadata", 0 },
		{ "5_", 0 },
		{ "5.orbax-checkpoint-tmp", 0 }, { "5.orbax-checkpoint-tmp-7", 0 },
		{ "18446744073709551614", 1, "", UINT64_MAX - 1, true },
		{ "18446744073709551615", 1, "", UINT64_MAX, true },
		{ "99999999999999999999999", 1, "", UINT64_MAX, true },
		{ "\xd9\xa3", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct step_name n;

		assert_int_equal(step_name_parse(span_str(cases[i].name), &n), cases[i].is);
		if (!cases[i].is)
			continue;
		assert_true(span_eq(n.prefix, span_str(cases[i].prefix)));
		assert_true(n.number == cases[i].number);
		assert_int_equal(step_name_is_orbax(&n), cases[i].orbax);
	}
}

static void steps_are_ordered_by_number(void **state)
{
	/* Ascending. */
	static const char *const names[] = {
		"0", "00", "1", "ckpt_2", "3", "000010", "0010", "10", "x!10", "x10", "99",
		"18446744073709551615", "18446744073709551616", "099999999999999999999999",
		"99999999999999999999999",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		for (size_t k = 0; k < ARRAY_LEN(names); k++) {
			struct step_name a, b;
			int c;

			step_name_parse(span_str(names[i]), &a);
			step_name_parse(span_str(names[k]), &b);
			c = step_name_cmp(&a, &b);
			if ((c > 0) - (c < 0) != (i > k) - (i < k))
				fail_msg("'%s' and '%s': %d", names[i], names[k], c);
		}
}

static void listing_follows_orbax(void **state)
{
	static const struct {
		const char *prefix;
		unsigned width;
		const char *lists[6], *not[16];
	} cases[] = {
		{ "", 0, { "0", "1", "23", "1000000" },
		  { "01", "007", "000023", "0000000", "+3", "-1", "1.5", "12a", "23.tmp", "", " 1",
		  "\xd9\xa3",
		    "5.orbax-checkpoint-tmp" } },
		{ "", 6, { "000023", "1000000", "000000", "123456" }, { "0", "23", "0000000",
		  "01234567", "12345" } },
		{ "step_", 0, { "step_5", "step_1234567", "step_0" }, { "step5", "step-5",
		  "step_05", "5", "step_" } },
		{ "c_", 3, { "c_005", "c_1234" }, { "c_5", "c_0005", "005" } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct step_style style = { span_str(cases[i].prefix), cases[i].width };

		for (size_t k = 0; cases[i].lists[k]; k++)
			assert_true(step_style_lists(&style, span_str(cases[i].lists[k])));
		for (size_t k = 0; cases[i].not[k]; k++)
			if (step_style_lists(&style, span_str(cases[i].not[k])))
				fail_msg("'%s' is listed", cases[i].not[k]);
	}
}

static void a_new_step_is_named_like_the_others(void **state)
{
	static const struct {
		const char *names[5];
		const char *want[2];	/* of 7 and 1234567 */
	} cases[] = {
		{ { NULL }, { "7", "1234567" } },
		{ { "metadata", "x.orbax-checkpoint-tmp" }, { "7", "1234567" } },
		{ { "1", "20", "3" }, { "7", "1234567" } },
		{ { "000001", "000020" }, { "000007", "1234567" } },
		{ { "0" }, { "7", "1234567" } },
		{ { "100000", "000020" }, { "000007", "1234567" } },
		{ { "ckpt_1", "ckpt_20" }, { "ckpt_7", "ckpt_1234567" } },
		{ { "ckpt_001", "20" }, { "7", "1234567" } },
		{ { "a_001", "b_002" }, { "b_007", "b_1234567" } },
		{ { "checkpoint3" }, { "checkpoint7", "checkpoint1234567" } },
		{ { "99.orbax-checkpoint-tmp", "x_5" }, { "x_7", "x_1234567" } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span names[5];
		struct step_style style;
		size_t n = 0;

		for (; n < 5 && cases[i].names[n]; n++)
			names[n] = span_str(cases[i].names[n]);
		step_style_of(names, n, &style);
		for (int k = 0; k < 2; k++) {
			auto_buf name = { 0 };

			assert_int_equal(step_style_name(&style, k ? 1234567 : 7, &name), 0);
			assert_string_equal(buf_str(&name), cases[i].want[k]);
		}
	}
}

static void drafts_have_two_spellings(void **state)
{
	static const struct {
		const char *name, *final;	/* NULL: no draft */
	} cases[] = {
		{ "101.tmp", "101" }, { "ckpt_000101.tmp", "ckpt_000101" }, { "0.tmp", "0" },
		{ "101.orbax-checkpoint-tmp", "101" }, { "101.orbax-checkpoint-tmp-5", "101" },
		{ "_5.tmp", "_5" }, { "101", NULL }, { ".tmp", NULL }, { "abc.tmp", NULL },
		{ "12a.tmp", NULL },
		{ "101.tmp.tmp", NULL }, { "run5.tmp", NULL }, { "-5.tmp", NULL },
		{ "1.5.tmp", NULL },
		{ ".orbax-checkpoint-tmp", NULL }, { "latest.tmp", NULL },
		{ "101.tmp.orbax-checkpoint-tmp", NULL },
		{ "101.TMP", NULL }, { "101.tmp ", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span final = { 0 };
		int r = step_name_draft(span_str(cases[i].name), &final);

		assert_int_equal(r, cases[i].final ? 0 : -EINVAL);
		if (cases[i].final)
			assert_true(span_eq(final, span_str(cases[i].final)));
		else
			assert_null(final.p);
	}
}

static void final_names_are_checked(void **state)
{
	char long_name[260];
	auto_buf disk = { 0 };

	memset(long_name, 'a', sizeof(long_name));
	assert_int_equal(step_name_check(span_str("5")), 0);
	assert_int_equal(step_name_check(span_str("a/_5")), -EINVAL);
	assert_int_equal(step_name_check(span_of("a\0_5", 4)), -EINVAL);
	memcpy(long_name + 231, "_55", 3);
	assert_int_equal(step_name_check(span_of(long_name, 234)), 0);
	memcpy(long_name + 231, "_555", 4);
	assert_int_equal(step_name_check(span_of(long_name, 235)), -EINVAL);
	assert_int_equal(step_name_on_disk(span_str("ckpt_5"), &disk), 0);
	assert_string_equal(buf_str(&disk), "ckpt_5.orbax-checkpoint-tmp");
	assert_int_equal(sizeof(STEP_TMP) - 1, 21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(temporary_names_are_told),
		cmocka_unit_test(numbers_are_at_the_end),
		cmocka_unit_test(steps_are_ordered_by_number),
		cmocka_unit_test(listing_follows_orbax),
		cmocka_unit_test(a_new_step_is_named_like_the_others),
		cmocka_unit_test(drafts_have_two_spellings),
		cmocka_unit_test(final_names_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
