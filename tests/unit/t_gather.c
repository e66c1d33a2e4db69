/*
 * t_gather.c - segments of every kind add up to the answer, and everything is given back.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "core/base/blocks.h"
#include "core/base/limits.h"
#include "core/io/gather.h"

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
	struct gather g;
	uint8_t want[4000], got[4000], *block;
	size_t n = 0;

	world_open(&w);
	gather_init(&g, w.cache);
	for (unsigned i = 0; i < 20; i++) {
		struct cache_entry *e = pinned(&w, i);

		assert_int_equal(gather_add_pinned(&g, e, e->value, 12), 0);
		snprintf((char *)want + n, 16, "pinned %05u", i);
		n += 12;
		assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 100 * i, 7 + i), 0);
		memcpy(want + n, w.bytes + 100 * i, 7 + i);
		n += 7 + i;
		assert_int_equal(gather_add_copy(&g, w.bytes + i, i), 0);
		memcpy(want + n, w.bytes + i, i);
		n += i;
		assert_int_equal(gather_add_zero(&g, 5), 0);
		memset(want + n, 0, 5);
		n += 5;
		block = block_alloc(100);
		memset(block, (int)i, 100);
		assert_int_equal(gather_add_block(&g, block, 100, 30), 0);
		memset(want + n, (int)i, 30);
		n += 30;
	}
	assert_int_equal(g.bytes, n);
	assert_int_equal(gather_copy(&g, got), 0);
	assert_memory_equal(got, want, n);
	gather_release(&g);
	assert_int_equal(g.n, 0);
	/* Empty, and usable again. */
	assert_int_equal(gather_copy(&g, got), 0);
	assert_int_equal(gather_add_copy(&g, "x", 1), 0);
	gather_release(&g);
	world_close(&w);
}

static void neighbouring_ranges_of_a_file_are_one(void **state)
{
	struct world w;
	struct gather g;
	uint8_t got[100];

	world_open(&w);
	gather_init(&g, w.cache);
	assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 10, 20), 0);
	assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 30, 5), 0);
	assert_int_equal(g.n, 1);
	assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 36, 5), 0);
	assert_int_equal(g.n, 2);
	gather_fence(&g);
	assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 41, 5), 0);
	assert_int_equal(g.n, 3);
	assert_int_equal(gather_copy(&g, got), 0);
	assert_memory_equal(got, w.bytes + 10, 25);
	assert_memory_equal(got + 25, w.bytes + 36, 10);
	gather_release(&g);
	world_close(&w);
}

static void many_zeros_are_few_bytes(void **state)
{
	struct world w;
	struct gather g;
	auto_free uint8_t *got = malloc(3 * MiB + 5);

	world_open(&w);
	gather_init(&g, w.cache);
	assert_int_equal(gather_add_zero(&g, 3 * MiB + 5), 0);
	assert_int_equal(g.bytes, 3 * MiB + 5);
	memset(got, 1, 3 * MiB + 5);
	assert_int_equal(gather_copy(&g, got), 0);
	for (size_t i = 0; i < 3 * MiB + 5; i += 1000)
		assert_int_equal(got[i], 0);
	assert_int_equal(gather_add_zero(&g, 0), 0);
	gather_release(&g);
	world_close(&w);
}

static void a_part_is_what_the_text_has_of_it(void **state)
{
	static const struct {
		uint64_t off;
		size_t n;
		const char *want;
	} cases[] = {
		{ 0, 5, "hello" }, { 0, 9, "hello" }, { 1, 3, "ell" }, { 4, SIZE_MAX, "o" }, { 2, 0, "" },
		{ 5, 1, "" }, { UINT64_MAX, SIZE_MAX, "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct gather g;
		char got[8] = { 0 };

		gather_init(&g, NULL);
		assert_int_equal(gather_add_part(&g, span_str("hello"), cases[i].off, cases[i].n), 0);
		assert_int_equal(g.bytes, strlen(cases[i].want));
		assert_int_equal(gather_copy(&g, got), 0);
		assert_string_equal(got, cases[i].want);
		gather_release(&g);
	}
}

static void a_file_that_ends_early_is_an_error(void **state)
{
	struct world w;
	struct gather g;
	uint8_t got[100];

	world_open(&w);
	gather_init(&g, w.cache);
	assert_int_equal(gather_add_file(&g, io_file_ref(w.file), 4990, 20), 0);
	assert_int_equal(gather_copy(&g, got), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "ends at byte 5000"));
	gather_release(&g);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_adds_up),
		cmocka_unit_test(neighbouring_ranges_of_a_file_are_one),
		cmocka_unit_test(many_zeros_are_few_bytes),
		cmocka_unit_test(a_part_is_what_the_text_has_of_it),
		cmocka_unit_test(a_file_that_ends_early_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
