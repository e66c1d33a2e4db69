/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_store_cache.c - reads through the cache on disk, from a store in memory that counts its reads.
 * The bytes are always right, even if the cache's files were damaged.
 */
#include <fcntl.h>

#include "core/io/io_store.h"
#include "core/remote/cache/piece.h"
#include "core/remote/cache/store_cache.h"
#include "tests/unit/lib/tmp_dir.h"
#include "tests/unit/lib/unit.h"

#define SIZE (5 * PIECE_BYTES / 2 + 77) /* size of "big": three pieces, the last one shorter */

static char root[TMP_DIR_MAX], path[TMP_DIR_MAX + 8];

/* ---- the store below ---- */

struct memory {
	struct io_store base;
	struct store_cache *cache;
	const char *tag;
	bool is_broken;
	unsigned reads;
	uint64_t bytes;
};

static uint8_t byte_of(const char *tag, uint64_t at)
{
	return (uint8_t)(at % 253 + at / PIECE_BYTES * 17 + (uint8_t)tag[0]);
}

static int memory_lookup(struct io_store *s, const char *name, const struct io_want *want,
			 struct io_object *ret)
{
	struct memory *m = container_of(s, struct memory, base);

	*ret = (struct io_object){ .is_dir = !*name,
				   .size = !strcmp(name, "big") ? SIZE : 10,
				   .mtime.tv_sec = 7 };
	strcpy(ret->tag, m->tag);
	return 0;
}

static int memory_submit(struct io_store *s, struct io_req *req, size_t n)
{
	struct memory *m = container_of(s, struct memory, base);

	if (m->is_broken)
		return fail(-EACCES, "no credentials");
	for (size_t i = 0; i < n; i++) {
		const struct io_file *f = req[i].file;
		uint8_t *p = req[i].p;

		m->reads++;
		m->bytes += req[i].n;
		req[i].result = (int64_t)MIN(req[i].n, f->size - req[i].off);
		for (int64_t k = 0; k < req[i].result; k++)
			p[k] = byte_of(f->tag, req[i].off + (uint64_t)k);
		if (strcmp(f->tag, m->tag) != 0) {
			req[i].result = -ESTALE;
			req[i].why = strdup("it was replaced");
		}
	}
	return 0;
}

static int memory_wait(struct io_store *s, struct io_req *req, size_t n)
{
	return 0;
}

static int cached_begin(struct io_store *s, struct io_engine *io)
{
	return store_cache_begin(container_of(s, struct memory, base)->cache, io);
}

static int cached_submit(struct io_store *s, struct io_req *req, size_t n)
{
	return store_cache_submit(container_of(s, struct memory, base)->cache, req, n);
}

static int cached_wait(struct io_store *s, struct io_req *req, size_t n)
{
	return store_cache_wait(container_of(s, struct memory, base)->cache, req, n);
}

static void cached_stats(struct io_store *s, struct io_store_stats *ret)
{
	*ret = (struct io_store_stats){ 0 };
	store_cache_stats(container_of(s, struct memory, base)->cache, ret);
}

static void cached_free(struct io_store *s)
{
	store_cache_free(container_of(s, struct memory, base)->cache);
}

static void memory_nothing(struct io_store *s)
{
}

static const struct io_store_ops memory_ops = {
	.name = "memory",
	.begin = cached_begin,
	.lookup = memory_lookup,
	.submit = cached_submit,
	.wait = cached_wait,
	.refresh = memory_nothing,
	.quiesce = memory_nothing,
	.stats = cached_stats,
	.free = cached_free,
};

/* ---- a mount ---- */

struct opened {
	struct memory memory;
	struct io_engine *io;
	struct io_dir *dir;
	struct io_file *big;
};

static void open_it(struct opened *o, const char *stack, const char *tag)
{
	const struct store_cache_opts opts = { .dir = path,
					       .limit = 64 * MiB,
					       .root = "mem://b",
					       .store = &o->memory.base,
					       .submit = memory_submit,
					       .wait = memory_wait };

	*o = (struct opened){ .memory.base = { .ops = &memory_ops,
					       .url = (char *)(uintptr_t) "mem://b" },
			      .memory.tag = tag };
	assert_int_equal(store_cache_new(&opts, &o->memory.cache), 0);
	assert_int_equal(io_engine_open_store(stack, &o->memory.base, &o->io), 0);
	assert_int_equal(io_store_root(o->io, &o->dir), 0);
	assert_int_equal(io_file_open(o->dir, "big", O_RDONLY, 0, &o->big), 0);
}

static struct io_store_stats close_it(struct opened *o)
{
	struct io_store_stats stats;

	assert_true(io_store_stats(o->io, &stats));
	io_file_unref(o->big);
	io_dir_close(o->dir);
	io_engine_close(o->io);
	return stats;
}

/* Read a range and compare it. 0, or -errno with a note. */
static int read_range(struct io_file *f, uint64_t off, size_t n)
{
	static uint8_t got[SIZE];
	int r;

	memset(got, 0xee, n);
	r = io_read_exact(f, got, n, off);
	for (size_t i = 0; i < n && r >= 0; i++)
		if (got[i] != byte_of(f->tag, off + i))
			fail_msg("byte %zu of %zu at %llu differs", i, n, (unsigned long long)off);
	return r;
}

static int setup(void **state)
{
	if (tmp_dir_make(root, "t_store_cache") < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/cache", root);
	return 0;
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static int clear(void **state)
{
	return tmp_dir_remove(path);
}

/* ---- tests ---- */

static void test_what_was_read_is_not_asked_for_again(void **state)
{
	struct io_store_stats stats;
	struct opened o;

	open_it(&o, "sync", "t");
	assert_int_equal(read_range(o.big, 1000, 10), 0);
	assert_int_equal(o.memory.reads, 1);
	assert_int_equal(o.memory.bytes, PIECE_BYTES);
	/* The same piece, and the one after it. */
	assert_int_equal(read_range(o.big, PIECE_BYTES - 5, 10), 0);
	assert_int_equal(o.memory.reads, 2);
	assert_int_equal(read_range(o.big, 0, SIZE), 0);
	assert_int_equal(o.memory.bytes, SIZE);
	stats = close_it(&o);
	assert_int_equal(stats.cache_misses, 3);
	assert_int_equal(stats.cache_stored, 3);
	assert_int_equal(stats.fetched_bytes, SIZE);
	/* Another mount reads from the cache, with each engine. */
	for (int k = 0; k < 2; k++) {
		open_it(&o, k ? "auto" : "sync", "t");
		assert_int_equal(read_range(o.big, 0, SIZE), 0);
		assert_int_equal(read_range(o.big, 12345, PIECE_BYTES), 0);
		assert_int_equal(o.memory.reads, 0);
		stats = close_it(&o);
		assert_int_equal(stats.cache_hits, 3 + 2);
		assert_int_equal(stats.cache_misses + stats.cache_damaged + stats.fetched_bytes, 0);
	}
}

/* Ranges of one batch that touch, overlap and enclose others. */
static void test_batches(void **state)
{
	static uint8_t got[12][3 * PIECE_BYTES];
	unsigned seed = 1;

	for (int round = 0; round < 40; round++) {
		struct io_req req[12];
		struct opened o;

		if (round % 8 == 0)
			assert_int_equal(tmp_dir_remove(path), 0);
		open_it(&o, round % 2 ? "auto" : "sync", "t");
		for (int i = 0; i < 12; i++) {
			uint64_t off = (seed = seed * 1103515245 + 12345) % SIZE;
			size_t n = (seed = seed * 1103515245 + 12345) %
				   (round % 3 ? PIECE_BLOCK : 2 * PIECE_BYTES);

			req[i] = (struct io_req){
				.op = IO_READ, .file = o.big, .p = got[i], .n = n, .off = off
			};
		}
		assert_int_equal(io_run(o.io, req, 12), 0);
		for (int i = 0; i < 12; i++) {
			assert_int_equal(req[i].result, MIN(req[i].n, SIZE - req[i].off));
			for (int64_t k = 0; k < req[i].result; k++)
				assert_int_equal(got[i][k], byte_of("t", req[i].off + (uint64_t)k));
		}
		assert_int_equal(close_it(&o).cache_damaged, 0);
	}
}

/* Called for each piece's file. */
static void (*damage)(const char *file, uint64_t size);

static int damage_one(const char *file, const struct stat *st, int type, struct FTW *at)
{
	if (type == FTW_F && piece_is_name(file + at->base))
		damage(file, (uint64_t)st->st_size);
	return 0;
}

static uint64_t damage_at;

static void flip(const char *file, uint64_t size)
{
	int fd = open(file, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)(damage_at % size)), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)(damage_at % size)), 1);
	close(fd);
}

static void cut(const char *file, uint64_t size)
{
	assert_int_equal(truncate(file, (off_t)(damage_at % size)), 0);
}

static void zero(const char *file, uint64_t size)
{
	assert_int_equal(truncate(file, 0), 0);
	assert_int_equal(truncate(file, (off_t)size), 0);
}

/* Put another piece of the same size under this name: its checksums match, but not its identity. */
static char first_file[512];

static void exchange(const char *file, uint64_t size)
{
	if (size != PIECE_BYTES + piece_tail_bytes(PIECE_BYTES))
		return;
	if (!*first_file) {
		snprintf(first_file, sizeof(first_file), "%s", file);
		return;
	}
	assert_int_equal(renameat2(AT_FDCWD, file, AT_FDCWD, first_file, 1 << 1), 0);
}

static void make_directory(const char *file, uint64_t size)
{
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkdir(file, 0700), 0);
}

static void test_damage_is_fetched_again(void **state)
{
	static void (*const ways[])(const char *, uint64_t) = { flip, cut, zero, exchange };
	const uint64_t places[] = {
		0,           PIECE_BLOCK - 1,  PIECE_BYTES - 1,
		PIECE_BYTES, PIECE_BYTES + 20, PIECE_BYTES + piece_tail_bytes(PIECE_BYTES) - 1
	};

	for (size_t w = 0; w < ARRAY_LEN(ways); w++)
		for (size_t i = 0; i < ARRAY_LEN(places); i++) {
			struct io_store_stats stats;
			struct opened o;
			uint64_t want = ways[w] == exchange ? 2 : 3;

			open_it(&o, "sync", "t");
			assert_int_equal(read_range(o.big, 0, SIZE), 0);
			close_it(&o);
			*first_file = '\0';
			damage = ways[w];
			damage_at = places[i];
			assert_int_equal(nftw(path, damage_one, 16, FTW_PHYS), 0);
			open_it(&o, "auto", "t");
			assert_int_equal(read_range(o.big, 0, SIZE), 0);
			stats = close_it(&o);
			assert_int_equal(stats.cache_damaged, want);
			assert_int_equal(stats.cache_hits, 3 - want);
			/* The next mount reads the right bytes from the cache. */
			open_it(&o, "sync", "t");
			assert_int_equal(read_range(o.big, 0, SIZE), 0);
			assert_int_equal(o.memory.reads, 0);
			close_it(&o);
		}
	damage = make_directory;
	assert_int_equal(nftw(path, damage_one, 16, FTW_PHYS), 0);
	struct opened o;

	open_it(&o, "sync", "t");
	assert_int_equal(read_range(o.big, 0, SIZE), 0);
	assert_int_equal(o.memory.bytes, SIZE);
	close_it(&o);
}

/* A replaced object has another tag, so old pieces are not used for it. A file that was opened
 * before reads the old object's pieces, or fails. */
static void test_an_object_that_is_replaced(void **state)
{
	struct opened o;
	auto_of(io_file) struct io_file *now = NULL;

	open_it(&o, "sync", "old");
	assert_int_equal(read_range(o.big, 0, PIECE_BYTES), 0);
	o.memory.tag = "new";
	assert_int_equal(read_range(o.big, 0, PIECE_BYTES), 0);
	assert_int_equal(read_range(o.big, 0, SIZE), -ESTALE);
	assert_non_null(strstr(err_text(-ESTALE), "it was replaced"));
	assert_int_equal(io_file_open(o.dir, "big", O_RDONLY, 0, &now), 0);
	assert_string_equal(now->tag, "new");
	assert_int_equal(read_range(now, 0, SIZE), 0);
	close_it(&o);
	/* Objects without a tag, or with a weak one, are not cached. */
	for (int k = 0; k < 4; k++) {
		open_it(&o, "sync", k / 2 ? "W/\"t\"" : "");
		assert_int_equal(read_range(o.big, 10, PIECE_BYTES), 0);
		assert_int_equal(o.memory.bytes, PIECE_BYTES);
		assert_int_equal(close_it(&o).cache_stored, 0);
	}
}

static void test_failures_below(void **state)
{
	struct opened o;

	open_it(&o, "sync", "t");
	assert_int_equal(read_range(o.big, 0, PIECE_BYTES), 0);
	o.memory.is_broken = true;
	/* Pieces on disk are read even when the server refuses. */
	assert_int_equal(read_range(o.big, 5, 100), 0);
	assert_int_equal(read_range(o.big, 5, SIZE - 5), -EACCES);
	assert_non_null(strstr(err_text(-EACCES), "no credentials"));
	/* A damaged piece that cannot be fetched again. */
	damage = flip;
	damage_at = 0;
	assert_int_equal(nftw(path, damage_one, 16, FTW_PHYS), 0);
	assert_int_equal(read_range(o.big, 5, 100), -EACCES);
	assert_non_null(strstr(err_text(-EACCES), "no credentials"));
	o.memory.is_broken = false;
	assert_int_equal(read_range(o.big, 0, SIZE), 0);
	close_it(&o);
}

/* Errors of the cache never fail a read. */
static void test_faults(void **state)
{
	static const char *const rules[] = { "write:enospc", "write:torn", "create:eio",
					     "rename:enospc", "unlink:eio" };

	for (size_t k = 0; k < ARRAY_LEN(rules); k++)
		for (unsigned n = 1; n <= 4; n++) {
			char stack[64];
			struct opened o;

			assert_int_equal(tmp_dir_remove(path), 0);
			snprintf(stack, sizeof(stack), "fault(%s:%u+):sync", rules[k], n);
			open_it(&o, stack, "t");
			for (int again = 0; again < 2; again++)
				assert_int_equal(read_range(o.big, 0, SIZE), 0);
			close_it(&o);
			open_it(&o, "sync", "t");
			assert_int_equal(read_range(o.big, 0, SIZE), 0);
			assert_int_equal(close_it(&o).cache_damaged, 0);
		}
	/* An error of a read may come from the object itself, and then the read fails. */
	for (unsigned n = 1; n <= 8; n++) {
		char stack[64];
		struct opened o;
		int failed = 0;

		snprintf(stack, sizeof(stack), "fault(read:eio:%u):sync", n);
		open_it(&o, stack, "t");
		for (int again = 0; again < 3; again++) {
			int r = read_range(o.big, 0, SIZE);

			assert_true(r == 0 || r == -EIO);
			failed += r < 0;
		}
		assert_in_range(failed, 0, 1);
		close_it(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_what_was_read_is_not_asked_for_again, clear),
		cmocka_unit_test_teardown(test_batches, clear),
		cmocka_unit_test_teardown(test_damage_is_fetched_again, clear),
		cmocka_unit_test_teardown(test_an_object_that_is_replaced, clear),
		cmocka_unit_test_teardown(test_failures_below, clear),
		cmocka_unit_test_teardown(test_faults, clear),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
