/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_kv_table.c - tables of checksums: every bit flip is found, values find their checksums, and
 * limits hold.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/crc32c.h"
#include "core/base/limits.h"
#include "core/io/io.h"
#include "core/kv/kv_table.h"

static void add(struct kv_table *t, const char *key, uint32_t crc)
{
	assert_int_equal(kv_table_add(t, span_str(key), crc), 0);
}

static void values_find_their_checksums(void **state)
{
	auto_kv_table t = { 0 }, back = { 0 };
	auto_buf bytes = { 0 };
	uint32_t crc = 0;

	add(&t, "w/0.1", 2);
	add(&t, "w/0.0", 1);
	add(&t, "b/.zarray", 3);
	add(&t, "b/.zarray", 3);
	assert_int_equal(kv_table_pack(&t, &bytes), 1);
	assert_int_equal(bytes.n, 16 + 3 * 12 + 4);
	assert_int_equal(kv_table_parse(buf_span(&bytes), &back), 0);
	assert_true(kv_table_find(&back, span_str("w/0.0"), &crc) && crc == 1);
	assert_true(kv_table_find(&back, span_str("w/0.1"), &crc) && crc == 2);
	assert_true(kv_table_find(&back, span_str("b/.zarray"), &crc) && crc == 3);
	assert_false(kv_table_find(&back, span_str("w/0.2"), &crc));
	for (size_t bit = 0; bit < 8 * bytes.n; bit++) {
		auto_kv_table none = { 0 };

		bytes.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (kv_table_parse(buf_span(&bytes), &none) != -EBADMSG || none.n)
			fail_msg("bit %zu", bit);
		bytes.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t n = 0; n < bytes.n; n++)
		assert_int_equal(kv_table_parse(span_of(bytes.p, n), &back), -EBADMSG);
	assert_int_equal(back.n, 3);
}

static void too_many_values_or_equal_keys_make_no_table(void **state)
{
	auto_kv_table none = { 0 }, twice = { 0 }, many = { 0 };
	auto_buf bytes = { 0 };

	assert_int_equal(kv_table_pack(&none, &bytes), 0);
	add(&twice, "w/0", 1);
	add(&twice, "w/0", 2);
	assert_int_equal(kv_table_pack(&twice, &bytes), -EINVAL);
	for (uint64_t i = 0; i <= LIMIT_SUM_ENTRIES; i++)
		assert_int_equal(kv_table_add(&many, span_of(&i, sizeof(i)), 0), 0);
	assert_int_equal(kv_table_pack(&many, &bytes), 0);
	assert_int_equal(bytes.n, 0);
	many.n--;
	assert_int_equal(kv_table_pack(&many, &bytes), 1);
	/* A table that has entries already may not exceed the limit either. */
	add(&none, "w/0", 1);
	assert_int_equal(kv_table_parse(buf_span(&bytes), &none), -EFBIG);
	assert_int_equal(none.n, 1);
}

/* A directory with one value: reads compare it once the table is used. */
static void a_directory_uses_its_table(void **state)
{
	char root[TMP_DIR_MAX];
	auto_kv_table t = { 0 };
	struct kv_get get = { .key = span_str("w/0"), .len = UINT64_MAX };
	auto_buf value = { 0 }, table = { 0 };
	struct io_engine *io;
	struct io_dir *dir;
	struct kv *kv;

	assert_int_equal(tmp_dir_make(root, "t_kv_table"), 0);
	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_dir_open(io, root, &dir), 0);
	assert_int_equal(io_mkdir(dir, "w", 0777), 0);
	assert_int_equal(io_write_file(dir, "w/0", span_str("value")), 0);
	add(&t, "w/0", crc32c(span_str("Value")));
	assert_int_equal(kv_table_pack(&t, &table), 1);
	assert_int_equal(io_mkdir(dir, KV_TABLE_DIR, 0777), 0);
	assert_int_equal(io_write_file(dir, KV_TABLE_DIR "/t", buf_span(&table)), 0);
	assert_int_equal(kv_dir_open(dir, &kv), 0);
	get.ret = &value;
	assert_int_equal(kv_get(kv, &get, 1), 0);
	kv_dir_use_table(kv);
	assert_int_equal(kv_get(kv, &get, 1), -EBADMSG);
	assert_int_equal(kv_get_all(kv, get.key, 100, &value), -EBADMSG);
	/* A part of a value is not compared. */
	get.len = 4;
	assert_int_equal(kv_get(kv, &get, 1), 0);
	kv_free(kv);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_find_their_checksums),
		cmocka_unit_test(too_many_values_or_equal_keys_make_no_table),
		cmocka_unit_test(a_directory_uses_its_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
