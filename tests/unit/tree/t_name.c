/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_name.c - key <-> file name: the rules of README.md, section 1, and that the mapping is
 * one-to-one in both directions, for keys made of everything that a rule examines.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/digest.h"
#include "core/tree/name.h"

static void names_follow_the_table(void **state)
{
	/* clang-format off */
	static const struct {
		const char *key;
		enum name_use use;
		enum name_ext ext;
		unsigned reserved;
		const char *want;
	} cases[] = {
		{ "w", NAME_LEAF, NAME_EXT_NPY, false, "w.npy" },
		{ "a/b", NAME_LEAF, NAME_EXT_NPY, false, "a%2Fb.npy" },
		{ "100%", NAME_LEAF, NAME_EXT_JSON, false, "100%25.json" },
		{ "x[0]@y", NAME_LEAF, NAME_EXT_NPY, false, "x%5B0%5D%40y.npy" },
		{ "", NAME_LEAF, NAME_EXT_NPY, false, "%.npy" },
		{ "", NAME_CONTAINER, NAME_EXT_NONE, true, "%" },
		{ ".", NAME_CONTAINER, NAME_EXT_NONE, false, "%2E" },
		{ "..", NAME_CONTAINER, NAME_EXT_NONE, false, "%2E%2E" },
		{ "..", NAME_LEAF, NAME_EXT_TXT, false, "%2E%2E.txt" },
		{ "...", NAME_CONTAINER, NAME_EXT_NONE, false, "..." },
		{ "w.npy", NAME_LEAF, NAME_EXT_NPY, false, "w.npy.npy" },
		{ "w.npy", NAME_CONTAINER, NAME_EXT_NONE, false, "w%2Enpy" },
		{ ".npy", NAME_CONTAINER, NAME_EXT_NONE, false, "%2Enpy" },
		{ "m.safetensors", NAME_CONTAINER, NAME_EXT_NONE, false, "m%2Esafetensors" },
		{ "a.b.html", NAME_CONTAINER, NAME_EXT_NONE, false, "a.b%2Ehtml" },
		{ "w.npz", NAME_CONTAINER, NAME_EXT_NONE, false, "w.npz" },
		{ "opaque.txt", NAME_LEAF, NAME_EXT_NONE, false, "opaque%2Etxt" },
		{ "_METADATA", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_METADATA, "%5FMETADATA" },
		{ "_METADATA", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_STEP | NAME_OURS_CONTROL, "_METADATA" },
		{ "_METADATA", NAME_LEAF, NAME_EXT_NPY, NAME_OURS_ALL, "_METADATA.npy" },
		{ "_CHECKPOINT_METADATA", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_METADATA | NAME_OURS_STEP,
		  "%5FCHECKPOINT_METADATA" },
		{ "_CHECKPOINT_METADATA", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_METADATA, "_CHECKPOINT_METADATA" },
		{ ".pytreefs", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_CONTROL, "%2Epytreefs" },
		{ ".pytreefs", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_METADATA | NAME_OURS_STEP, ".pytreefs" },
		{ "_METADATA", NAME_LEAF, NAME_EXT_NONE, NAME_OURS_METADATA, "%5FMETADATA" },
		{ "latest", NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_ALL, "latest" },
		{ "\xc3\xa9 \n", NAME_LEAF, NAME_EXT_NULL, false, "\xc3\xa9 \n.null" },
		{ "x~0123456789abcdef", NAME_LEAF, NAME_EXT_NPY, false,
		  "x%7E0123456789abcdef.npy" },
		{ "x~0123456789ABCDEF", NAME_LEAF, NAME_EXT_NPY, false, "x~0123456789ABCDEF.npy" },
		{ "x~0123456789abcde", NAME_LEAF, NAME_EXT_NPY, false, "x~0123456789abcde.npy" },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf name = { 0 }, key = { 0 };
		struct span stem;

		assert_int_equal(name_escape(span_str(cases[i].key), cases[i].use, cases[i].ext,
					     cases[i].reserved, &name),
				 0);
		assert_string_equal(buf_str(&name), cases[i].want);
		stem = span_of(name.p, name.n - strlen(name_ext_text(cases[i].ext)));
		assert_int_equal(name_unescape(stem, cases[i].ext ? NAME_LEAF : NAME_CONTAINER,
					       cases[i].reserved, &key),
				 0);
		assert_string_equal(buf_str(&key), cases[i].key);
	}
}

static void a_nul_in_a_key_is_escaped(void **state)
{
	auto_buf name = { 0 }, key = { 0 };

	assert_int_equal(name_escape(span_of("a\0b", 3), NAME_LEAF, NAME_EXT_NPY, false, &name), 0);
	assert_string_equal(buf_str(&name), "a%00b.npy");
	assert_int_equal(name_unescape(span_str("a%00b"), NAME_LEAF, false, &key), 0);
	assert_int_equal(key.n, 3);
	assert_memory_equal(key.p, "a\0b", 3);
}

static void other_spellings_are_refused(void **state)
{
	/* clang-format off */
	static const struct {
		const char *stem;
		enum name_use use;
		unsigned reserved;
	} cases[] = {
		{ "", NAME_LEAF }, { "a%", NAME_LEAF }, { "%a", NAME_LEAF }, { "%%", NAME_LEAF },
		{ "a%2", NAME_LEAF }, { "a%2f", NAME_LEAF }, { "a%2G", NAME_LEAF },
		{ "a%41", NAME_LEAF }, { "%2E%2e", NAME_LEAF }, { "..", NAME_LEAF },
		{ ".", NAME_LEAF },
		{ "%2E.", NAME_LEAF }, { "a/b", NAME_LEAF }, { "a[0]", NAME_LEAF },
		{ "a]", NAME_LEAF },
		{ "a@b", NAME_LEAF }, { "w%2Enpy", NAME_LEAF }, { "w.npy", NAME_CONTAINER },
		{ "w%2Enpz", NAME_CONTAINER }, { "_METADATA", NAME_CONTAINER, NAME_OURS_METADATA },
		{ "%6Catest", NAME_CONTAINER }, { "%6Catest", NAME_CONTAINER, NAME_OURS_ALL },
		{ "_%4DETADATA", NAME_CONTAINER }, { "%5FMETADATA", NAME_LEAF },
		{ "a%7Eb", NAME_LEAF }, { "x~0123456789abcdef", NAME_LEAF }, { "%25%", NAME_LEAF },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf key = { 0 };

		if (name_unescape(span_str(cases[i].stem), cases[i].use, cases[i].reserved, &key) !=
		    -EINVAL)
			fail_msg("'%s' was taken", cases[i].stem);
		assert_int_equal(key.n, 0);
	}
}

/*
 * A copy has the spelling of its origin: every key, copied from every place to every other place.
 */
static void names_can_be_copied_between_places(void **state)
{
	static const char *const keys[] = { "_METADATA", "_CHECKPOINT_METADATA",
					    ".pytreefs", "latest",
					    "w",         "x~0123456789abcdef" };

	for (size_t k = 0; k < ARRAY_LEN(keys); k++)
		for (unsigned from = 0; from <= NAME_OURS_ALL; from++)
			for (unsigned to = 0; to <= NAME_OURS_ALL; to++) {
				auto_buf name = { 0 }, here = { 0 }, key = { 0 };
				int r;

				name_escape(span_str(keys[k]), NAME_CONTAINER, NAME_EXT_NONE, from,
					    &name);
				name_escape(span_str(keys[k]), NAME_CONTAINER, NAME_EXT_NONE, to,
					    &here);
				r = name_unescape(buf_span(&name), NAME_CONTAINER, to, &key);
				/* The unescaped name of ours is refused where that name is ours. */
				if (span_eq(buf_span(&name), span_str(keys[k])) &&
				    !span_eq(buf_span(&here), span_str(keys[k]))) {
					assert_int_equal(r, -EINVAL);
					continue;
				}
				assert_int_equal(r, 0);
				assert_string_equal(buf_str(&key), keys[k]);
			}
}

static void long_names_are_shortened(void **state)
{
	auto_buf key = { 0 }, name = { 0 }, want = { 0 };
	uint8_t digest[32];

	for (int i = 0; i < 251; i++)
		buf_add_byte(&key, (uint8_t)('a' + i % 26));
	assert_int_equal(name_escape(buf_span(&key), NAME_LEAF, NAME_EXT_NPY, false, &name), 0);
	assert_int_equal(name.n, 255);
	assert_false(name_is_hashed(span_of(name.p, name.n - 4)));
	/* With one more byte it does not fit; with a longer extension it did not fit before. */
	name.n = 0;
	assert_int_equal(name_escape(buf_span(&key), NAME_LEAF, NAME_EXT_JSON, false, &name), 0);
	assert_true(name_is_hashed(span_of(name.p, name.n - 5)));
	buf_add_byte(&key, 'x');
	name.n = 0;
	assert_int_equal(name_escape(buf_span(&key), NAME_LEAF, NAME_EXT_NPY, false, &name), 0);
	buf_add(&want, key.p, LIMIT_NAME_KEEP);
	buf_add_byte(&want, '~');
	sha256(buf_span(&key), digest);
	for (int i = 0; i < 8; i++)
		buf_addf(&want, "%02x", digest[i]);
	buf_add_str(&want, ".npy");
	assert_string_equal(buf_str(&name), buf_str(&want));
	assert_int_equal(name_unescape(span_of(name.p, name.n - 4), NAME_LEAF, false, &key),
			 -EINVAL);
}

static void shortening_splits_no_character_and_no_escape(void **state)
{
	static const struct {
		const char *unit;
		size_t pre, keep;
	} cases[] = {
		{ "\xe2\x82\xac", 0, 198 },
		{ "\xe2\x82\xac", 1, 199 },
		{ "\xe2\x82\xac", 2, 200 },
		{ "\xf0\x9f\x98\x80", 0, 200 },
		{ "\xf0\x9f\x98\x80", 1, 197 },
		{ "/", 0, 198 },
		{ "/", 1, 199 },
		{ "/", 2, 200 },
		{ "\xff", 0, 200 },
		{ "\xe2\x82", 0, 200 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf key = { 0 }, name = { 0 };

		for (size_t k = 0; k < cases[i].pre; k++)
			buf_add_byte(&key, 'p');
		while (key.n < 300)
			buf_add_str(&key, cases[i].unit);
		assert_int_equal(name_escape(buf_span(&key), NAME_CONTAINER, NAME_EXT_NONE, false,
					     &name),
				 0);
		assert_int_equal(name.n, cases[i].keep + 17);
		assert_int_equal(name.p[cases[i].keep], '~');
	}
}

static void a_hashed_name_belongs_to_one_key(void **state)
{
	auto_buf a = { 0 }, b = { 0 }, c = { 0 }, natural = { 0 }, key = { 0 };

	assert_int_equal(name_escape_hashed(span_str("a"), NAME_LEAF, NAME_EXT_NPY, 0, &a), 0);
	assert_string_equal(buf_str(&a), "a~ca978112ca1bbdca.npy");
	assert_int_equal(name_escape_hashed(span_str("a"), NAME_LEAF, NAME_EXT_NPY, 1, &b), 0);
	assert_int_equal(name_escape_hashed(span_str(""), NAME_CONTAINER, NAME_EXT_NONE, 0, &c), 0);
	assert_string_equal(buf_str(&c), "%~e3b0c44298fc1c14");
	assert_false(span_eq(buf_span(&a), buf_span(&b)));
	/* The key that looks like the hashed name. */
	assert_int_equal(name_escape(span_str("a~ca978112ca1bbdca"), NAME_LEAF, NAME_EXT_NPY, false,
				     &natural),
			 0);
	assert_false(span_eq(buf_span(&a), buf_span(&natural)));
	assert_int_equal(name_unescape(span_of(natural.p, natural.n - 4), NAME_LEAF, false, &key),
			 0);
	assert_string_equal(buf_str(&key), "a~ca978112ca1bbdca");
}

/* ---- properties ---- */

static unsigned keys_tried(void)
{
	return getenv("TEST_LONG") ? 300000 : 60000;
}

static uint64_t seed = 88172645463325252u;

static unsigned rnd(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 11) % n;
}

/* Make a key of pieces that rules examine. */
static void random_key(struct buf *key)
{
	static const char *const pieces[] = {
		"%",
		"[",
		"]",
		"@",
		"/",
		".",
		"..",
		"~",
		"%2E",
		"%7E",
		"a",
		"Z",
		"0123456789abcdef",
		"~0123456789abcdef",
		".npy",
		".json",
		".bin",
		".txt",
		".null",
		".html",
		".safetensors",
		"_METADATA",
		"_CHECKPOINT_METADATA",
		".pytreefs",
		"latest",
		"\xc3\xa9",
		"\xe2\x82\xac",
		"\xff",
		"\xe2\x82",
		"\n",
		" ",
		"%5FMETADATA",
	};
	unsigned n = rnd(10) ? rnd(5) : rnd(80);

	key->n = 0;
	for (unsigned i = 0; i < n; i++) {
		const char *piece = pieces[rnd(ARRAY_LEN(pieces))];

		if (rnd(8) == 0)
			buf_add_byte(key, (uint8_t)rnd(256));
		else
			buf_add_str(key, piece);
	}
	/* Lengths around the limit. */
	if (rnd(6) == 0)
		for (size_t want = 240 + rnd(30); key->n < want;)
			buf_add_byte(key, (uint8_t)('a' + rnd(3)));
}

static bool is_safe(struct span name)
{
	for (size_t i = 0; i < name.n; i++)
		if (name.p[i] == '\0' || strchr("/[]@", name.p[i]))
			return false;
	return name.n > 0 && name.n <= LIMIT_NAME_BYTES && !span_eq(name, span_str(".")) &&
	       !span_eq(name, span_str(".."));
}

static void every_key_is_decoded_from_its_name(void **state)
{
	auto_buf key = { 0 };

	for (unsigned i = 0, n = keys_tried(); i < n; i++) {
		auto_buf name = { 0 }, back = { 0 };
		enum name_ext ext = (enum name_ext)rnd(NAME_EXT_PLUGIN);
		enum name_use use = ext ? NAME_LEAF : NAME_CONTAINER;
		unsigned ours = (unsigned)rnd(NAME_OURS_ALL + 1);
		struct span stem;

		random_key(&key);
		assert_int_equal(name_escape(buf_span(&key), use, ext, ours, &name), 0);
		assert_true(is_safe(buf_span(&name)));
		/* The extension that is found is the one that was appended. */
		assert_int_equal(name_ext_of(buf_span(&name)), ext);
		stem = span_of(name.p, name.n - strlen(name_ext_text(ext)));
		if (name_is_hashed(stem)) {
			assert_int_equal(name_unescape(stem, use, ours, &back), -EINVAL);
			continue;
		}
		if (name_unescape(stem, use, ours, &back) ||
		    !span_eq(buf_span(&key), buf_span(&back)))
			fail_msg("key of '%.*s' is lost: %s", SPAN_ARG(stem), err_text(-EINVAL));
	}
}

static void every_accepted_name_is_the_spelling_of_its_key(void **state)
{
	auto_buf stem = { 0 };
	unsigned taken = 0;

	for (unsigned i = 0, n = keys_tried(); i < n; i++) {
		auto_buf key = { 0 }, again = { 0 };
		enum name_use use = rnd(2) ? NAME_LEAF : NAME_CONTAINER;
		enum name_ext ext = use == NAME_LEAF ? NAME_EXT_NPY : NAME_EXT_NONE;
		unsigned ours = (unsigned)rnd(NAME_OURS_ALL + 1);

		random_key(&stem);
		if (name_unescape(buf_span(&stem), use, ours, &key) < 0)
			continue;
		taken++;
		if (stem.n + 4 > LIMIT_NAME_BYTES)
			continue;
		assert_int_equal(name_escape(buf_span(&key), use, ext, ours, &again), 0);
		again.n -= strlen(name_ext_text(ext));
		if (span_eq(buf_span(&again), buf_span(&stem)))
			continue;
		/* The exception: the spelling of a place where the name is ours. */
		assert_int_equal(stem.p[0], '%');
		buf_clear(&again);
		assert_int_equal(name_escape(buf_span(&key), use, ext, NAME_OURS_ALL, &again), 0);
		assert_true(span_eq(buf_span(&again), buf_span(&stem)));
	}
	assert_true(taken > keys_tried() / 30);
}

struct named {
	char name[300], key[300];
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/*
 * Make a key of head, the v-th text over an alphabet (shorter texts first) and tail, and its name.
 */
static void make_named(struct named *x, const char *head, unsigned v, const char *tail)
{
	static const char alphabet[] = "%2E.~a";
	const unsigned n = sizeof(alphabet) - 1;
	auto_buf key = { 0 }, name = { 0 };

	buf_add_str(&key, head);
	for (; v; v = (v - 1) / n)
		buf_add_byte(&key, (uint8_t)alphabet[(v - 1) % n]);
	buf_add_str(&key, tail);
	name_escape(buf_span(&key), NAME_CONTAINER, NAME_EXT_NONE, NAME_OURS_ALL, &name);
	snprintf(x->name, sizeof(x->name), "%s", buf_str(&name));
	snprintf(x->key, sizeof(x->key), "%s", buf_str(&key));
}

/* All texts of up to five letters, with heads and tails: no two keys have the same name. */
static void no_two_keys_have_one_name(void **state)
{
	const unsigned n_texts = 1 + 6 + 36 + 216 + 1296 + 7776;
	char long_head[231] = "";
	static const char *const tails[] = { "", ".npy", "~0123456789abcdef", ".pytreefs",
					     "latest" };
	const char *const heads[] = { "", long_head };
	size_t n = 0, cap = 120000;
	auto_free struct named *all = calloc(cap, sizeof(*all));

	memset(long_head, 'h', sizeof(long_head) - 1);
	for (size_t h = 0; h < ARRAY_LEN(heads); h++)
		for (size_t t = 0; t < ARRAY_LEN(tails); t++)
			for (unsigned v = 0; v < n_texts && n < cap; v++)
				make_named(&all[n++], heads[h], v, tails[t]);
	assert_true(n > 90000 && n < cap);
	qsort(all, n, sizeof(*all), by_name);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(all[i - 1].name, all[i].name) && strcmp(all[i - 1].key, all[i].key))
			fail_msg("'%s' and '%s' are both '%s'", all[i - 1].key, all[i].key,
				 all[i].name);
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_follow_the_table),
		cmocka_unit_test(a_nul_in_a_key_is_escaped),
		cmocka_unit_test(other_spellings_are_refused),
		cmocka_unit_test(names_can_be_copied_between_places),
		cmocka_unit_test(long_names_are_shortened),
		cmocka_unit_test(shortening_splits_no_character_and_no_escape),
		cmocka_unit_test(a_hashed_name_belongs_to_one_key),
		cmocka_unit_test(every_key_is_decoded_from_its_name),
		cmocka_unit_test(every_accepted_name_is_the_spelling_of_its_key),
		cmocka_unit_test(no_two_keys_have_one_name),
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
