/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_segments.c - segments of every kind make up the answer, and every resource is released.
 */
#include "tests/unit/lib/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/blocks.h"
#include "core/base/limits.h"
#include "core/io/segments.h"

struct world {
	struct io_engine *io;
	struct io_file *file;
	struct cache *cache;
	uint8_t bytes[5000];
};

static void world_open(struct world *w)
{
	struct io_req req = { .op = IO_WRITE, .p = w->bytes, .n = sizeof(w->bytes) };

	for (size_t i = 0; i < sizeof(w->bytes); i++)
		w->bytes[i] = (uint8_t)(i * 13 + i / 256);
	assert_int_equal(io_engine_open("sync", &w->io), 0);
	assert_int_equal(io_file_temp(w->io, NULL, "/tmp", &w->file), 0);
	req.file = w->file;
	assert_int_equal(io_run(w->io, &req, 1), 0);
	w->file->size = sizeof(w->bytes);
	assert_int_equal(cache_new(1 * MiB, &w->cache), 0);
}

static void world_close(struct world *w)
{
	struct cache_stats stats;

	cache_stats(w->cache, &stats);
	assert_int_equal(stats.pinned_bytes, 0);
	assert_int_equal(w->file->refs, 1);
	io_file_unref(w->file);
	cache_free(w->cache);
	io_engine_close(w->io);
}

static struct cache_entry *pinned(struct world *w, uint64_t id)
{
	struct cache_key key = { 1, id, 0 };
	struct cache_entry *e;
	int state = cache_begin(w->cache, &key, &e);

	if (state == CACHE_MINE) {
		char *text = malloc(16);

		snprintf(text, 16, "pinned %05u", (unsigned)id);
		cache_fill(w->cache, e, text, 16, free);
	}
	return e;
}

static void every_kind_adds_up(void **state)
{
	struct world w;
	struct segments g;
	uint8_t want[4000], got[4000], *block;
	size_t n = 0;

	world_open(&w);
	segments_init(&g, w.cache);
	for (unsigned i = 0; i < 20; i++) {
		struct cache_entry *e = pinned(&w, i);

		assert_int_equal(segments_add_pinned(&g, e, e->value, 12), 0);
		snprintf((char *)want + n, 16, "pinned %05u", i);
		n += 12;
		assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 100 * i, 7 + i), 0);
		memcpy(want + n, w.bytes + 100 * i, 7 + i);
		n += 7 + i;
		assert_int_equal(segments_add_copy(&g, w.bytes + i, i), 0);
		memcpy(want + n, w.bytes + i, i);
		n += i;
		assert_int_equal(segments_add_zero(&g, 5), 0);
		memset(want + n, 0, 5);
		n += 5;
		block = block_alloc(100);
		memset(block, (int)i, 100);
		assert_int_equal(segments_add_block(&g, block, 100, 30), 0);
		memset(want + n, (int)i, 30);
		n += 30;
	}
	assert_int_equal(g.bytes, n);
	assert_int_equal(segments_copy(&g, got), 0);
	assert_memory_equal(got, want, n);
	segments_release(&g);
	assert_int_equal(g.n, 0);
	/* The list is empty and usable again. */
	assert_int_equal(segments_copy(&g, got), 0);
	assert_int_equal(segments_add_copy(&g, "x", 1), 0);
	segments_release(&g);
	world_close(&w);
}

static void neighbouring_ranges_of_a_file_are_one(void **state)
{
	struct world w;
	struct segments g;
	uint8_t got[100];

	world_open(&w);
	segments_init(&g, w.cache);
	assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 10, 20), 0);
	assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 30, 5), 0);
	assert_int_equal(g.n, 1);
	assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 36, 5), 0);
	assert_int_equal(g.n, 2);
	segments_fence(&g);
	assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 41, 5), 0);
	assert_int_equal(g.n, 3);
	assert_int_equal(segments_copy(&g, got), 0);
	assert_memory_equal(got, w.bytes + 10, 25);
	assert_memory_equal(got + 25, w.bytes + 36, 10);
	segments_release(&g);
	world_close(&w);
}

static void many_zeros_are_few_bytes(void **state)
{
	struct world w;
	struct segments g;
	auto_free uint8_t *got = malloc(3 * MiB + 5);

	world_open(&w);
	segments_init(&g, w.cache);
	assert_int_equal(segments_add_zero(&g, 3 * MiB + 5), 0);
	assert_int_equal(g.bytes, 3 * MiB + 5);
	memset(got, 1, 3 * MiB + 5);
	assert_int_equal(segments_copy(&g, got), 0);
	for (size_t i = 0; i < 3 * MiB + 5; i += 1000)
		assert_int_equal(got[i], 0);
	assert_int_equal(segments_add_zero(&g, 0), 0);
	segments_release(&g);
	world_close(&w);
}

static void a_part_ends_with_the_text(void **state)
{
	static const struct {
		uint64_t off;
		size_t n;
		const char *want;
	} cases[] = {
		{ 0, 5, "hello" },
		{ 0, 9, "hello" },
		{ 1, 3, "ell" },
		{ 4, SIZE_MAX, "o" },
		{ 2, 0, "" },
		{ 5, 1, "" },
		{ UINT64_MAX, SIZE_MAX, "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct segments g;
		char got[8] = { 0 };

		segments_init(&g, NULL);
		assert_int_equal(segments_add_part(&g, span_str("hello"), cases[i].off, cases[i].n),
				 0);
		assert_int_equal(g.bytes, strlen(cases[i].want));
		assert_int_equal(segments_copy(&g, got), 0);
		assert_string_equal(got, cases[i].want);
		segments_release(&g);
	}
}

static void a_file_that_ends_early_is_an_error(void **state)
{
	struct world w;
	struct segments g;
	uint8_t got[100];

	world_open(&w);
	segments_init(&g, w.cache);
	assert_int_equal(segments_add_file(&g, io_file_ref(w.file), 4990, 20), 0);
	assert_int_equal(segments_copy(&g, got), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "ends at byte 5000"));
	segments_release(&g);
	world_close(&w);
}

/* Open a file of 64 KiB through an engine stack. */
static struct io_file *file_behind(const char *stack, struct io_engine **io)
{
	static uint8_t bytes[65536];
	struct io_req req = { .op = IO_WRITE, .p = bytes, .n = sizeof(bytes) };
	struct io_file *f;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(io_engine_open(stack, io), 0);
	assert_int_equal(io_file_temp(*io, NULL, "/tmp", &f), 0);
	req.file = f;
	assert_int_equal(io_run(*io, &req, 1), 0);
	f->size = sizeof(bytes);
	return f;
}

/*
 * The bytes must be read before they are sent: a range of which the disk delivers half is an error,
 * not half an answer.
 */
static void a_pipe_gets_all_or_an_error(void **state)
{
	static const struct {
		const char *stack;
		uint64_t off;
		int want;
		const char *why;
	} cases[] = {
		{ "sync", 100, 0, NULL },
		{ "auto", 4096, 0, NULL },
		{ "fault(read:short:1):sync", 5, 0, NULL },
		{ "fault(read:eintr:1):sync", 5, 0, NULL },
		{ "fault(read:eio:1):sync", 5, -EIO,
		  "at offset 5, 40000 bytes: Input/output error" },
		{ "fault(read:torn:1):sync", 5, -EIO,
		  "at offset 20005, 20000 bytes: Input/output error" },
		{ "fault(read:torn:1):auto", 5, -EIO,
		  "at offset 20005, 20000 bytes: Input/output error" },
		{ "sync", 30000, -EUCLEAN,
		  "ends at byte 65536, 40000 bytes at offset 30000 were wanted" },
		{ "fault(read:eagain:1):sync", 5, 1, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		static uint8_t got[50000];
		struct io_engine *io;
		struct io_file *f = file_behind(cases[i].stack, &io);
		struct segments g;
		int fd[2], r;

		segments_init(&g, NULL);
		assert_int_equal(segments_add_copy(&g, "header", 6), 0);
		assert_int_equal(segments_add_file(&g, io_file_ref(f), cases[i].off, 40000), 0);
		assert_int_equal(segments_add_zero(&g, 10), 0);
		assert_true(segments_pages(&g) >= 12 && segments_pages(&g) <= 15);
		assert_int_equal(pipe2(fd, O_NONBLOCK), 0);
		r = segments_splice(&g, fd[1]);
		if (r != cases[i].want)
			fail_msg("case %zu: %d: %s", i, r, err_text(r));
		if (cases[i].why)
			assert_non_null(strstr(err_text(r), cases[i].why));
		if (r == 0) {
			assert_int_equal(read(fd[0], got, sizeof(got)), g.bytes);
			assert_memory_equal(got, "header", 6);
			for (size_t k = 0; k < 40000; k++) {
				uint64_t at = k + cases[i].off;

				assert_int_equal(got[6 + k], (uint8_t)(at * 7 + at / 256));
			}
			/* They count as read, although nobody copied them. */
			assert_int_equal(io_engine_stats(io)->read_bytes, 40000);
		}
		close(fd[0]);
		close(fd[1]);
		segments_release(&g);
		io_file_unref(f);
		io_engine_close(io);
	}
}

static void a_pipe_without_room_is_not_an_error(void **state)
{
	struct io_engine *io;
	struct io_file *f = file_behind("sync", &io);
	struct segments g;
	int fd[2];

	segments_init(&g, NULL);
	assert_int_equal(segments_add_file(&g, io_file_ref(f), 0, 60000), 0);
	assert_int_equal(pipe2(fd, O_NONBLOCK), 0);
	assert_true(fcntl(fd[1], F_SETPIPE_SZ, 8192) > 0);
	assert_int_equal(segments_splice(&g, fd[1]), 1);
	close(fd[0]);
	close(fd[1]);
	segments_release(&g);
	io_file_unref(f);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_adds_up),
		cmocka_unit_test(neighbouring_ranges_of_a_file_are_one),
		cmocka_unit_test(many_zeros_are_few_bytes),
		cmocka_unit_test(a_part_ends_with_the_text),
		cmocka_unit_test(a_file_that_ends_early_is_an_error),
		cmocka_unit_test(a_pipe_gets_all_or_an_error),
		cmocka_unit_test(a_pipe_without_room_is_not_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
