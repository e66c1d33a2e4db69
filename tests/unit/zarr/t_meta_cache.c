/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_meta_cache.c - equal documents are parsed once, others are not confused, and all outlive the
 * cache.
 */
#include <stdio.h>

#include "core/zarr/meta/meta_cache.h"
#include "tests/unit/lib/unit.h"

static struct span document(char *text, size_t n, unsigned rows)
{
	snprintf(
		text, n,
		"{\"zarr_format\":2,\"shape\":[%u,3],\"chunks\":[2,3],\"dtype\":\"<f4\",\"fill_value\":null,"
		"\"filters\":null,\"order\":\"C\",\"compressor\":{\"id\":\"zstd\",\"level\":1}}",
		rows);
	return span_str(text);
}

static void equal_documents_are_one(void **state)
{
	struct meta_shared *a, *b, *c;
	struct meta_cache *m;
	char text[512], other[512];

	assert_int_equal(meta_cache_new(&m), 0);
	assert_int_equal(meta_cache_parse(m, document(text, sizeof(text), 7), "a", &a), 0);
	assert_int_equal(meta_cache_parse(m, document(other, sizeof(other), 7), "b", &b), 0);
	assert_ptr_equal(a, b);
	/* The same length, but different. */
	assert_int_equal(meta_cache_parse(m, document(other, sizeof(other), 8), "c", &c), 0);
	assert_ptr_not_equal(a, c);
	assert_int_equal(a->meta.shape[0], 7);
	assert_int_equal(c->meta.shape[0], 8);
	meta_cache_free(m);
	assert_int_equal(a->meta.grid[0], 4);
	meta_shared_unref(a);
	meta_shared_unref(b);
	meta_shared_unref(c);
	meta_shared_unref(NULL);
	meta_cache_free(NULL);
}

static void an_array_is_known_by_owner_tag_and_kv(void **state)
{
	struct meta_shared *s, *got;
	struct meta_cache *m;
	char text[512];
	int kv[2];

	assert_int_equal(meta_cache_new(&m), 0);
	assert_null(meta_cache_get(m, 1, 2, &kv[0]));
	assert_null(meta_cache_get(NULL, 1, 2, &kv[0]));
	assert_int_equal(meta_cache_parse(m, document(text, sizeof(text), 7), "a", &s), 0);
	meta_cache_put(m, 1, 2, &kv[0], s);
	got = meta_cache_get(m, 1, 2, &kv[0]);
	assert_ptr_equal(got, s);
	meta_shared_unref(got);
	assert_null(meta_cache_get(m, 1, 3, &kv[0]));
	assert_null(meta_cache_get(m, 2, 2, &kv[0]));
	assert_null(meta_cache_get(m, 1, 2, &kv[1]));
	/* One that has the same place replaces it. */
	meta_cache_put(m, 1, 2 + (1 << 13), &kv[0], s);
	assert_null(meta_cache_get(m, 1, 2, &kv[0]));
	meta_cache_put(m, 3, 2, &kv[0], s);
	meta_cache_drop(m, 1);
	meta_cache_drop(NULL, 1);
	assert_null(meta_cache_get(m, 1, 2 + (1 << 13), &kv[0]));
	got = meta_cache_get(m, 3, 2, &kv[0]);
	assert_ptr_equal(got, s);
	meta_shared_unref(got);
	meta_shared_unref(s);
	meta_cache_free(m);
}

static void many_documents_replace_each_other(void **state)
{
	struct meta_cache *m;
	char text[512];

	assert_int_equal(meta_cache_new(&m), 0);
	for (int turn = 0; turn < 2; turn++)
		for (unsigned i = 1; i < 100; i++) {
			struct meta_shared *s;

			assert_int_equal(
				meta_cache_parse(m, document(text, sizeof(text), i), "a", &s), 0);
			assert_int_equal(s->meta.shape[0], i);
			meta_shared_unref(s);
		}
	meta_cache_free(m);
}

static void without_a_cache_each_is_parsed(void **state)
{
	struct meta_shared *a, *b;
	char text[512];

	assert_int_equal(meta_cache_parse(NULL, document(text, sizeof(text), 7), "a", &a), 0);
	assert_int_equal(meta_cache_parse(NULL, document(text, sizeof(text), 7), "a", &b), 0);
	assert_ptr_not_equal(a, b);
	meta_shared_unref(a);
	meta_shared_unref(b);
}

static void broken_documents_are_not_cached(void **state)
{
	struct meta_shared *a = (void *)1;
	struct meta_cache *m;
	char text[512];
	struct span whole = document(text, sizeof(text), 7);

	assert_int_equal(meta_cache_new(&m), 0);
	for (size_t n = 0; n < whole.n; n++) {
		assert_true(meta_cache_parse(m, span_of(text, n), "a", &a) < 0);
		assert_ptr_equal(a, (void *)1);
	}
	assert_int_equal(meta_cache_parse(m, whole, "a", &a), 0);
	meta_shared_unref(a);
	meta_cache_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_documents_are_one),
		cmocka_unit_test(an_array_is_known_by_owner_tag_and_kv),
		cmocka_unit_test(many_documents_replace_each_other),
		cmocka_unit_test(without_a_cache_each_is_parsed),
		cmocka_unit_test(broken_documents_are_not_cached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
