/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_document.c - documents that are mapped: holes stay holes, and a file that was truncated or
 * written after it was opened is refused.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <fcntl.h>

#include "core/base/err.h"
#include "core/step/document.h"
#include "core/zarr/stream.h"

#define SIZE (24 * MiB) /* larger than the files that are read into memory */
#define AT (20 * MiB)
#define PIECE (64 * KiB)

static char root[TMP_DIR_MAX];
static struct ckpt ckpt;
static struct io_dir *dir;

static int setup(void **state)
{
	const struct streams_opts opts = {
		.spill_dir = root, .spill_limit = MiB, .window_limit = MiB, .decoder_limit = MiB
	};

	assert_int_equal(tmp_dir_make(root, "t_document"), 0);
	assert_int_equal(io_engine_open("sync", &ckpt.io), 0);
	assert_int_equal(streams_new(&opts, &ckpt.streams), 0);
	return io_dir_open(ckpt.io, root, &dir);
}

static int teardown(void **state)
{
	io_dir_close(dir);
	streams_free(ckpt.streams);
	io_engine_close(ckpt.io);
	return tmp_dir_remove(root);
}

/* Returns an opened file that is a hole with one piece of data in it. */
static struct io_file *sparse(void)
{
	uint8_t piece[PIECE];
	struct io_file *f;

	memset(piece, 'x', sizeof(piece));
	assert_int_equal(io_file_open(dir, "doc", O_RDWR | O_CREAT | O_TRUNC, 0600, &f), 0);
	assert_int_equal(io_write_exact(f, piece, sizeof(piece), AT), 0);
	assert_int_equal(io_file_truncate(f, SIZE), 0);
	io_file_unref(f);
	assert_int_equal(io_file_open(dir, "doc", O_RDWR, 0, &f), 0);
	assert_int_equal(f->size, SIZE);
	return f;
}

static void a_sparse_file_is_mapped_with_its_holes(void **state)
{
	auto_of(io_file) struct io_file *f = sparse();
	auto_document d = { 0 };
	uint64_t from, to;

	/* The size of the file is far above spill_limit, but its data is not. */
	assert_int_equal(document_of(&ckpt, f, &d), 0);
	assert_int_equal(d.text.n, SIZE);
	assert_int_equal(d.text.p[AT], 'x');
	assert_int_equal(d.text.p[AT + PIECE - 1], 'x');
	assert_int_equal(d.text.p[AT - 1] + d.text.p[AT + PIECE] + d.text.p[SIZE - 1], 0);
	assert_true(io_file_data(f, 0, &from, &to));
	assert_int_equal(from, AT);
	assert_int_equal(to, AT + PIECE);
	assert_false(io_file_data(f, to, &from, &to));
	assert_false(io_file_data(f, SIZE, &from, &to));
	assert_int_equal(io_file_check_size(f), 0);
}

static void a_file_that_was_truncated_is_not_a_hole(void **state)
{
	auto_of(io_file) struct io_file *f = sparse();
	auto_document d = { 0 };
	uint64_t from, to;

	assert_int_equal(ftruncate(f->fd, AT), 0);
	assert_false(io_file_data(f, 0, &from, &to));
	assert_int_equal(io_file_check_size(f), -EUCLEAN);
	assert_int_equal(document_of(&ckpt, f, &d), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "'doc' ends at byte 20971520"));
	assert_non_null(strstr(err_text(-EUCLEAN), "had 25165824 bytes when it was opened"));
}

static void a_file_that_was_filled_meets_the_limit(void **state)
{
	auto_of(io_file) struct io_file *f = sparse();
	auto_document d = { 0 };
	uint8_t *more = calloc(1, 2 * MiB);

	assert_non_null(more);
	assert_int_equal(io_write_exact(f, more, 2 * MiB, 0), 0);
	free(more);
	assert_int_equal(document_of(&ckpt, f, &d), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sparse_file_is_mapped_with_its_holes),
		cmocka_unit_test(a_file_that_was_truncated_is_not_a_hole),
		cmocka_unit_test(a_file_that_was_filled_meets_the_limit),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
