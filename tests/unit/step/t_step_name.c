/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_step_name.c - names of steps, temporary directories and drafts.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/step/step_name.h"

static void temporary_names_are_recognized(void **state)
{
	/* clang-format off */
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
		{ ".10.pytreefs-draft", "10" }, { ".ckpt_10.pytreefs-draft-begun-1-2", "ckpt_10" },
		/* The lock file, and names that are not ours. */
		{ ".pytreefs-draft", NULL }, { "10.pytreefs-draft", NULL }, { ".10.pytreefs", NULL },
		{ "..pytreefs-draft", NULL }, { ".", NULL },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span name = span_str(cases[i].name), final = step_name_final(name);

		assert_int_equal(step_name_is_tmp(name), cases[i].final != NULL);
		assert_true(span_eq(final, cases[i].final ? span_str(cases[i].final) : name));
	}
}

static void the_rest_follows_the_mark(void **state)
{
	static const char *const cases[][2] = {
		{ ".10.pytreefs-draft", "" },
		{ ".10.pytreefs-draft-begun-1-2", "-begun-1-2" },
		{ "10.orbax-checkpoint-tmp-deleted-3", "-deleted-3" },
		{ "10", "" },
	};
	auto_free char *made = step_name_temporary("ckpt_7", "-old");

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_true(span_eq(step_name_rest(span_str(cases[i][0])), span_str(cases[i][1])));
	assert_string_equal(made, ".ckpt_7.pytreefs-draft-old");
}

static void numbers_are_at_the_end(void **state)
{
	/* clang-format off */
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
		{ "1.5", 1, "", UINT64_MAX, false }, { "checkpoint_0.85", 1, "checkpoint_", UINT64_MAX, false },
		{ "1e-05", 1, "", UINT64_MAX, false }, { "checkpoint_1.5e+16", 1, "checkpoint_", UINT64_MAX, false },
		{ "a1e-05", 1, "a1e-", 5, false }, { "a_e-05", 1, "a_e-", 5, false }, { "a_1e05", 1, "a_1e", 5, false },
		{ "v1.5", 1, "v1.", 5, false }, { "a_1.2.3", 1, "a_1.2.", 3, false },
		{ ".5", 1, ".", 5, false }, { "a_.5", 1, "a_.", 5, false }, { "12a", 0 }, { "", 0 }, { "metadata", 0 },
		{ "5_", 0 },
		{ "5.orbax-checkpoint-tmp", 0 }, { "5.orbax-checkpoint-tmp-7", 0 },
		{ ".5.pytreefs-draft", 0 }, { ".5.pytreefs-draft-7", 0 },
		{ "18446744073709551614", 1, "", UINT64_MAX - 1, true },
		{ "18446744073709551615", 1, "", UINT64_MAX, true },
		{ "99999999999999999999999", 1, "", UINT64_MAX, true },
		{ "\xd9\xa3", 0 },
	};
	/* clang-format on */

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
	/* In ascending order. */
	static const char *const names[] = {
		"0",
		"00",
		"0e+99",
		"1e-99999999999999999999",
		"1.5e-07",
		"checkpoint_0.00001",
		"checkpoint_1e-05",
		"0.00002",
		"checkpoint_0.085",
		"checkpoint_0.85",
		"0.90",
		"checkpoint_0.9",
		"1",
		"ckpt_2",
		"3",
		"000010",
		"0010",
		"10",
		"x!10",
		"x10",
		"99",
		"1e+16",
		"18446744073709551615",
		"18446744073709551616",
		"099999999999999999999999",
		"99999999999999999999999",
		"1e+99999999999999999999",
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

static void drafts_have_two_spellings(void **state)
{
	/* clang-format off */
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
		{ ".101.pytreefs-draft", NULL }, { ".101.pytreefs-draft.tmp", NULL }, { "101.pytreefs-draft", NULL },
		{ "101.TMP", NULL }, { "101.tmp ", NULL },
	};
	/* clang-format on */
	struct span final = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r = step_name_draft(span_str(cases[i].name), &final);

		assert_int_equal(r, cases[i].final ? 0 : -EINVAL);
		if (cases[i].final)
			assert_true(span_eq(final, span_str(cases[i].final)));
	}
	/* A name that only a root with such steps takes, and a name that is not a draft's. */
	assert_int_equal(step_name_draft(span_str("run5.tmp"), &final), -EINVAL);
	assert_true(span_eq(final, span_str("run5")));
	assert_int_equal(step_name_draft(span_str("run5"), &final), -EINVAL);
	assert_int_equal(final.n, 0);
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
	assert_string_equal(buf_str(&disk), ".ckpt_5.pytreefs-draft");
	assert_int_equal(sizeof(STEP_TMP) - 1, 21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(temporary_names_are_recognized),
		cmocka_unit_test(the_rest_follows_the_mark),
		cmocka_unit_test(numbers_are_at_the_end),
		cmocka_unit_test(steps_are_ordered_by_number),
		cmocka_unit_test(drafts_have_two_spellings),
		cmocka_unit_test(final_names_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
