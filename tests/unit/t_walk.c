/*
 * t_walk.c - the patterns of --only.
 */
#include "tests/unit/unit.h"

#include "tools/walk.h"

static void patterns(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool matches;
	} cases[] = {
		{ "params/**", "params/a/b.npy", true },
		{ "params/**", "params", true },
		{ "params/**", "other/params/a", false },
		{ "params", "params/a/b.npy", true },
		{ "params", "paramsx/a", false },
		{ "**/kernel", "kernel", true },
		{ "**/kernel", "a/kernel", true },
		{ "**/kernel", "a/b/kernel", true },
		{ "**/kernel", "a/bkernel", false },
		{ "**kernel", "a/bkernel", true },
		{ "*/kernel", "a/kernel", true },
		{ "*/kernel", "a/b/kernel", false },
		{ "*/kernel", "kernel", false },
		{ "a/*/c", "a/b/c", true },
		{ "a/*/c", "a/b/d/c", false },
		{ "a/**/c", "a/c", true },
		{ "a/**/c", "a/b/d/c", true },
		{ "a/**/c", "a/b/d", false },
		{ "layer?", "layer3/w", true },
		{ "layer?", "layer30", false },
		{ "a?b", "a/b", false },
		{ "layer[0-3]", "layer2", true },
		{ "layer[0-3]", "layer4", false },
		{ "layer[!0-3]", "layer4", true },
		{ "layer[^4]", "layer4", false },
		{ "x[]]y", "x]y", true },
		{ "a[/]b", "a/b", false },
		{ "*", "a", true },
		{ "*", "a/b", true },
		{ "**", "a/b/c", true },
		{ "", "", true },
		{ "", "a", false },
		{ "a", "", false },
		{ "*.npy", "w.npy", true },
		{ "w*y", "w.npy", true },
		{ "w*yy", "w.npy", false },
		{ "[", "[", false },
		{ "[a", "a", true },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (walk_glob(cases[i].pattern, cases[i].path) != cases[i].matches)
			fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(patterns) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
