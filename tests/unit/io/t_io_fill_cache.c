/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_io_fill_cache.c - ranges of files are brought into the page cache.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/limits.h"
#include "core/io/bucket_mount.h"
#include "core/io/io_engine.h"

#define SIZE (5 * MiB)
#define PAGE ((size_t)4096)

static char root[TMP_DIR_MAX];
static struct io_engine *io;
static struct io_file *file;
static uint8_t data[SIZE];

/* The file is on the disk only. */
static int setup(void **state)
{
	struct io_dir *dir;
	int r = tmp_dir_make_on_disk(root, "t_io_fill_cache");

	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_dir_open(io, root, &dir), 0);
	assert_int_equal(io_file_open(dir, "cold", O_RDWR | O_CREAT | O_TRUNC, 0600, &file), 0);
	assert_int_equal(io_write_exact(file, data, SIZE - 1, 0), 0);
	file->size = SIZE - 1;
	assert_int_equal(io_file_sync(file), 0);
	io_file_reread(file);
	io_dir_close(dir);
	return r;
}

static int teardown(void **state)
{
	io_file_unref(file);
	io_engine_close(io);
	return tmp_dir_remove(root);
}

/* Whether a page is in memory, or gets there within a second. */
static bool is_cached(size_t at)
{
	unsigned char there = 0;
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file->fd, (off_t)at);

	assert_ptr_not_equal(page, MAP_FAILED);
	for (int i = 0; i < 1000 && !(there & 1); i++) {
		assert_int_equal(mincore(page, PAGE, &there), 0);
		usleep(there & 1 ? 0 : 1000);
	}
	munmap(page, PAGE);
	return there & 1;
}

static void a_range_is_there_afterwards(void **state)
{
	/* Of another user's file a process is not told which pages are there. */
	bool is_other = geteuid() == 0 && seteuid(65534) == 0;

	io_file_fill_cache(file, 3 * MiB, 100 * MiB);
	io_file_fill_cache(file, SIZE, 1);
	io_file_fill_cache(file, 0, 0);
	assert_true(!is_other || seteuid(0) == 0);
	assert_true(is_cached(3 * MiB));
	assert_true(is_cached(SIZE - PAGE));
}

static void a_mount_of_a_bucket_is_asked_for_the_range(void **state)
{
	static const struct bucket_mount bucket = { .name = "a bucket" };

	file->bucket = &bucket;
	io_file_fill_cache(file, 3 * MiB, 1 * MiB);
	file->bucket = NULL;
	assert_true(is_cached(3 * MiB));
}

static void a_file_that_became_shorter_is_an_error_of_the_read(void **state)
{
	assert_int_equal(io_file_truncate(file, 1 * MiB), 0);
	file->size = SIZE;
	io_file_fill_cache(file, 0, SIZE);
	assert_int_equal(io_read_exact(file, data, 4 * MiB, 0), -EUCLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_range_is_there_afterwards, setup, teardown),
		cmocka_unit_test_setup_teardown(a_mount_of_a_bucket_is_asked_for_the_range, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_file_that_became_shorter_is_an_error_of_the_read,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
