/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_glob.c - patterns over paths: examples, comparison with a model that tries everything, and the
 * number of steps.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/glob.h"
#include "core/base/limits.h"

static void examples(void **state)
{
	/* clang-format off */
	static const struct {
		const char *pattern, *path;
		bool match;
	} cases[] = {
		{ "params/**", "params/a/b", true },	  { "params/**", "params/a", true },
		{ "params/**", "params", true },	  { "params/**", "opt/params/a", false },
		{ "**/w", "a/b/w", true },		  { "**/w", "w", true },
		{ "**/w", "a/wx", false },		  { "w*", "a/b/w1", true },
		{ "w*", "a/x", false },			  { "a/*/c", "a/b/c", true },
		{ "w*", "w1/x", false },		  { "w", "w/x", false },
		{ "a/*/c", "a/b/b/c", false },		  { "a/**/c", "a/b/b/c", true },
		{ "a/**/c", "a/c", true },		  { "a/**/c/**/e", "a/c/d/c/e", true },
		{ "**", "a/b", true },			  { "**", "", true },
		{ "a/[0-9]/k", "a/3/k", true },		  { "a/[0-9]/k", "a/x/k", false },
		{ "a/?", "a/bc", false },		  { "", "a", false },
		{ "**/b/**/d", "a/b/c/b/d", true },	  { "a/**kernel", "a/b/bkernel", true },
		/* When the last name of the pattern is plain, it may be that of a directory. */
		{ "a/b", "a/b/c", true },		  { "a/b", "a/bc", false },
		{ "a/*", "a/b/c", false },		  { "a/*", "a/b", true },
		{ "a/b?", "a/bx/c", false },		  { "**/b", "a/b/c/d", true },
		{ "a/", "a/b/c", true },		  { "a/", "ab", false },
		{ "*/b/", "a/b/c/d", true },		  { "a/**/", "a/b", true },
		{ "/w", "w", true },			  { "/w", "a/w", false },
		{ "/*", "a/b", false },			  { "/*", "a", true },
		{ "**/", "a/b", true },			  { "a/**/**", "a", true },
		/* Characters, sets, and brackets that are not sets. */
		{ "x?z", "x\xc3\xa9z", true },		  { "x??z", "x\xc3\xa9z", false },
		{ "x?z", "x\xffz", true },		  { "[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true },
		{ "layer[!0-3]", "layer4", true },	  { "layer[^4]", "layer4", false },
		{ "x[]]y", "x]y", true },		  { "a[/]b", "a/b", false },
		{ "[", "[", true },			  { "[a", "[a", true },
		{ "[a", "a", false },			  { "[!]", "[!]", true },
		{ "\\*", "*", true },			  { "\\*", "a", false },
		{ "[\\]a]", "]", true },		  { "a\\", "a\\", true },
		{ "[a-]", "-", true },			  { "w[[]0:2]", "w[0:2]", true },
		{ "a?b", "a/b", false },		  { "w*yy", "w.npy", false },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (glob_match(cases[i].pattern, span_str(cases[i].path)) != cases[i].match)
			fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
}

static void leaves_are_selected_with_or_without_the_item(void **state)
{
	/* clang-format off */
	static const struct {
		const char *pattern;
		unsigned skip;
		bool chosen;
	} cases[] = {
		{ "state/params/w", 1, true },	{ "params/w", 1, true },	{ "params/w.npy", 1, true },
		{ "params/w.*", 1, true },	{ "params/w.npz", 1, false },	{ "w", 1, true },
		{ "w.npy", 1, true },		{ "/w", 1, false },		{ "/w", 2, true },
		{ "params/w", 0, false },	{ "params", 1, false },		{ "params/", 1, true },
		{ "state", 1, false },		{ "state/", 1, true },		{ "params/w", 9, true },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (glob_selects(cases[i].pattern, span_str("state/params/w.npy"), cases[i].skip,
				 4) != cases[i].chosen)
			fail_msg("'%s', %u", cases[i].pattern, cases[i].skip);
}

/* ---- the model: every way is tried, by the words of glob.h ---- */

static bool tail_is_empty(const char *p)
{
	while (!strncmp(p, "/**", 3) && (p[3] == '/' || !p[3]))
		p += 3;
	return !*p || !strcmp(p, "/");
}

static bool try_all(const char *p, const char *s, bool at_name)
{
	if (!*p)
		return !*s;
	if (*p == '/' && tail_is_empty(p) && !*s)
		return true;
	if (*p == '/' && tail_is_empty(p))
		return *s == '/';
	if (*p == '*') {
		size_t n = strspn(p, "*");
		bool is_name = n == 2 && at_name && p[2] == '/';

		if (is_name && try_all(p + 3, s, true))
			return true;
		if (is_name && !p[3])
			return true;
		for (size_t i = 0;; i++) {
			if (is_name ? i > 0 && s[i - 1] == '/' && try_all(p + 3, s + i, true) :
				      try_all(p + n, s + i, false))
				return true;
			if (!s[i] || (n == 1 && s[i] == '/'))
				return false;
		}
	}
	if (*p == '?')
		return *s && *s != '/' && try_all(p + 1, s + 1, false);
	return *p == *s && try_all(p + 1, s + 1, *p == '/');
}

/* For patterns of plain characters, stars and slashes. */
static bool model(const char *pattern, const char *path)
{
	const char *last = strrchr(pattern, '/');
	char below[64];

	if (!last) {
		const char *slash = strrchr(path, '/');

		return try_all(pattern, slash ? slash + 1 : path, true);
	}
	snprintf(below, sizeof(below), "%s/", pattern);
	pattern += pattern[0] == '/' && pattern[1];
	if (try_all(pattern, path, true))
		return true;
	return last[1] && !strpbrk(last, "*?") && try_all(below + (below[0] == '/'), path, true);
}

static size_t rng_next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(*seed >> 33);
}

static void random_word(uint64_t *seed, const char *from, size_t max, char *ret)
{
	size_t n = rng_next(seed) % (max + 1);

	for (size_t i = 0; i < n; i++)
		ret[i] = from[rng_next(seed) % strlen(from)];
	ret[n] = '\0';
}

static void the_model_agrees(void **state)
{
	uint64_t seed = 1;
	unsigned matched = 0;

	for (unsigned i = 0; i < 400000; i++) {
		char pattern[16], path[16];

		random_word(&seed, "ab*/*?/", 9, pattern);
		random_word(&seed, "ab/a", 9, path);
		if (glob_match(pattern, span_str(path)) != model(pattern, path))
			fail_msg("'%s' and '%s': %d", pattern, path, !model(pattern, path));
		matched += model(pattern, path);
	}
	assert_true(matched > 10000);
}

/* ---- the number of steps ---- */

static void no_pattern_takes_long(void **state)
{
	static const char *const patterns[] = { "**a**a**a**a**a**a**a**a**b",
						"*a*a*a*a*a*a*a*a*b/", "**/a/**/a/**/a/**/a/**/b",
						"?*?*?*?*?*?*?*?*b/**x", "[a-b]*[a-b]*[!b]**c/d" };
	char path[2001];

	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < sizeof(path) - 1; i++)
			path[i] = k && i % 2 ? '/' : 'a';
		path[sizeof(path) - 1] = '\0';
		for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
			unsigned long long steps = 0;

			assert_false(glob_match_counted(patterns[i], span_str(path), &steps));
			assert_true(steps <= (strlen(patterns[i]) + 4) * sizeof(path));
		}
	}
}

static void the_longest_pattern(void **state)
{
	static char pattern[LIMIT_PATH_BYTES + 2], path[LIMIT_PATH_BYTES + 1];
	unsigned long long steps = 0;

	memset(path, 'a', LIMIT_PATH_BYTES);
	for (size_t i = 0; i < LIMIT_PATH_BYTES; i++)
		pattern[i] = i % 2 ? '*' : '?';
	pattern[LIMIT_PATH_BYTES - 1] = '/';
	assert_true(glob_match_counted(pattern, span_str(path), &steps));
	assert_true(steps <= (sizeof(pattern) + 4) * sizeof(path));
	memset(pattern, 'a', LIMIT_PATH_BYTES);
	assert_true(glob_match(pattern, span_str(path)));
	pattern[LIMIT_PATH_BYTES] = '*';
	assert_false(glob_match(pattern, span_str(path)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples),
		cmocka_unit_test(leaves_are_selected_with_or_without_the_item),
		cmocka_unit_test(the_model_agrees),
		cmocka_unit_test(no_pattern_takes_long),
		cmocka_unit_test(the_longest_pattern),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
