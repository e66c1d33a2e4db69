/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_write.c - a stream written in pieces of any size reads back equal; nothing is lost when
 * memory is short or a store fails.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/wire.h"
#include "core/zarr/stream.h"
#include "core/zarr/write/zarr_copy.h"
#include "core/zarr/write/zarr_write.h"

struct world {
	struct io_engine *io;
	struct cache *cache;
	struct pool *pool;
	struct budget read_budget, write_budget;
	struct streams *streams;
	struct zarr_env env;
	struct write_env we;
};

static void world_open(struct world *w, uint64_t budget, unsigned threads)
{
	const struct streams_opts so = { .window_limit = 16 * MiB, .decoder_limit = 64 * MiB };

	*w = (struct world){ 0 };
	assert_int_equal(io_engine_open("sync", &w->io), 0);
	assert_int_equal(cache_new(64 * MiB, &w->cache), 0);
	if (threads)
		assert_int_equal(pool_new(threads, &w->pool), 0);
	budget_init(&w->read_budget, "read_budget", 64 * MiB);
	budget_init(&w->write_budget, "write_budget", budget);
	assert_int_equal(streams_new(&so, &w->streams), 0);
	w->env = (struct zarr_env){ .io = w->io,
				    .pool = w->pool,
				    .cache = w->cache,
				    .budget = &w->read_budget,
				    .streams = w->streams };
	write_env_init(&w->we, &w->env, &w->write_budget);
}

static void world_close(struct world *w)
{
	pool_free(w->pool);
	assert_int_equal(w->write_budget.used, 0);
	write_env_release(&w->we);
	streams_free(w->streams);
	cache_free(w->cache);
	budget_release(&w->read_budget);
	budget_release(&w->write_budget);
	io_engine_close(w->io);
}

struct spec {
	unsigned rank;
	uint64_t shape[4], chunk[4];
	unsigned format;
	struct compression compression;
	bool sharded;
	enum dtype dtype;
};

static void spec_random(struct spec *s)
{
	static const enum dtype types[] = { DTYPE_UINT8, DTYPE_BFLOAT16, DTYPE_FLOAT32,
					    DTYPE_COMPLEX128 };

	*s = (struct spec){ .rank = (unsigned)rand() % 5, .format = rand() % 2 ? 2 : 3 };
	s->compression = rand() % 3 == 0 ?
				 compression_blosc() :
				 (struct compression){
					 .kind = rand() % 2 ? COMPRESSION_ZSTD : COMPRESSION_NONE,
					 .level = 1,
				 };
	s->sharded = s->format == 3 && rand() % 3;
	s->dtype = types[rand() % 4];
	for (unsigned i = 0; i < s->rank; i++) {
		s->shape[i] = 1 + (uint64_t)rand() % 9;
		s->chunk[i] = rand() % 4 ? 1 + (uint64_t)rand() % s->shape[i] :
					   1 + (uint64_t)rand() % 12;
	}
}

static void spec_json(const struct spec *s, struct buf *ret)
{
	struct zarr_create c = { .format = s->format,
				 .array = { s->dtype, s->rank, s->shape },
				 .chunk = s->chunk,
				 .compression = s->compression,
				 .sharded = s->sharded };

	assert_int_equal(zarr_meta_print(&c, ret), 0);
}

static uint8_t *random_bytes(size_t n)
{
	uint8_t *p = malloc(n + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(rand() % 7);
	return p;
}

static void check_stored(struct world *w, struct kv *kv, const uint8_t *want, uint64_t n)
{
	auto_free uint8_t *got = malloc(n + 1);
	struct zarr_view v;
	struct zarr *z;

	assert_int_equal(zarr_open(&w->env, kv, span_of(NULL, 0), cache_owner(), 0, &z), 0);
	assert_int_equal(z->meta.bytes, n);
	zarr_view_whole(&z->meta, &v);
	z->missing_is_error = true;
	if (zarr_read_into(z, &v, 0, n, got) < 0)
		fail_msg("cannot read back: %s", unit_last_note());
	assert_memory_equal(got, want, n);
	zarr_unref(z);
}

/* Append in pieces of random size, and read back now and then. */
static void append_all(struct zarr_writer *zw, const uint8_t *bytes, size_t n)
{
	for (size_t at = 0; at < n;) {
		size_t want = 1 + (size_t)rand() % 50, part = MIN(n - at, want), taken;
		int r = zarr_writer_append(zw, bytes + at, part, ZARR_WRITER_BLOCK, &taken);

		if (r < 0)
			fail_msg("append: %s", err_text(r));
		assert_int_equal(taken, part);
		at += part;
		if (rand() % 10 == 0) {
			size_t off = (size_t)rand() % at, len = 1 + (size_t)rand() % (at - off);
			auto_free uint8_t *back = malloc(len);

			assert_int_equal(zarr_writer_read(zw, off, len, back), 0);
			assert_memory_equal(back, bytes + off, len);
		}
	}
}

static void streams_read_back_equal(void **state)
{
	srand(11);
	for (int round = 0; round < 400; round++) {
		auto_buf json = { 0 };
		struct zarr_writer *zw;
		struct world w;
		struct spec s;
		struct kv *kv;
		uint64_t n;

		spec_random(&s);
		spec_json(&s, &json);
		world_open(&w, 4 * MiB, (unsigned)rand() % 3);
		assert_int_equal(kv_mem_new(w.io, &kv), 0);
		if (zarr_writer_open(&w.we, kv, buf_span(&json), ZARR_FILL_STORE, &zw) < 0)
			fail_msg("cannot open for %s: %s", buf_str(&json), unit_last_note());
		n = zarr_writer_array(zw)->meta.bytes;
		auto_free uint8_t *bytes = random_bytes(n);

		append_all(zw, bytes, n);
		assert_int_equal(zarr_writer_flush(zw), 0);
		zarr_writer_close(zw);
		check_stored(&w, kv, bytes, n);
		kv_free(kv);
		world_close(&w);
	}
}

static int from_memory(void *arg, uint64_t off, size_t n, void *p)
{
	memcpy(p, (const uint8_t *)arg + off, n);
	return 0;
}

static void chunks_beyond_the_budget_are_streamed(void **state)
{
	srand(12);
	for (int round = 0; round < 200; round++) {
		auto_buf json = { 0 };
		struct world w;
		struct spec s;
		struct kv *kv;
		uint64_t n;

		spec_random(&s);
		if (s.rank == 0)
			continue;
		spec_json(&s, &json);
		/* Nothing fits. */
		world_open(&w, 10, 2);
		assert_int_equal(kv_mem_new(w.io, &kv), 0);
		n = dtype_info(s.dtype)->size;
		for (unsigned i = 0; i < s.rank; i++)
			n *= s.shape[i];
		auto_free uint8_t *bytes = random_bytes(n);

		assert_int_equal(zarr_write_all(&w.we, kv, buf_span(&json), ZARR_FILL_STORE,
						from_memory, bytes),
				 0);
		check_stored(&w, kv, bytes, n);
		kv_free(kv);
		world_close(&w);
	}
}

/* A store that refuses the first `refuse` values. */
struct kv_full {
	struct kv base;
	struct kv *below;
	atomic_int refuse;
};

static int full_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_full *f = container_of(kv, struct kv_full, base);

	if (key.p[0] != '.' && atomic_fetch_sub(&f->refuse, 1) > 0)
		return fail(-ENOSPC, "no space for '%.*s'", SPAN_ARG(key));
	return kv_put(f->below, key, value);
}

static int full_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	return kv_locate(container_of(kv, struct kv_full, base)->below, key, ret, n);
}

static int full_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	return kv_list(container_of(kv, struct kv_full, base)->below, prefix, each, arg);
}

static int full_where(struct kv *kv, struct span key, struct buf *ret)
{
	return kv_where_text(container_of(kv, struct kv_full, base)->below, key, ret);
}

static void full_free(struct kv *kv)
{
	kv_free(container_of(kv, struct kv_full, base)->below);
	free(container_of(kv, struct kv_full, base));
}

static const struct kv_ops full_ops = { .name = "full",
					.locate = full_locate,
					.list = full_list,
					.put = full_put,
					.where_text = full_where,
					.free = full_free };

static void accepted_bytes_survive_a_full_store(void **state)
{
	static const uint64_t shape[1] = { 1000 }, chunk[1] = { 100 };
	struct zarr_create c = { .format = 2, .array = { DTYPE_UINT8, 1, shape }, .chunk = chunk };

	for (unsigned threads = 0; threads < 3; threads++) {
		struct kv_full *f = calloc(1, sizeof(*f));
		auto_free uint8_t *bytes = random_bytes(1000);
		uint8_t back[1000];
		auto_buf json = { 0 };
		struct zarr_writer *zw;
		struct world w;
		size_t at = 0, taken;
		int failures = 0;

		world_open(&w, 4 * MiB, threads);
		f->base = (struct kv){ .ops = &full_ops, .io = w.io, .name = strdup("full") };
		assert_int_equal(kv_mem_new(w.io, &f->below), 0);
		atomic_init(&f->refuse, 25);
		assert_int_equal(zarr_meta_print(&c, &json), 0);
		assert_int_equal(zarr_writer_open(&w.we, &f->base, buf_span(&json), ZARR_FILL_STORE,
						  &zw),
				 0);
		while (at < 1000) {
			int r = zarr_writer_append(zw, bytes + at, MIN((size_t)30, 1000 - at),
						   ZARR_WRITER_TRY, &taken);

			assert_true(r == 0 || r == -ENOSPC);
			failures += r < 0;
			at += taken;
			assert_int_equal(zarr_writer_read(zw, 0, at, back), 0);
			assert_memory_equal(back, bytes, at);
		}
		while (zarr_writer_flush(zw) < 0)
			failures++;
		assert_true(failures > 0);
		zarr_writer_close(zw);
		check_stored(&w, &f->base, bytes, 1000);
		kv_free(&f->base);
		world_close(&w);
	}
}

/* A writer that waits for memory must not wait for that of its own failed bands. */
static void a_full_store_ends_a_writer_that_waits(void **state)
{
	static const uint64_t shape[1] = { 1 << 22 }, chunk[1] = { 1 << 18 };
	struct zarr_create c = { .format = 2, .array = { DTYPE_UINT8, 1, shape }, .chunk = chunk };

	for (unsigned threads = 0; threads < 3; threads++) {
		struct kv_full *f = calloc(1, sizeof(*f));
		auto_free uint8_t *bytes = random_bytes(1 << 22);
		auto_buf json = { 0 };
		struct zarr_writer *zw;
		struct world w;
		size_t taken;
		int r;

		world_open(&w, 1 << 20, threads);
		f->base = (struct kv){ .ops = &full_ops, .io = w.io, .name = strdup("full") };
		assert_int_equal(kv_mem_new(w.io, &f->below), 0);
		assert_int_equal(zarr_meta_print(&c, &json), 0);
		assert_int_equal(zarr_writer_open(&w.we, &f->base, buf_span(&json), ZARR_FILL_STORE,
						  &zw),
				 0);
		atomic_init(&f->refuse, 1000);
		r = 0;
		for (size_t at = 0; at < 1 << 22 && r >= 0; at += 1 << 16)
			r = zarr_writer_append(zw, bytes + at, 1 << 16, ZARR_WRITER_BLOCK, &taken);
		assert_int_equal(r, -ENOSPC);
		assert_int_equal(zarr_writer_flush(zw), -ENOSPC);
		zarr_writer_close(zw);
		kv_free(&f->base);
		world_close(&w);
	}
}

/* ---- a check that ends the work ---- */

struct stop {
	atomic_uint asked, at; /* number of calls; from which one on it fails */
};

static int stop_check(void *arg)
{
	struct stop *s = arg;

	return atomic_fetch_add(&s->asked, 1) + 1 >= atomic_load(&s->at) ?
		       fail(-ECANCELED, "canceled") :
		       0;
}

/* A chunk of a slow level is encoded in pieces, which can be stopped, and whole later. */
static void a_check_ends_a_chunk_of_a_slow_codec(void **state)
{
	static const uint64_t shape[1] = { 1 << 20 };
	struct zarr_create c = {
		.format = 2,
		.array = { DTYPE_UINT8, 1, shape },
		.chunk = shape,
		.compression = { .kind = COMPRESSION_ZSTD, .level = 19 },
	};
	auto_free uint8_t *bytes = random_bytes(1 << 20);
	auto_buf json = { 0 };
	struct stop stop;
	struct zarr_writer *zw;
	struct world w;
	struct kv *kv;
	size_t taken;

	world_open(&w, 8 * MiB, 0);
	atomic_init(&stop.asked, 0);
	atomic_init(&stop.at, 4);
	w.we.check = stop_check;
	w.we.check_arg = &stop;
	assert_int_equal(kv_mem_new(w.io, &kv), 0);
	assert_int_equal(zarr_meta_print(&c, &json), 0);
	assert_int_equal(zarr_writer_open(&w.we, kv, buf_span(&json), ZARR_FILL_STORE, &zw), 0);
	/* The last byte fills the chunk, which is not encoded to its end. */
	assert_int_equal(zarr_writer_append(zw, bytes, 1 << 20, ZARR_WRITER_TRY, &taken), 0);
	assert_int_equal(stop.asked, 4);
	assert_int_equal(zarr_writer_flush(zw), -ECANCELED);
	atomic_store(&stop.at, ~0u);
	assert_int_equal(zarr_writer_flush(zw), 0);
	zarr_writer_close(zw);
	check_stored(&w, kv, bytes, 1 << 20);
	kv_free(kv);
	world_close(&w);
}

static void a_writer_without_memory_gets_an_error(void **state)
{
	static const uint64_t shape[1] = { 1 << 20 }, chunk[1] = { 100000 };
	struct zarr_create c = { .format = 2, .array = { DTYPE_UINT8, 1, shape }, .chunk = chunk };
	auto_buf json = { 0 };
	struct zarr_writer *a, *b;
	struct kv *ka, *kb;
	struct world w;
	uint8_t byte = 1;
	size_t taken;

	assert_int_equal(zarr_meta_print(&c, &json), 0);
	/* Room for one band. */
	world_open(&w, 300000, 1);
	assert_int_equal(kv_mem_new(w.io, &ka), 0);
	assert_int_equal(kv_mem_new(w.io, &kb), 0);
	assert_int_equal(zarr_writer_open(&w.we, ka, buf_span(&json), ZARR_FILL_STORE, &a), 0);
	assert_int_equal(zarr_writer_open(&w.we, kb, buf_span(&json), ZARR_FILL_STORE, &b), 0);
	assert_int_equal(zarr_writer_append(a, &byte, 1, ZARR_WRITER_TRY, &taken), 0);
	assert_int_equal(zarr_writer_append(b, &byte, 1, ZARR_WRITER_TRY, &taken), -EAGAIN);
	assert_int_equal(taken, 0);
	zarr_writer_close(a);
	assert_int_equal(zarr_writer_append(b, &byte, 1, ZARR_WRITER_TRY, &taken), 0);
	zarr_writer_close(b);
	kv_free(ka);
	kv_free(kb);
	world_close(&w);
}

/* Copy an array without stored chunks within that budget. */
static int copy_absent(uint64_t budget, uint64_t *ret_peak)
{
	static const char json[] =
		"{\"zarr_format\": 2, \"shape\": [2, 65536], \"chunks\": [1, 65536], "
		"\"dtype\": \"<f4\", \"compressor\": null, \"fill_value\": 1.5, "
		"\"filters\": null, \"order\": \"C\"}";
	struct world w;
	struct kv *from, *to;
	struct zarr *z;
	int r;

	world_open(&w, budget, 0);
	assert_int_equal(kv_mem_new(w.io, &from), 0);
	assert_int_equal(kv_mem_new(w.io, &to), 0);
	assert_int_equal(kv_put(from, span_str(".zarray"), span_str(json)), 0);
	assert_int_equal(zarr_open(&w.env, from, span_of(NULL, 0), cache_owner(), 0, &z), 0);
	r = zarr_copy(&w.we, z, to, span_str(json), ZARR_FILL_STORE);
	if (r > 0) {
		auto_buf chunk = { 0 };

		assert_int_equal(kv_get_all(to, span_str("1.0"), MiB, &chunk), 1);
		assert_int_equal(chunk.n, 65536 * 4);
		assert_int_equal(get_u32le(chunk.p + chunk.n - 4), 0x3fc00000);
	}
	*ret_peak = budget_peak(&w.write_budget);
	zarr_unref(z);
	kv_free(from);
	kv_free(to);
	world_close(&w);
	return r;
}

static void chunks_encoded_for_absent_ones_count_in_the_budget(void **state)
{
	uint64_t peak;

	assert_int_equal(copy_absent(4 * MiB, &peak), 1);
	assert_true(peak >= 256 * KiB);
	/* Then the caller writes the array as a stream. */
	assert_int_equal(copy_absent(128 * KiB, &peak), 0);
	assert_int_equal(peak, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_encoded_for_absent_ones_count_in_the_budget),
		cmocka_unit_test(streams_read_back_equal),
		cmocka_unit_test(chunks_beyond_the_budget_are_streamed),
		cmocka_unit_test(accepted_bytes_survive_a_full_store),
		cmocka_unit_test(a_full_store_ends_a_writer_that_waits),
		cmocka_unit_test(a_check_ends_a_chunk_of_a_slow_codec),
		cmocka_unit_test(a_writer_without_memory_gets_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
