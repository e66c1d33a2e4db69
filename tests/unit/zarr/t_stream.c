/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_stream.c - chunks too large to hold: any piece by any reader, with and without a spill file, in
 * bounded memory, and after temporary and permanent errors.
 */
#include "tests/unit/lib/zarr_make.h"

#include <signal.h>
#include <sys/resource.h>

#include "core/zarr/chunk.h"
#include "core/zarr/stream_impl.h"

#define DOC(codecs)                                                                                               \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[2,6000000],\"data_type\":\"uint8\","               \
	"\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2,6000000]}}," \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"}" codecs                   \
	"]}"
#define ZSTD ",{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":true}}"
#define GZIP ",{\"name\":\"gzip\",\"configuration\":{\"level\":1}}"
#define BLOSC(block)                                                               \
	",{\"name\":\"blosc\",\"configuration\":{\"cname\":\"zstd\",\"clevel\":1," \
	"\"shuffle\":\"shuffle\",\"typesize\":2,\"blocksize\":" block "}}"
#define CRC ",{\"name\":\"crc32c\"}"

static const char zstd_doc[] = DOC(ZSTD);
static const char raw_doc[] = DOC("");
static const char big_endian_doc[] =
	"{\"zarr_format\":2,\"shape\":[3000000],\"chunks\":[3000000],\"dtype\":\">i4\",\"fill_value\":0,\"filters\":null,"
	"\"order\":\"C\",\"compressor\":null}";
static const char transposed_doc[] =
	"{\"zarr_format\":2,\"shape\":[1500,2000],\"chunks\":[1500,2000],\"dtype\":\"<u4\",\"fill_value\":0,"
	"\"filters\":null,\"order\":\"F\",\"compressor\":{\"id\":\"zstd\",\"level\":1}}";

static uint64_t bytes_of(const struct made *m)
{
	return m->meta.bytes;
}

static void check_read(struct made *m, uint64_t off, size_t n)
{
	auto_free uint8_t *got = malloc(n + 1);
	struct zarr_view v;
	int r;

	zarr_view_whole(&m->meta, &v);
	r = zarr_read_into(m->z, &v, off, n, got);
	if (r < 0)
		fail_msg("[%llu, +%zu): %s", (unsigned long long)off, n, err_text(r));
	if (memcmp(got, m->want + off, n))
		fail_msg("wrong bytes in [%llu, +%zu)", (unsigned long long)off, n);
}

static void read_all(struct made *m)
{
	for (uint64_t off = 0; off < bytes_of(m); off += 700001)
		check_read(m, off, (size_t)MIN((uint64_t)700001, bytes_of(m) - off));
}

static struct streams_stats stats_of(struct made *m)
{
	struct streams_stats s;

	streams_stats(m->env.streams, &s);
	return s;
}

/* ---- one reader ---- */

static const char *const docs[] = { zstd_doc, DOC(GZIP),      DOC(ZSTD CRC),           DOC(CRC),
				    raw_doc,  big_endian_doc, DOC(BLOSC("524288") CRC) };

static void a_sequential_reader_decodes_once(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(docs); i++)
		for (unsigned threads = 0; threads < 3; threads += 2) {
			/* The cache holds little more than a piece. */
			struct made_opts o = { .smooth = true,
					       .cache = 2 * MiB,
					       .threads = threads,
					       .in_file = true };
			struct made m;

			made_array(&m, docs[i], &o);
			read_all(&m);
			assert_int_equal(stats_of(&m).restarts, 0);
			assert_int_equal(stats_of(&m).spill_bytes, 0);
			made_release(&m);
		}
}

/* The number of bytes of pieces that were decoded so far. */
static uint64_t decoded(struct made *m)
{
	return m->env.chunk_bytes_decoded;
}

static void jump_about(struct made *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t off = made_random(m, bytes_of(m));

		check_read(m, off, (size_t)MIN(made_random(m, 100000) + 1, bytes_of(m) - off));
	}
}

static void a_reader_that_jumps_is_served_from_the_spill_file(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 2 * MiB,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 64 * MiB } };
	struct made m;

	made_array(&m, zstd_doc, &o);
	jump_about(&m, 100);
	/* Decoded once until the reader jumps, and once into the file. */
	assert_true(decoded(&m) <= 2 * bytes_of(&m));
	assert_true(stats_of(&m).restarts <= 1);
	assert_true(stats_of(&m).spill_reads > 20);
	assert_int_equal(stats_of(&m).spill_bytes, bytes_of(&m));
	jump_about(&m, 100);
	assert_true(decoded(&m) <= 2 * bytes_of(&m));
	made_release(&m);
}

/* Block sizes that divide a piece, that do not, and that are larger than one. */
static const char *const blosc_docs[] = { DOC(BLOSC("524288")), DOC(BLOSC("393216")),
					  DOC(BLOSC("2000000")) };

static void blocks_are_decoded_independently(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(blosc_docs); i++) {
		struct made_opts o = { .smooth = true, .cache = 4 * MiB, .in_file = true };
		struct made m;

		made_array(&m, blosc_docs[i], &o);
		/* The bytes of one piece, and of the one or two blocks that it is in. */
		check_read(&m, 7 * MiB + 100, 4096);
		assert_int_equal(decoded(&m), STREAM_PIECE_BYTES);
		assert_true(m.env.chunk_bytes_stored > 0 &&
			    m.env.chunk_bytes_stored < bytes_of(&m) / 3);
		jump_about(&m, 20);
		assert_int_equal(stats_of(&m).restarts, 0);
		assert_int_equal(stats_of(&m).spill_bytes, 0);
		assert_int_equal(stats_of(&m).decoder_peak_bytes, 0);
		made_release(&m);
	}
}

static void blocks_are_decoded_in_parallel(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(blosc_docs); i++) {
		struct made_opts o = { .smooth = true, .cache = 32 * MiB, .threads = 2 };
		struct zarr_view v;
		struct made m;

		made_array(&m, blosc_docs[i], &o);
		zarr_view_whole(&m.meta, &v);
		for (uint64_t off = 0; off < bytes_of(&m); off += 2 * MiB) {
			zarr_prefetch(m.z, &v, off, 4 * MiB, NULL);
			check_read(&m, off, (size_t)MIN(2 * MiB, bytes_of(&m) - off));
		}
		/* Once, whichever thread was first. */
		assert_int_equal(decoded(&m), bytes_of(&m));
		made_release(&m);
	}
}

static void without_a_spill_file_it_is_slow_but_correct(void **state)
{
	static const struct streams_opts none[] = {
		{ .spill_dir = NULL, .spill_limit = 64 * MiB },
		{ .spill_dir = "/tmp", .spill_limit = 11 * MiB }, /* too little */
		{ .spill_dir = "/nonexistent", .spill_limit = 64 * MiB },
		{ .spill_dir = "/proc", .spill_limit = 64 * MiB },
	};

	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		struct made_opts o = { .smooth = true, .cache = 2 * MiB, .streams = none[i] };
		struct made m;

		made_array(&m, zstd_doc, &o);
		jump_about(&m, 30);
		assert_true(stats_of(&m).restarts > 5);
		assert_int_equal(stats_of(&m).spill_reads, 0);
		assert_int_equal(stats_of(&m).spill_bytes, 0);
		made_release(&m);
	}
}

static void a_spill_file_that_cannot_grow_is_still_read(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 2 * MiB,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 64 * MiB } };
	struct rlimit old, small;
	struct made m;

	made_array(&m, zstd_doc, &o);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 5 * MiB + 12345;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	jump_about(&m, 40);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_true(stats_of(&m).spill_reads > 3);
	assert_true(stats_of(&m).restarts > 3);
	made_release(&m);
}

static void a_cache_smaller_than_a_piece_is_enough(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 1,
			       .threads = 2,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 64 * MiB } };
	struct made m;

	made_array(&m, zstd_doc, &o);
	read_all(&m);
	jump_about(&m, 30);
	made_release(&m);
}

static void strides_and_orders_through_pieces(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 3 * MiB,
			       .threads = 2,
			       .in_file = true,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 64 * MiB } };
	struct made m;

	made_array(&m, transposed_doc, &o);
	for (int i = 0; i < 20; i++) {
		uint64_t off = made_random(&m, bytes_of(&m));

		check_read(&m, off, (size_t)MIN((uint64_t)9000, bytes_of(&m) - off));
	}
	made_release(&m);
}

/* ---- prefetch ---- */

static void prefetched_pieces_are_there(void **state)
{
	struct made_opts o = { .smooth = true, .threads = 2, .in_file = true };
	struct zarr_view v;
	struct made m;

	made_array(&m, zstd_doc, &o);
	zarr_view_whole(&m.meta, &v);
	zarr_prefetch(m.z, &v, 0, 5 * MiB, NULL);
	/* Queued jobs run before the pool ends. */
	pool_free(m.env.pool);
	m.env.pool = NULL;
	assert_int_equal(decoded(&m), 5 * MiB);
	read_all(&m);
	assert_int_equal(decoded(&m), bytes_of(&m));
	made_release(&m);
}

/* ---- several chunks: decoders share their memory ---- */

static const char many_doc[] =
	"{\"zarr_format\":2,\"shape\":[20,4400000],\"chunks\":[1,4400000],\"dtype\":\"|u1\",\"fill_value\":0,"
	"\"filters\":null,\"order\":\"C\",\"compressor\":{\"id\":\"zstd\",\"level\":1}}";

static void decoders_stay_below_their_limit(void **state)
{
	/* Room for the largest decoder, but not for two. */
	struct made_opts o = { .smooth = true,
			       .cache = 3 * MiB,
			       .threads = 2,
			       .streams = { .window_limit = 9 * MiB, .decoder_limit = 18 * MiB } };
	struct zarr_view v;
	uint8_t got[20], want[20];
	struct made m;

	made_array(&m, many_doc, &o);
	zarr_view_whole(&m.meta, &v);
	/* A column: one byte of each of 20 chunks, all open at once. */
	for (int column = 0; column < 5; column++) {
		struct zarr_view c = v;

		assert_int_equal(zarr_view_slice(&c, 1, 880000u * (unsigned)column, 1, 1, true), 0);
		assert_int_equal(zarr_view_finish(&c), 0);
		assert_int_equal(zarr_read_into(m.z, &c, 0, 20, got), 0);
		for (int i = 0; i < 20; i++)
			want[i] = m.want[(size_t)i * 4400000 + 880000u * (unsigned)column];
		assert_memory_equal(got, want, 20);
	}
	assert_true(stats_of(&m).decoder_peak_bytes <= 18 * MiB &&
		    stats_of(&m).decoder_peak_bytes > 0);
	made_release(&m);
}

/*
 * With a large cache a frame may have a large history, and with a small budget there is little
 * memory: these frames need less.
 */
static void chunks_read_in_turns_keep_their_decoders(void **state)
{
	static const struct streams_opts limits[] = {
		{ .window_limit = 256 * MiB, .decoder_limit = 256 * MiB },
		{ .window_limit = 9 * MiB, .decoder_limit = 16 * MiB }
	};

	for (size_t k = 0; k < ARRAY_LEN(limits); k++) {
		struct made_opts o = { .smooth = true, .cache = 16 * MiB, .streams = limits[k] };
		struct made m;

		made_array(&m, many_doc, &o);
		for (unsigned off = 0; off < 4400000; off += 550000)
			for (unsigned i = 0; i < 3; i++)
				check_read(&m, 4400000u * i + off, 550000);
		assert_int_equal(stats_of(&m).restarts, 0);
		assert_int_equal(decoded(&m), 3 * 4400000);
		made_release(&m);
	}
}

static void idle_streams_are_limited(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 1,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 5 * MiB } };
	struct made m;

	made_array(&m, many_doc, &o);
	for (int turn = 0; turn < 3; turn++)
		for (unsigned i = 0; i < 20; i++) {
			check_read(&m, 4400000u * i + 4000000, 100);
			check_read(&m, 4400000u * i + 5, 100);
		}
	assert_true(stats_of(&m).live <= 20);
	assert_true(stats_of(&m).spill_bytes <= 5 * MiB);
	assert_true(stats_of(&m).decoder_bytes <= 16 * (4 * MiB));
	streams_drop(m.env.streams, m.z->owner);
	assert_int_equal(stats_of(&m).live, 0);
	assert_int_equal(stats_of(&m).spill_bytes, 0);
	assert_int_equal(stats_of(&m).decoder_bytes, 0);
	made_release(&m);
}

/* ---- errors ---- */

static int read_at(struct made *m, uint64_t off)
{
	struct zarr_view v;
	uint8_t got[10];
	int r;

	zarr_view_whole(&m->meta, &v);
	r = zarr_read_into(m->z, &v, off, sizeof(got), got);
	if (r >= 0)
		assert_memory_equal(got, m->want + off, sizeof(got));
	return r;
}

static void an_error_of_the_disk_is_temporary(void **state)
{
	for (unsigned n = 1; n < 40; n++) {
		char io[64];
		struct made_opts o = { .io = io, .in_file = true, .cache = 2 * MiB };
		struct made m;
		bool failed = false;

		snprintf(io, sizeof(io), "fault(read:eio:%u):sync", n);
		made_array(&m, zstd_doc, &o);
		for (uint64_t off = 0; off + 10 < bytes_of(&m); off += MiB / 2) {
			int r = read_at(&m, off);

			failed |= r < 0;
			if (r < 0) {
				assert_int_equal(r, -EIO);
				assert_int_equal(read_at(&m, off), 0);
			}
		}
		if (!failed && n > 5) {
			made_release(&m);
			return;
		}
		assert_true(failed);
		made_release(&m);
	}
	fail_msg("reading never ended");
}

/* Change one byte of the chunk's object in the memory store. */
static void damage(struct made *m, double where)
{
	auto_buf object = { 0 };

	assert_int_equal(kv_get_all(m->kv, span_str("a/c/0/0"), 64 * MiB, &object), 1);
	object.p[(size_t)((double)(object.n - 1) * where)] ^= 0x10;
	assert_int_equal(kv_put(m->kv, span_str("a/c/0/0"), buf_span(&object)), 0);
}

static void an_error_of_the_bytes_is_permanent(void **state)
{
	struct made_opts o = { .cache = 2 * MiB, .threads = 2 };
	struct made m;
	int r = 0, again;
	uint64_t off;

	made_array(&m, DOC(ZSTD CRC), &o);
	damage(&m, 0.6);
	for (off = 0; off + 10 < bytes_of(&m) && r >= 0; off += MiB / 2)
		r = read_at(&m, off);
	assert_true(r == -EUCLEAN || r == -EBADMSG);
	assert_non_null(strstr(err_text(r), "c/0/0"));
	again = read_at(&m, bytes_of(&m) - 10);
	assert_int_equal(again, r);
	assert_non_null(strstr(err_text(again), "c/0/0"));
	made_release(&m);
}

static void a_wrong_checksum_is_found_at_the_end(void **state)
{
	struct made_opts o = { .cache = 64 * MiB };
	struct made m;

	made_array(&m, DOC(CRC), &o);
	damage(&m, 1.0);
	for (uint64_t off = 0; off + MiB < bytes_of(&m); off += MiB)
		assert_int_equal(read_at(&m, off), 0);
	assert_int_equal(read_at(&m, bytes_of(&m) - 10), -EBADMSG);
	made_release(&m);
}

static void a_window_beyond_the_limit_is_refused(void **state)
{
	struct made_opts o = { .streams = { .window_limit = 100 * KiB } };
	struct made m;
	int r;

	made_array(&m, zstd_doc, &o);
	r = read_at(&m, 0);
	assert_int_equal(r, -EFBIG);
	made_release(&m);
}

static void a_raw_chunk_of_another_length_is_an_error(void **state)
{
	struct made_opts o = { 0 };
	struct made m;

	made_array(&m, raw_doc, &o);
	assert_int_equal(kv_put(m.kv, span_str("a/c/0/0"), span_of(m.want, 11999999)), 0);
	assert_int_equal(read_at(&m, 0), -EUCLEAN);
	made_release(&m);
}

/* ---- many readers ---- */

struct reader {
	struct made *m;
	uint64_t seed, from, step;
	unsigned reads, errors;
};

static void *run_reader(void *arg)
{
	struct reader *rd = arg;
	struct made dice = { .random = rd->seed };
	auto_free uint8_t *got = malloc(100000);
	struct zarr_view v;

	zarr_view_whole(&rd->m->meta, &v);
	for (unsigned i = 0; i < rd->reads; i++) {
		uint64_t off = rd->step ? (rd->from + i * rd->step) % v.bytes :
					  made_random(&dice, v.bytes);
		size_t n = (size_t)MIN((uint64_t)90000, v.bytes - off);

		if (zarr_read_into(rd->m->z, &v, off, n, got) < 0 ||
		    memcmp(got, rd->m->want + off, n))
			rd->errors++;
		if (rd->step)
			zarr_prefetch(rd->m->z, &v, off, 4 * MiB, NULL);
	}
	return NULL;
}

static void run_readers(struct made *m, struct reader *rd, size_t n)
{
	pthread_t thread[16];

	for (size_t i = 0; i < n; i++) {
		rd[i].m = m;
		assert_int_equal(pthread_create(&thread[i], NULL, run_reader, &rd[i]), 0);
	}
	for (size_t i = 0; i < n; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(rd[i].errors, 0);
	}
}

static void two_readers_far_apart(void **state)
{
	static const struct streams_opts spills[] = {
		{ .spill_dir = "/tmp", .spill_limit = 64 * MiB }, { .spill_dir = NULL }
	};

	for (size_t i = 0; i < ARRAY_LEN(spills); i++) {
		struct made_opts o = {
			.smooth = true, .cache = 2 * MiB, .threads = 2, .streams = spills[i]
		};
		struct reader rd[2] = { { .from = 0, .step = 300000, .reads = 25 },
					{ .from = 8000000, .step = 300000, .reads = 25 } };
		struct made m;

		made_array(&m, zstd_doc, &o);
		run_readers(&m, rd, 2);
		if (i == 0)
			assert_true(decoded(&m) <= 3 * bytes_of(&m));
		made_release(&m);
	}
}

static void many_threads_at_once(void **state)
{
	const char *const some[] = { zstd_doc, raw_doc, many_doc };

	for (size_t i = 0; i < ARRAY_LEN(some); i++) {
		struct made_opts o = { .smooth = true,
				       .cache = 4 * MiB,
				       .threads = 3,
				       .in_file = true,
				       .streams = { .spill_dir = "/tmp",
						    .spill_limit = 30 * MiB,
						    .window_limit = 9 * MiB,
						    .decoder_limit = 20 * MiB } };
		struct reader rd[8] = { { .seed = 1, .reads = 40 },
					{ .seed = 2, .reads = 40 },
					{ .seed = 3, .reads = 40 },
					{ .seed = 4, .reads = 40 },
					{ .from = 0, .step = 90000, .reads = 100 },
					{ .from = 0, .step = 90000, .reads = 100 },
					{ .from = 5000000, .step = 90000, .reads = 60 },
					{ .from = 9000000, .step = 2000000, .reads = 30 } };
		struct made m;

		made_array(&m, some[i], &o);
		run_readers(&m, rd, ARRAY_LEN(rd));
		made_release(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sequential_reader_decodes_once),
		cmocka_unit_test(a_reader_that_jumps_is_served_from_the_spill_file),
		cmocka_unit_test(blocks_are_decoded_independently),
		cmocka_unit_test(blocks_are_decoded_in_parallel),
		cmocka_unit_test(without_a_spill_file_it_is_slow_but_correct),
		cmocka_unit_test(a_spill_file_that_cannot_grow_is_still_read),
		cmocka_unit_test(a_cache_smaller_than_a_piece_is_enough),
		cmocka_unit_test(strides_and_orders_through_pieces),
		cmocka_unit_test(prefetched_pieces_are_there),
		cmocka_unit_test(decoders_stay_below_their_limit),
		cmocka_unit_test(chunks_read_in_turns_keep_their_decoders),
		cmocka_unit_test(idle_streams_are_limited),
		cmocka_unit_test(an_error_of_the_disk_is_temporary),
		cmocka_unit_test(an_error_of_the_bytes_is_permanent),
		cmocka_unit_test(a_wrong_checksum_is_found_at_the_end),
		cmocka_unit_test(a_window_beyond_the_limit_is_refused),
		cmocka_unit_test(a_raw_chunk_of_another_length_is_an_error),
		cmocka_unit_test(two_readers_far_apart),
		cmocka_unit_test(many_threads_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
