/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_temp.c - temporary files: bytes are read back, and nothing is left in the directory.
 */
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/tmp_dir.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/mem.h"
#include "core/io/io_engine.h"

static char dir[TMP_DIR_MAX];
static struct io_engine *io;

static int setup(void **state)
{
	assert_int_equal(io_engine_open("sync", &io), 0);
	return tmp_dir_make_on_disk(dir, "t_io_temp");
}

static int teardown(void **state)
{
	io_engine_close(io);
	return rmdir(dir);
}

static int put(struct io_file *f, void *p, size_t n, uint64_t off)
{
	struct io_req req = { .op = IO_WRITE, .file = f, .p = p, .n = n, .off = off };

	return io_run(io, &req, 1);
}

static void written_bytes_are_read_back(void **state)
{
	uint8_t in[10000], out[10000];
	struct io_file *f;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	assert_int_equal(io_file_temp(io, NULL, dir, &f), 0);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
	assert_int_equal(put(f, in, sizeof(in), 0), 0);
	assert_int_equal(put(f, in, 5000, sizeof(in)), 0);
	assert_int_equal(io_read_exact(f, out, sizeof(out), 0), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(io_read_exact(f, out, 10000, 5000), 0);
	assert_memory_equal(out, in + 5000, 5000);
	assert_memory_equal(out + 5000, in, 5000);
	/* Reading beyond the end is an error, never zeros. */
	assert_int_equal(io_read_exact(f, out, 10000, 5001), -EUCLEAN);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
	io_file_unref(f);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
}

/* The file of a file system without O_TMPFILE. */
static void a_file_whose_name_was_removed_is_another_one(void **state)
{
	int fd = io_plain_unlinked(dir);

	assert_true(fd >= 0);
	assert_int_equal(tmp_dir_matching(dir, "*", false), 0);
	assert_int_equal(write(fd, "abc", 3), 3);
	close(fd);
	assert_int_equal(io_plain_unlinked("/nonexistent"), -ENOENT);
}

static void a_directory_that_cannot_have_files_is_named(void **state)
{
	struct io_file *f = NULL;

	assert_int_equal(io_file_temp(io, NULL, "/nonexistent", &f), -ENOENT);
	assert_non_null(strstr(err_text(-ENOENT), "/nonexistent"));
	assert_true(io_file_temp(io, NULL, "/dev/null", &f) < 0);
	assert_true(io_file_temp(io, NULL, "/proc/self", &f) < 0);
	assert_null(f);
}

static void a_full_disk_is_an_error(void **state)
{
	static uint8_t big[100000];
	struct rlimit old, small;
	struct io_file *f;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 50000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(io_file_temp(io, NULL, dir, &f), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(put(f, big, sizeof(big), 0), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	io_file_unref(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_bytes_are_read_back),
		cmocka_unit_test(a_file_whose_name_was_removed_is_another_one),
		cmocka_unit_test(a_directory_that_cannot_have_files_is_named),
		cmocka_unit_test(a_full_disk_is_an_error),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
