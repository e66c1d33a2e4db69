/*
 * t_glob.c - patterns over paths.
 */
#include "tests/unit/unit.h"

#include "core/base/glob.h"

static void patterns_match_whole_paths(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool match;
	} cases[] = {
		{ "params/**", "params/a/b", true },	  { "params/**", "params/a", true },
		{ "params/**", "params", true },	  { "params/**", "opt/params/a", false },
		{ "**/w", "a/b/w", true },		  { "**/w", "w", true },
		{ "**/w", "a/wx", false },		  { "w*", "a/b/w1", true },
		{ "w*", "a/x", false },			  { "a/*/c", "a/b/c", true },
		{ "a/*/c", "a/b/b/c", false },		  { "a/**/c", "a/b/b/c", true },
		{ "a/**/c", "a/c", true },		  { "a/**/c/**/e", "a/c/d/c/e", true },
		{ "**", "a/b", true },			  { "**", "", true },
		{ "a/[0-9]/k", "a/3/k", true },		  { "a/[0-9]/k", "a/x/k", false },
		{ "a/?", "a/bc", false },		  { "", "a", false },
		{ "**/b/**/d", "a/b/c/b/d", true },	  { "a/b", "a/b/c", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (glob_match(cases[i].pattern, cases[i].path) != cases[i].match)
			fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(patterns_match_whole_paths) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
