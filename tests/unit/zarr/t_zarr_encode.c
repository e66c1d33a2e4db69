/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_encode.c - the chunks of a band that several threads encode: how many at a time, which
 * ones are stored, and errors of one of them.
 */
#include "tests/unit/lib/nomem.h"

#include <stdatomic.h>

#include "core/zarr/stream.h"
#include "core/zarr/write/zarr_encode.h"

#define CHUNK (256 * KiB) /* of the array below; smaller ones are not worth a thread each */
#define CHUNKS 12

/* A band of chunks beside one another; the last one is half outside the array. */
static const uint64_t shape[2] = { 512, 256 * CHUNKS - 128 }, chunk[2] = { 256, 256 };

/* A store that counts the values of each chunk of a band, and refuses some. */
struct kv_watch {
	struct kv base;
	struct kv *below;
	int fail[2];            /* columns of chunks that are refused; -1: none */
	atomic_uint puts;       /* all calls */
	atomic_uint at[CHUNKS]; /* of each column */
};

static int watch_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_watch *w = container_of(kv, struct kv_watch, base);
	char name[16];
	int row, column;

	assert_true(key.n < sizeof(name));
	memcpy(name, key.p, key.n);
	name[key.n] = 0;
	assert_int_equal(sscanf(name, "%d.%d", &row, &column), 2);
	atomic_fetch_add(&w->puts, 1);
	atomic_fetch_add(&w->at[column], 1);
	if (column == w->fail[0] || column == w->fail[1])
		return fail(-ENOSPC, "no space for '%s'", name);
	return kv_put(w->below, key, value);
}

static void watch_free(struct kv *kv)
{
	kv_free(container_of(kv, struct kv_watch, base)->below);
	free(container_of(kv, struct kv_watch, base));
}

static const struct kv_ops watch_ops = { .name = "watch", .put = watch_put, .free = watch_free };

struct world {
	struct io_engine *io;
	struct cache *cache;
	struct budget budget;
	struct streams *streams;
	struct zarr_env env;
	struct write_env we;
	struct zarr *z;
	struct kv *meta;
	struct kv_watch *kv;
	uint8_t *bytes; /* the array */
};

static void world_open(struct world *w, unsigned threads, struct compression compression)
{
	const struct streams_opts so = { .window_limit = 16 * MiB };
	struct zarr_create c = { .format = 2,
				 .array = { DTYPE_UINT32, 2, shape },
				 .chunk = chunk,
				 .compression = compression };
	auto_buf json = { 0 };

	*w = (struct world){ 0 };
	assert_int_equal(io_engine_open("sync", &w->io), 0);
	assert_int_equal(cache_new(64 * MiB, &w->cache), 0);
	budget_init(&w->budget, "budget", 64 * MiB);
	assert_int_equal(streams_new(&so, &w->streams), 0);
	w->env = (struct zarr_env){
		.io = w->io, .cache = w->cache, .budget = &w->budget, .streams = w->streams
	};
	if (threads)
		assert_int_equal(pool_new(threads, &w->env.pool), 0);
	write_env_init(&w->we, &w->env, &w->budget);
	assert_int_equal(kv_mem_new(w->io, &w->meta), 0);
	assert_int_equal(zarr_meta_print(&c, &json), 0);
	assert_int_equal(kv_put(w->meta, span_str(".zarray"), buf_span(&json)), 0);
	assert_int_equal(zarr_open(&w->env, w->meta, span_of(NULL, 0), cache_owner(), 0, &w->z), 0);
	w->kv = calloc(1, sizeof(*w->kv));
	w->kv->base = (struct kv){ .ops = &watch_ops, .io = w->io, .name = strdup("watch") };
	w->kv->fail[0] = w->kv->fail[1] = -1;
	assert_int_equal(kv_mem_new(w->io, &w->kv->below), 0);
	w->bytes = malloc(w->z->meta.bytes);
	for (uint64_t i = 0; i < w->z->meta.bytes; i++)
		w->bytes[i] = (uint8_t)(i / 5000 + i % 3);
}

static void world_close(struct world *w)
{
	pool_free(w->env.pool);
	zarr_unref(w->z);
	kv_free(w->meta);
	kv_free(&w->kv->base);
	write_env_release(&w->we);
	streams_free(w->streams);
	cache_free(w->cache);
	budget_release(&w->budget);
	io_engine_close(w->io);
	free(w->bytes);
}

static struct encode_plan plan_of(const struct world *w, uint64_t budget)
{
	struct encode_plan plan;

	assert_int_equal(encode_plan(w->z, budget, &plan), 0);
	return plan;
}

static int encode(struct world *w, const struct encode_plan *plan, unsigned band)
{
	uint64_t at = band * plan->band_bytes;

	return encode_band(&w->we, &w->kv->base, w->z, plan, at, w->bytes + at);
}

/* The array as it reads from the store. */
static void check_stored(struct world *w)
{
	auto_free uint8_t *got = malloc(w->z->meta.bytes);
	auto_buf json = { 0 };
	struct zarr_view v;
	struct zarr *z;

	assert_int_equal(kv_get_all(w->meta, span_str(".zarray"), MiB, &json), 1);
	assert_int_equal(kv_put(w->kv->below, span_str(".zarray"), buf_span(&json)), 0);
	assert_int_equal(zarr_open(&w->env, w->kv->below, span_of(NULL, 0), cache_owner(), 0, &z),
			 0);
	z->missing_is_error = true;
	zarr_view_whole(&z->meta, &v);
	assert_int_equal(zarr_read_into(z, &v, 0, v.bytes, got), 0);
	assert_memory_equal(got, w->bytes, v.bytes);
	zarr_unref(z);
}

/* ---- how many at a time ---- */

static void memory_and_threads_bound_the_tasks(void **state)
{
	for (unsigned threads = 0; threads <= 4; threads += 2) {
		struct encode_plan plan;
		struct world w;

		world_open(&w, threads, (struct compression){ .kind = COMPRESSION_NONE });
		plan = plan_of(&w, 64 * MiB);
		assert_int_equal(plan.band_bytes, 256 * shape[1] * 4);
		assert_int_equal(plan.chunk_cost, CHUNK + 64 * KiB);
		assert_int_equal(plan.tasks, MAX(threads, 1u));
		/* The band alone, then with room for three chunks. */
		assert_int_equal(plan_of(&w, 0).tasks, 1);
		assert_int_equal(plan_of(&w, plan.band_bytes).tasks, 1);
		plan = plan_of(&w, plan.band_bytes + 3 * plan.chunk_cost + 1);
		assert_int_equal(plan.tasks, MAX(MIN(threads, 3u), 1u));
		assert_true(encode_band_cost(&plan) <= plan.band_bytes + 3 * plan.chunk_cost + 1 ||
			    threads < 4);
		world_close(&w);
	}
}

/* ---- what is stored ---- */

static void each_chunk_is_stored_once(void **state)
{
	static const struct compression kinds[] = { { .kind = COMPRESSION_NONE },
						    { .kind = COMPRESSION_ZSTD, .level = 1 } };

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
		/* More tasks than threads, and than chunks, are allowed. */
		for (unsigned tasks = 1; tasks <= 64; tasks *= 4) {
			struct encode_plan plan;
			struct world w;

			world_open(&w, 4, kinds[k]);
			plan = plan_of(&w, 64 * MiB);
			plan.tasks = tasks;
			assert_int_equal(encode(&w, &plan, 1), 0);
			assert_int_equal(encode(&w, &plan, 0), 0);
			for (unsigned i = 0; i < CHUNKS; i++)
				assert_int_equal(w.kv->at[i], 2);
			assert_int_equal(w.we.chunks, 2 * CHUNKS);
			assert_int_equal(w.we.chunk_bytes, 2 * CHUNKS * CHUNK);
			check_stored(&w);
			world_close(&w);
		}
}

static void chunks_of_the_fill_value_are_left_out_by_each_task(void **state)
{
	struct encode_plan plan;
	struct world w;

	world_open(&w, 4, (struct compression){ .kind = COMPRESSION_ZSTD, .level = 1 });
	plan = plan_of(&w, 64 * MiB);
	plan.omit_fill = true;
	memset(w.bytes, 0, w.z->meta.bytes);
	/* One element of column 3 and of the last one. */
	w.bytes[3 * 1024] = w.bytes[plan.row_bytes - 1] = 1;
	assert_int_equal(encode(&w, &plan, 0), 0);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(w.kv->at[i], i == 3 || i == CHUNKS - 1);
	assert_int_equal(w.we.chunks, 2);
	world_close(&w);
}

/* ---- errors ---- */

static void an_error_of_one_task_is_the_error_of_the_band(void **state)
{
	for (int column = 0; column < CHUNKS; column += CHUNKS - 1)
		for (unsigned tasks = 1; tasks <= 8; tasks *= 2) {
			struct encode_plan plan;
			char name[16];
			struct world w;

			world_open(&w, tasks > 1 ? 4 : 0,
				   (struct compression){ .kind = COMPRESSION_ZSTD, .level = 1 });
			plan = plan_of(&w, 64 * MiB);
			plan.tasks = tasks;
			w.kv->fail[0] = column;
			assert_int_equal(encode(&w, &plan, 0), -ENOSPC);
			snprintf(name, sizeof(name), "'0.%d'", column);
			assert_non_null(strstr(err_text(-ENOSPC), name));
			/* No other chunk is begun. Other tasks may end before this one has failed. */
			if (tasks == 1)
				assert_int_equal(w.kv->puts, column + 1);
			/* The same band again. */
			w.kv->fail[0] = -1;
			assert_int_equal(encode(&w, &plan, 0), 0);
			assert_int_equal(encode(&w, &plan, 1), 0);
			check_stored(&w);
			world_close(&w);
		}
}

static void of_two_errors_one_is_reported_whole(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct encode_plan plan;
		const char *text;
		struct world w;

		world_open(&w, 4, (struct compression){ .kind = COMPRESSION_NONE });
		plan = plan_of(&w, 64 * MiB);
		w.kv->fail[0] = 0;
		w.kv->fail[1] = 1;
		assert_int_equal(encode(&w, &plan, 0), -ENOSPC);
		text = err_text(-ENOSPC);
		assert_true(strstr(text, "no space for '0.0'") ||
			    strstr(text, "no space for '0.1'"));
		world_close(&w);
	}
}

/* Each allocation of a band fails once, in whichever task makes it. */
static void every_allocation_may_fail(void **state)
{
	unsigned n = 1;
	bool is_over = false;

	for (; !is_over; n++) {
		struct encode_plan plan;
		struct world w;
		int r;

		/* Without a pool, whose threads would count the allocations at the same time. */
		world_open(&w, 0, (struct compression){ .kind = COMPRESSION_ZSTD, .level = 1 });
		plan = plan_of(&w, 64 * MiB);
		plan.tasks = 3;
		count = 0;
		fail_at = n;
		r = encode(&w, &plan, 0);
		is_over = count < fail_at;
		fail_at = 0;
		assert_int_equal(r, is_over ? 0 : -ENOMEM);
		assert_int_equal(encode(&w, &plan, 0), 0);
		assert_int_equal(encode(&w, &plan, 1), 0);
		check_stored(&w);
		world_close(&w);
	}
	assert_true(n > CHUNKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_and_threads_bound_the_tasks),
		cmocka_unit_test(each_chunk_is_stored_once),
		cmocka_unit_test(chunks_of_the_fill_value_are_left_out_by_each_task),
		cmocka_unit_test(an_error_of_one_task_is_the_error_of_the_band),
		cmocka_unit_test(of_two_errors_one_is_reported_whole),
		cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
