/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_nearest.c - the word that a mistyped one was meant to be.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/nearest.h"

static void words_are_found(void **state)
{
	static const char *const words[] = { "mount", "umount", "ls",     "tree",
					     "info",  "stats",  "verify", "convert" };
	static const struct {
		const char *typed, *meant;
	} cases[] = {
		{ "stat", "stats" },      { "sttas", "stats" },
		{ "unmount", "umount" },  { "verfiy", "verify" },
		{ "convret", "convert" }, { "tre", "tree" },
		{ "moun", "mount" },      { "l", "ls" },
		{ "frobnicate", NULL },   { "", NULL },
		{ "ls", "ls" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nearest n;

		nearest_begin(&n, cases[i].typed);
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			nearest_try(&n, words[k]);
		if (!n.best != !cases[i].meant || (n.best && strcmp(n.best, cases[i].meant)))
			fail_msg("'%s': %s", cases[i].typed, n.best ? n.best : "nothing");
	}
}

static void long_words_are_near_to_nothing(void **state)
{
	char word[100];
	struct nearest n;

	memset(word, 'a', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	nearest_begin(&n, word);
	nearest_try(&n, word);
	assert_null(n.best);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_found),
		cmocka_unit_test(long_words_are_near_to_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
