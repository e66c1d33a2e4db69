/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_piece_dir.c - files of the cache on disk: their format, the directory's owner, the limit, power
 * losses and failures.
 */
#include <fcntl.h>
#include <pthread.h>

#include "core/base/clock.h"
#include "core/io/io.h"
#include "core/remote/cache/piece_dir.h"
#include "tests/engine/io_crash.h"
#include "tests/unit/lib/tmp_dir.h"
#include "tests/unit/lib/unit.h"

static char root[TMP_DIR_MAX], path[TMP_DIR_MAX + 8];

static int setup(void **state)
{
	if (tmp_dir_make(root, "t_piece_dir") < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/cache", root);
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static struct piece_id id_of(uint64_t index)
{
	struct piece_id object, id;

	piece_object_id(span_str("s3://bucket/a/b"), "\"tag\"", 1 << 30, &object);
	piece_id_of(&object, index, &id);
	return id;
}

/* The n bytes of a test piece. */
static struct span bytes_of(uint64_t index, size_t n)
{
	static uint8_t bytes[PIECE_BYTES];

	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(index * 31 + i / 7 + i % 251);
	return span_of(bytes, n);
}

static void put(struct piece_dir *d, uint64_t index, size_t n)
{
	struct piece_id id = id_of(index);

	piece_dir_put(d, &id, bytes_of(index, n));
}

/* Whether a piece exists; if its checksums match, its bytes must be right. */
static bool has(struct piece_dir *d, uint64_t index, size_t n)
{
	struct piece_id id = id_of(index);
	auto_of(io_file) struct io_file *f = piece_dir_get(d, &id, n);
	static uint8_t data[PIECE_BYTES];
	uint8_t tail[PIECE_TAIL_MAX];

	if (!f)
		return false;
	if (io_read_exact(f, data, n, 0) < 0 ||
	    io_read_exact(f, tail, piece_tail_bytes(n), n) < 0 || !piece_tail_is_of(tail, &id, n) ||
	    !piece_blocks_match(tail, 0, span_of(data, n)))
		return false;
	assert_memory_equal(data, bytes_of(index, n).p, n);
	piece_dir_used(d, f);
	return true;
}

static void test_tails(void **state)
{
	const size_t sizes[] = { 1, PIECE_BLOCK - 1, PIECE_BLOCK, PIECE_BLOCK + 1, PIECE_BYTES };
	struct piece_id id = id_of(0), other = id_of(1);
	char name[PIECE_NAME_MAX];

	piece_name(&id, name);
	assert_int_equal(name[2], '/');
	assert_true(piece_is_name(name + 3));
	assert_false(piece_is_name(name));
	assert_false(piece_is_name("new-0"));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = sizes[i], bytes = piece_tail_bytes(n);
		uint8_t tail[PIECE_TAIL_MAX];
		struct span data = bytes_of(i, n);

		piece_tail_pack(&id, data, tail);
		assert_true(piece_tail_is_of(tail, &id, n));
		assert_false(piece_tail_is_of(tail, &other, n));
		assert_true(piece_blocks_match(tail, 0, data));
		if (n > PIECE_BLOCK)
			assert_true(piece_blocks_match(tail, PIECE_BLOCK,
						       span_from(data, PIECE_BLOCK)));
		for (size_t at = 0; at < bytes; at++) {
			tail[at] ^= 0x10;
			assert_false(piece_tail_is_of(tail, &id, n));
			tail[at] ^= 0x10;
		}
		((uint8_t *)(uintptr_t)data.p)[n / 2] ^= 1;
		assert_false(piece_blocks_match(tail, 0, data));
	}
}

/* No two objects have a piece in common: neither objects with other names, tags or sizes, nor
 * objects whose concatenated texts are equal. */
static void test_identities(void **state)
{
	const struct {
		const char *url, *tag;
		uint64_t size;
	} objects[] = {
		{ "s3://b/k", "t", 9 }, { "s3://c/k", "t", 9 }, { "s3://b/kt", "", 9 },
		{ "s3://b/k", "u", 9 }, { "s3://b/k", "t", 8 }, { "s3://b/k", "", 9 },
	};
	struct piece_id id[ARRAY_LEN(objects)];

	for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
		piece_object_id(span_str(objects[i].url), objects[i].tag, objects[i].size, &id[i]);
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(&id[i], &id[k], sizeof(id[i]));
	}
}

static void test_rights(void **state)
{
	struct piece_dir *d;
	struct io_engine *io;
	struct stat st;
	char file[256];

	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(piece_dir_open(io, path, 0, &d), 0);
	put(d, 0, 100);
	assert_true(has(d, 0, 100));
	piece_dir_close(d);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	struct piece_id id = id_of(0);
	char name[PIECE_NAME_MAX];

	piece_name(&id, name);
	snprintf(file, sizeof(file), "%s/v1/%s", path, name);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 100 + piece_tail_bytes(100));

	assert_int_equal(chmod(path, 0770), 0);
	assert_int_equal(piece_dir_open(io, path, 0, &d), -EPERM);
	assert_non_null(strstr(err_text(-EPERM), "may be written by others (mode 0770)"));
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(piece_dir_open(io, path, 0, &d), 0);
	piece_dir_close(d);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
		assert_int_equal(piece_dir_open(io, path, 0, &d), -EPERM);
		assert_non_null(strstr(err_text(-EPERM), "belongs to user 12345"));
		assert_int_equal(chown(path, 0, (gid_t)-1), 0);
	}
	assert_int_equal(piece_dir_open(io, "/proc/none/cache", 0, &d), -ENOENT);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(path), 0);
}

static uint64_t used_bytes;

static int add_size(const char *at, const struct stat *st, int type, struct FTW *where)
{
	if (type == FTW_F)
		used_bytes += (uint64_t)st->st_size;
	return 0;
}

static uint64_t bytes_on_disk(void)
{
	used_bytes = 0;
	assert_int_equal(nftw(path, add_size, 16, FTW_PHYS), 0);
	return used_bytes;
}

/* Set the last use of a piece to a time so long ago. */
static void make_old(uint64_t index, int64_t seconds)
{
	struct piece_id id = id_of(index);
	char name[PIECE_NAME_MAX], file[256];
	struct timespec t = clock_timespec(clock_real_ns() - seconds * SECOND_NS);

	piece_name(&id, name);
	snprintf(file, sizeof(file), "%s/v1/%s", path, name);
	assert_int_equal(utimensat(AT_FDCWD, file, (struct timespec[]){ t, t }, 0), 0);
}

/* Two mounts fill the directory: the limit holds, and the pieces that were used last stay. */
static void test_limit(void **state)
{
	const uint64_t limit = 4 * MiB;
	struct piece_dir *d[2];
	struct piece_dir_stats stats[2];
	struct io_engine *io;
	char foreign[256];
	unsigned left = 0;
	int fd;

	assert_int_equal(io_engine_open("sync", &io), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(piece_dir_open(io, path, limit, &d[i]), 0);
	/* Files of other programs are neither counted nor removed. */
	for (uint64_t i = 0; i < 8; i++) {
		put(d[0], i, PIECE_BYTES);
		make_old(i, 1000 - (int64_t)i);
	}
	snprintf(foreign, sizeof(foreign), "%s/v1/00", path);
	assert_true(mkdir(foreign, 0700) == 0 || errno == EEXIST);
	strcat(foreign, "/notes.txt");
	fd = open(foreign, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, 64 * MiB), 0);
	close(fd);
	/* The other mount uses the oldest piece again. */
	assert_true(has(d[1], 0, PIECE_BYTES));
	for (uint64_t i = 8; i < 64; i++) {
		put(d[i % 2], i, PIECE_BYTES);
		make_old(i, 900 - (int64_t)i);
		assert_in_range(bytes_on_disk() - 64 * MiB, 1, limit);
	}
	assert_true(has(d[0], 0, PIECE_BYTES));
	for (uint64_t i = 1; i < 8; i++)
		assert_false(has(d[0], i, PIECE_BYTES));
	for (uint64_t i = 8; i < 64; i++)
		left += has(d[1], i, PIECE_BYTES);
	assert_true(has(d[0], 63, PIECE_BYTES));
	for (int i = 0; i < 2; i++) {
		piece_dir_stats(d[i], &stats[i]);
		assert_int_equal(stats[i].damaged, 0);
		piece_dir_close(d[i]);
	}
	assert_int_equal(stats[0].stored + stats[1].stored, 64);
	assert_int_equal(stats[0].evicted + stats[1].evicted + left + 1, 64);
	assert_int_equal(access(foreign, F_OK), 0);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(path), 0);
}

#define WRITERS 6
#define WRITER_ROUNDS 16
#define WRITER_PIECES 8

struct writer {
	struct piece_dir *d;
	unsigned first;
};

static void *put_pieces(void *arg)
{
	static const uint8_t zeros[PIECE_BYTES];
	const struct writer *w = arg;

	for (unsigned i = 0; i < WRITER_PIECES; i++) {
		struct piece_id id = id_of(w->first + i);

		piece_dir_put(w->d, &id, span_of(zeros, PIECE_BYTES - i * PIECE_BLOCK));
	}
	return NULL;
}

/*
 * Several threads add at once, and nobody adds anything afterwards: what is left is within the
 * limit, though pieces are added while another thread scans, and scans miss those whose file has
 * not got its name.
 */
static void test_limit_of_threads(void **state)
{
	const uint64_t limit = 2 * MiB;
	struct piece_dir *d;
	struct io_engine *io;
	struct piece_dir_stats stats;

	assert_int_equal(io_engine_open("fault(rename:delay=2:50%;unlink:delay=1:20%):sync", &io),
			 0);
	assert_int_equal(piece_dir_open(io, path, limit, &d), 0);
	for (unsigned k = 0; k < WRITER_ROUNDS; k++) {
		pthread_t thread[WRITERS];
		struct writer writer[WRITERS];

		for (unsigned i = 0; i < WRITERS; i++) {
			writer[i] = (struct writer){ d, (k * WRITERS + i) * WRITER_PIECES };
			assert_int_equal(pthread_create(&thread[i], NULL, put_pieces, &writer[i]),
					 0);
		}
		for (unsigned i = 0; i < WRITERS; i++)
			pthread_join(thread[i], NULL);
		assert_in_range(bytes_on_disk(), limit / 4, limit);
	}
	piece_dir_stats(d, &stats);
	assert_in_range(stats.stored, WRITER_ROUNDS * WRITER_PIECES,
			WRITER_ROUNDS * WRITERS * WRITER_PIECES);
	assert_true(stats.evicted);
	piece_dir_close(d);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(path), 0);
}

/* With a large limit each group of directories has a share. */
static void test_groups(void **state)
{
	struct piece_dir *d;
	struct io_engine *io;
	struct piece_dir_stats stats;

	assert_int_equal(io_engine_open("sync", &io), 0);
	/* A limit below one piece, and a limit of one piece. */
	assert_int_equal(piece_dir_open(io, path, 64 * KiB, &d), 0);
	put(d, 0, PIECE_BYTES);
	assert_false(has(d, 0, PIECE_BYTES));
	piece_dir_close(d);
	assert_int_equal(piece_dir_open(io, path, 1024 * MiB, &d), 0);
	for (uint64_t i = 0; i < 500; i++)
		put(d, i, 1000);
	for (uint64_t i = 0; i < 500; i++)
		assert_true(has(d, i, 1000));
	piece_dir_stats(d, &stats);
	assert_int_equal(stats.evicted, 0);
	piece_dir_close(d);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(path), 0);
}

/* Temporary files of a killed process are removed some time later. */
static void test_abandoned(void **state)
{
	struct piece_dir *d;
	struct io_engine *io;
	struct timespec old = clock_timespec(clock_real_ns() - 7200 * SECOND_NS);
	char dir[256], file[300];

	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(piece_dir_open(io, path, MiB, &d), 0);
	snprintf(dir, sizeof(dir), "%s/v1/7f", path);
	assert_int_equal(mkdir(dir, 0700), 0);
	for (int i = 0; i < 2; i++) {
		int fd;

		snprintf(file, sizeof(file), "%s/new-0123456789abcdef-%d", dir, i);
		fd = open(file, O_WRONLY | O_CREAT, 0600);
		if (i == 0)
			assert_int_equal(futimens(fd, (struct timespec[]){ old, old }), 0);
		close(fd);
	}
	put(d, 0, 1000);
	/* The younger one may still be in use. */
	assert_int_equal(tmp_dir_matching(dir, "new-*-0", false), 0);
	assert_int_equal(tmp_dir_matching(dir, "new-*-1", false), 1);
	piece_dir_close(d);
	io_engine_close(io);
	assert_int_equal(tmp_dir_remove(path), 0);
}

/* Each change fails once, in each way: afterwards pieces are right, and no temporary file is left.
 */
static void test_faults(void **state)
{
	static const char *const rules[] = { "write:enospc", "write:torn", "create:enospc",
					     "rename:eio",   "mkdir:eio",  "open:eio" };

	for (size_t k = 0; k < ARRAY_LEN(rules); k++)
		for (unsigned n = 1; n < 16; n++) {
			struct piece_dir *d;
			struct io_engine *io;
			char stack[64];
			int r;

			snprintf(stack, sizeof(stack), "fault(%s:%u):sync", rules[k], n);
			assert_int_equal(io_engine_open(stack, &io), 0);
			r = piece_dir_open(io, path, 16 * MiB, &d);
			for (uint64_t i = 0; i < 6 && r >= 0; i++) {
				put(d, i, 70000);
				has(d, i, 70000);
			}
			if (r >= 0)
				piece_dir_close(d);
			io_engine_close(io);
			assert_int_equal(io_engine_open("sync", &io), 0);
			assert_int_equal(piece_dir_open(io, path, 16 * MiB, &d), 0);
			/* has() compares the bytes. */
			for (uint64_t i = 0; i < 6; i++)
				has(d, i, 70000);
			put(d, 7, 70000);
			assert_true(has(d, 7, 70000));
			piece_dir_close(d);
			io_engine_close(io);
			assert_int_equal(tmp_dir_remove(path), 0);
		}
}

/* Lose power at each change: afterwards a piece is right or does not exist. */
static void test_power_loss(void **state)
{
	static const char *const modes[] = { "keep", "drop", "tear" };
	unsigned wrong = 0, right = 0;

	io_crash_register();
	for (size_t m = 0; m < ARRAY_LEN(modes); m++)
		for (unsigned n = 1; n < 40; n++) {
			struct piece_dir *d;
			struct io_engine *io;
			char stack[64];
			int r;

			snprintf(stack, sizeof(stack), "fault(crash:%s@%u):sync", modes[m], n);
			assert_int_equal(io_engine_open(stack, &io), 0);
			r = piece_dir_open(io, path, 16 * MiB, &d);
			for (uint64_t i = 0; i < 8 && r >= 0; i++)
				put(d, i, 70000);
			if (r >= 0)
				piece_dir_close(d);
			io_engine_close(io);
			assert_int_equal(io_engine_open("sync", &io), 0);
			assert_int_equal(piece_dir_open(io, path, 16 * MiB, &d), 0);
			for (uint64_t i = 0; i < 8; i++) {
				bool is_there = has(d, i, 70000);

				right += is_there;
				wrong += !is_there;
				put(d, i, 70000);
				assert_true(has(d, i, 70000));
			}
			piece_dir_close(d);
			io_engine_close(io);
			assert_int_equal(tmp_dir_remove(path), 0);
		}
	assert_int_equal(io_crash_failures(), 0);
	assert_true(right && wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tails),
		cmocka_unit_test(test_identities),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_limit_of_threads),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_abandoned),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_power_loss),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
