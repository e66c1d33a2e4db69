/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_spill.c - bytes are read back, and nothing is left in the directory.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/mem.h"
#include "core/zarr/spill.h"

static char dir[TMP_DIR_MAX];

static int setup(void **state)
{
	return tmp_dir_make_on_disk(dir, "t_spill");
}

static int teardown(void **state)
{
	return rmdir(dir);
}

static void written_bytes_are_read_back(void **state)
{
	struct spill *s;
	uint8_t in[10000], out[10000];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	assert_int_equal(spill_open(dir, &s), 0);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
	assert_int_equal(spill_write(s, in, sizeof(in), 0), 0);
	assert_int_equal(spill_write(s, in, 5000, sizeof(in)), 0);
	assert_int_equal(spill_read(s, out, sizeof(out), 0), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(spill_read(s, out, 10000, 5000), 0);
	assert_memory_equal(out, in + 5000, 5000);
	assert_memory_equal(out + 5000, in, 5000);
	/* Reading beyond the end is an error, never zeros. */
	assert_int_equal(spill_read(s, out, 10000, 5001), -EIO);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
	spill_close(s);
	spill_close(NULL);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
}

static void a_directory_that_cannot_have_files_is_named(void **state)
{
	struct spill *s = NULL;

	assert_int_equal(spill_open("/nonexistent", &s), -ENOENT);
	assert_non_null(strstr(err_text(-ENOENT), "/nonexistent"));
	assert_true(spill_open("/dev/null", &s) < 0);
	assert_true(spill_open("/proc/self", &s) < 0);
	assert_null(s);
}

static void a_full_disk_is_an_error(void **state)
{
	static uint8_t big[100000];
	struct rlimit old, small;
	struct spill *s;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 50000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(spill_open(dir, &s), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(spill_write(s, big, sizeof(big), 0), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	spill_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_bytes_are_read_back),
		cmocka_unit_test(a_directory_that_cannot_have_files_is_named),
		cmocka_unit_test(a_full_disk_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
