/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_kv_sum.c - trailers of values: every bit flip in a value or trailer is found, and other bytes
 * are not taken for a trailer.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/crc32c.h"
#include "core/kv/kv_sum.h"

#define VALUE 200

/* Fill in a value of VALUE bytes and its trailer. */
static void fill(uint8_t *p)
{
	for (size_t i = 0; i < VALUE; i++)
		p[i] = (uint8_t)(i * 7);
	kv_sum_pack(crc32c(span_of(p, VALUE)), p + VALUE);
}

static void every_flip_is_found(void **state)
{
	uint8_t p[VALUE + KV_SUM_BYTES];

	fill(p);
	assert_int_equal(kv_sum_check(span_of(p, VALUE), span_of(p + VALUE, KV_SUM_BYTES)), 1);
	for (size_t bit = 0; bit < 8 * sizeof(p); bit++) {
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (kv_sum_check(span_of(p, VALUE), span_of(p + VALUE, KV_SUM_BYTES)) != -EBADMSG)
			fail_msg("bit %zu", bit);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void other_bytes_are_not_a_trailer(void **state)
{
	uint8_t p[VALUE + KV_SUM_BYTES], zero[KV_SUM_BYTES] = { 0 };
	uint32_t crc = 7;

	fill(p);
	assert_int_equal(kv_sum_parse(zero, &crc), 0);
	/* The beginning of another frame, and a magic number with two wrong bits. */
	assert_int_equal(kv_sum_parse(p, &crc), 0);
	p[VALUE] ^= 3;
	assert_int_equal(kv_sum_parse(p + VALUE, &crc), 0);
	assert_int_equal(crc, 7);
	/* Nothing follows the value, or too few bytes. */
	assert_int_equal(kv_sum_check(span_of(p, VALUE), span_of(NULL, 0)), 0);
	assert_int_equal(kv_sum_check(span_of(p, VALUE), span_of(p + VALUE, KV_SUM_BYTES - 1)), 0);
}

static void a_located_value_is_read_in_pieces(void **state)
{
	char root[TMP_DIR_MAX], path[TMP_DIR_MAX + 2];
	struct io_engine *io;
	struct io_dir *dir;
	struct kv_loc loc = { .where = KV_FILE, .off = 3, .len = VALUE, .tail = KV_SUM_BYTES };
	uint8_t p[3 + VALUE + KV_SUM_BYTES] = { 0 }, room[64];
	int fd;

	assert_int_equal(tmp_dir_make(root, "t_kv_sum"), 0);
	snprintf(path, sizeof(path), "%s/f", root);
	fill(p + 3);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, p, sizeof(p)), sizeof(p));
	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_dir_open(io, root, &dir), 0);
	assert_int_equal(io_file_open(dir, "f", O_RDONLY, 0, &loc.file), 0);
	assert_int_equal(kv_loc_check(&loc, room, sizeof(room)), 1);
	assert_int_equal(kv_loc_has_sum(&loc), 1);
	for (size_t at = 3; at < sizeof(p); at += 5) {
		uint8_t wrong = p[at] ^ 16;

		assert_int_equal(pwrite(fd, &wrong, 1, (off_t)at), 1);
		assert_int_equal(kv_loc_check(&loc, room, sizeof(room)), -EBADMSG);
		assert_int_equal(kv_loc_has_sum(&loc), at < 3 + VALUE ? 1 : -EBADMSG);
		assert_int_equal(pwrite(fd, &p[at], 1, (off_t)at), 1);
	}
	/* A value of another writer. */
	loc.tail = 0;
	assert_int_equal(kv_loc_check(&loc, room, sizeof(room)), 0);
	kv_loc_release(&loc);
	io_dir_close(dir);
	io_engine_close(io);
	close(fd);
	assert_int_equal(tmp_dir_remove(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_flip_is_found),
		cmocka_unit_test(other_bytes_are_not_a_trailer),
		cmocka_unit_test(a_located_value_is_read_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
