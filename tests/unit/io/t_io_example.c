/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_example.c - the worked example of core/io/README.md reads the right bytes.
 *
 * The build extracts the first C block of the page to io_readme.inc.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/io/io.h"

static char root[TMP_DIR_MAX];

static int setup(void **state)
{
	return tmp_dir_make_on_disk(root, "t_io_example");
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static int example(struct io_engine *io, const char *path, const char *name, uint8_t *head,
		   uint8_t *tail)
{
#include "io_readme.inc"
}

static void both_ranges_are_read(void **state)
{
	static const char *const engines[] = { "sync", "auto", "fault(read:short:1):sync" };
	uint8_t data[1000];
	char path[TMP_DIR_MAX + 8];
	FILE *f;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	snprintf(path, sizeof(path), "%s/file", root);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, sizeof(data), f), sizeof(data));
	assert_int_equal(fclose(f), 0);
	for (size_t e = 0; e < ARRAY_LEN(engines); e++) {
		uint8_t head[16] = { 0 }, tail[64] = { 0 };
		struct io_engine *io;

		assert_int_equal(io_engine_open(engines[e], &io), 0);
		assert_int_equal(example(io, root, "file", head, tail), 0);
		assert_memory_equal(head, data, sizeof(head));
		assert_memory_equal(tail, data + sizeof(data) - sizeof(tail), sizeof(tail));
		io_engine_close(io);
	}
}

static void a_file_that_does_not_exist_is_an_error(void **state)
{
	uint8_t head[16], tail[64];
	struct io_engine *io;

	assert_int_equal(io_engine_open("auto", &io), 0);
	assert_int_equal(example(io, root, "absent", head, tail), -ENOENT);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ranges_are_read),
		cmocka_unit_test(a_file_that_does_not_exist_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
