/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_drop_behind.c - chunks that a sequential reader has passed, for any grid: never one that it has
 * not.
 */
#include "tests/unit/lib/zarr_make.h"

#include "core/zarr/chunk.h"

#define V2(shape, chunks)                                                            \
	"{\"zarr_format\":2,\"filters\":null,\"shape\":" shape ",\"chunks\":" chunks \
	",\"dtype\":\"<i4\","                                                        \
	"\"fill_value\":0,\"order\":\"C\",\"compressor\":{\"id\":\"zstd\",\"level\":1}}"

static const char *const docs[] = {
	V2("[1000]", "[100]"),       V2("[1000]", "[1]"),           V2("[1001]", "[100]"),
	V2("[40,30]", "[8,30]"),     V2("[41,30]", "[8,7]"),        V2("[6,20,10]", "[1,5,4]"),
	V2("[6,21,10]", "[1,5,10]"), V2("[3,2,10,7]", "[1,1,3,2]"), V2("[5,20]", "[1,20]"),
	V2("[5,20]", "[5,3]"),       V2("[7,8,9]", "[2,1,9]"),      V2("[]", "[]"),
	V2("[4,0]", "[2,1]"),
};

/* The end of the last element of a chunk, in C order of the array. */
static uint64_t end_of(const struct made *m, uint64_t number)
{
	uint64_t last[LIMIT_RANK];

	for (unsigned i = m->meta.rank; i > 0; i--) {
		uint64_t at = number % m->z->leaf_grid[i - 1];

		number /= m->z->leaf_grid[i - 1];
		last[i - 1] = MIN((at + 1) * m->z->leaf_chunk[i - 1], m->meta.shape[i - 1]) - 1;
	}
	return (made_index(m, last) + 1) * 4;
}

static void free_nothing(void *value)
{
}

/* Make room for an entry so large that exactly the drop-behind entries must be evicted. */
static void squeeze(struct cache *c)
{
	struct cache_key key = { cache_owner(), 0, 0 };
	struct cache_stats before, with, st;
	struct cache_entry *e;
	struct cache *other;

	/* The cost of an entry besides its charge. */
	assert_int_equal(cache_new(MiB, &other), 0);
	assert_int_equal(cache_begin(other, &key, &e), CACHE_MINE);
	cache_fill(other, e, &key, 0, free_nothing);
	cache_put(other, e);
	cache_stats(other, &with);
	cache_free(other);
	cache_stats(c, &before);
	assert_int_equal(cache_begin(c, &key, &e), CACHE_MINE);
	cache_fill(c, e, &key,
		   before.limit - (before.bytes - before.drop_behind_bytes) - with.bytes,
		   free_nothing);
	cache_put(c, e);
	cache_drop(c, key.owner);
	cache_stats(c, &st);
	assert_int_equal(st.bytes, before.bytes - before.drop_behind_bytes);
}

static void check(struct made *m, uint64_t from, uint64_t to, const char *what)
{
	auto_free uint8_t *all = malloc(m->meta.bytes + 1);
	uint64_t chunks = m->meta.bytes ? 1 : 0;
	struct zarr_view v;

	for (unsigned i = 0; i < m->meta.rank; i++)
		chunks *= m->z->leaf_grid[i];
	zarr_view_whole(&m->meta, &v);
	cache_drop(m->env.cache, m->z->owner);
	assert_int_equal(zarr_read_into(m->z, &v, 0, m->meta.bytes, all), 0);
	/* In steps, like a reader; chunks before `from` are not used again. */
	for (uint64_t at = from; at < to;) {
		uint64_t step = 1 + made_random(m, m->meta.bytes), next = MIN(to, at + step);

		zarr_drop_behind(m->z, &v, at, next);
		at = next;
	}
	squeeze(m->env.cache);
	for (uint64_t i = 0; i < chunks; i++) {
		struct cache_key key = chunk_whole_key(m->z, i);
		bool there = cache_has(m->env.cache, &key, CACHE_READY);

		if (!there && end_of(m, i) > to)
			fail_msg("%s: chunk %llu is gone at %llu", what, (unsigned long long)i,
				 (unsigned long long)to);
		if (there && m->meta.rank && from == 0 && to == m->meta.bytes)
			fail_msg("%s: chunk %llu stays", what, (unsigned long long)i);
	}
}

static void only_chunks_before_the_reader_are_dropped(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m;

		made_array(&m, docs[i], &(struct made_opts){ .seed = i });
		check(&m, 0, m.meta.bytes, docs[i]);
		for (int k = 0; k < 50; k++) {
			uint64_t to = made_random(&m, m.meta.bytes + 1),
				 from = made_random(&m, to + 1);

			check(&m, k % 2 ? from : 0, to, docs[i]);
		}
		made_release(&m);
	}
}

/*
 * Large chunks are decoded in pieces, which are dropped one by one; but not those of chunks that
 * are beside others.
 */
static void pieces_of_large_chunks_are_dropped(void **state)
{
	static const char *const large[] = { V2("[6500000]", "[5000000]"),
					     V2("[2,3250000]", "[1,3250000]"),
					     V2("[6500,1000]", "[5000,1000]"),
					     V2("[5000,1300]", "[5000,900]") };

	for (size_t i = 0; i < ARRAY_LEN(large); i++) {
		uint64_t chunk, pieces, visited = 0;
		struct cache_stats st;
		struct zarr_view v;
		struct made m;
		auto_free uint8_t *all = malloc(26000000);

		made_array(&m, large[i], &(struct made_opts){ .seed = i, .smooth = true });
		chunk = m.z->leaf->bytes;
		pieces = (chunk + STREAM_PIECE_BYTES - 1) / STREAM_PIECE_BYTES;
		zarr_view_whole(&m.meta, &v);
		assert_true(chunk_is_streamed(m.z));
		assert_int_equal(zarr_read_into(m.z, &v, 0, v.bytes, all), 0);
		zarr_drop_behind(m.z, &v, 0, 7000000);
		zarr_drop_behind(m.z, &v, 7000000, 15000000);
		cache_stats(m.env.cache, &st);
		assert_int_equal(st.drop_behind_bytes > 0, i < 3);
		squeeze(m.env.cache);
		for (uint64_t k = 0; k < 2 * pieces && i < 3; k++) {
			struct cache_key key = stream_piece_key(m.z, k / pieces, k % pieces);
			uint64_t end = k / pieces * chunk +
				       MIN((k % pieces + 1) * STREAM_PIECE_BYTES, chunk);

			if (k / pieces * chunk + k % pieces * STREAM_PIECE_BYTES >= v.bytes)
				continue;
			assert_int_equal(cache_has(m.env.cache, &key, CACHE_READY), end > 15000000);
			visited++;
		}
		assert_true(i == 3 || visited >= v.bytes / STREAM_PIECE_BYTES);
		made_release(&m);
	}
}

/* A view of a part of an array does not show what else is read of it. */
static void views_drop_nothing(void **state)
{
	struct cache_stats st;
	struct zarr_view v;
	uint8_t all[4000];
	struct made m;

	made_array(&m, docs[0], &(struct made_opts){ .seed = 1 });
	zarr_view_whole(&m.meta, &v);
	assert_int_equal(zarr_read_into(m.z, &v, 0, 4000, all), 0);
	assert_int_equal(zarr_view_slice(&v, 0, 0, 2, 500, false), 0);
	assert_int_equal(zarr_view_finish(&v), 0);
	zarr_drop_behind(m.z, &v, 0, 2000);
	cache_stats(m.env.cache, &st);
	assert_int_equal(st.drop_behind_bytes, 0);
	made_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_chunks_before_the_reader_are_dropped),
		cmocka_unit_test(pieces_of_large_chunks_are_dropped),
		cmocka_unit_test(views_drop_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
