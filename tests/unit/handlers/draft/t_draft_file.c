/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_draft_file.c - the four places of a file's contents: which writes lead from one to the next,
 * and that what was accepted reads back from each, also when the disk is full.
 */
#include "tests/unit/lib/one_draft.h"

#include "core/base/wire.h"
#include "handlers/draft/draft_file.h"

#define ROOM ((size_t)1 << 20)

static struct draft_node *item;

/* One file, the handle that is open for writing, and the bytes that it must have. */
static struct draft_node *node;
static struct draft_file *file;
static bool is_open, flushed;
static uint8_t *model;
static size_t model_n;

static void begin(const char *io)
{
	const char *const set[] = { io, "chunk_byte_size=40000", NULL };

	one_draft_begin("t_draft_file", set);
	assert_int_equal(draft_mkdir(draft->root, span_str("default"), &item), 0);
	model = calloc(1, ROOM);
}

static void end(void)
{
	draft_node_unref(take(item));
	one_draft_end();
	free(take(model));
}

static int setup(void **state)
{
	begin("io=sync");
	return 0;
}

static int teardown(void **state)
{
	end();
	return 0;
}

static void open_file(void)
{
	assert_int_equal(draft_file_opened(file), 0);
	is_open = true;
	flushed = false;
}

static void close_file(void)
{
	draft_file_flush(file, &flushed, true);
	draft_file_closed(file, &flushed);
	is_open = false;
}

static void new_file(const char *name)
{
	assert_int_equal(draft_create(item, span_str(name), &node), 0);
	file = node->file;
	memset(model, 0, ROOM);
	model_n = 0;
	open_file();
}

static void drop_file(void)
{
	if (is_open)
		close_file();
	draft_node_unref(take(node));
}

static void assert_as_model(void)
{
	struct segments g;
	uint8_t *got = malloc(ROOM);

	assert_int_equal(draft_file_size(file), model_n);
	segments_init(&g, ns->ckpt->cache);
	assert_int_equal(draft_file_read(file, 0, ROOM, &g), 0);
	assert_int_equal(g.bytes, model_n);
	assert_int_equal(segments_copy(&g, got), 0);
	segments_release(&g);
	for (size_t i = 0; i < model_n; i++)
		if (got[i] != model[i])
			fail_msg("byte %zu of %zu in place %d is %u, wanted %u", i, model_n,
				 (int)file->place, got[i], model[i]);
	free(got);
}

/* Only accepted bytes change the expected contents. */
static int write_at(size_t off, const void *p, size_t n)
{
	ssize_t done = draft_file_write(file, off, p, n);

	assert_true(off + n <= ROOM);
	if (done > 0) {
		memcpy(model + off, p, (size_t)done);
		model_n = MAX(model_n, off + (size_t)done);
	}
	return done < 0 ? (int)done : (size_t)done < n ? -ENOSPC : 0;
}

static int truncate_to(size_t n)
{
	int r = draft_file_truncate(file, n);

	if (r >= 0) {
		if (n < model_n)
			memset(model + n, 0, model_n - n);
		model_n = n;
	}
	return r;
}

/* An .npy file of float32: as many elements, none of them zero. */
static void npy_of(uint64_t n, struct buf *ret)
{
	assert_int_equal(npy_header(&(struct array_type){ DTYPE_FLOAT32, 1, &n }, ret), 0);
	for (uint64_t i = 0; i < n; i++) {
		float x = (float)i * 0.5f + 1;

		assert_int_equal(buf_add(ret, &x, sizeof(x)), 0);
	}
}

/* Go on at the end of the file until it has n bytes. */
static void write_front(const struct buf *content, size_t n)
{
	for (size_t at = model_n; at < n; at = model_n)
		assert_int_equal(write_at(at, content->p + at, MIN((size_t)7001, n - at)), 0);
}

static void few_bytes_stay_in_memory(void **state)
{
	new_file("a.txt");
	assert_as_model();
	assert_int_equal(write_at(0, "some text", 9), 0);
	assert_int_equal(write_at(5, "more of it", 10), 0);
	assert_int_equal(truncate_to(7), 0);
	assert_as_model();
	/* A promise, which reads as zeros. */
	assert_int_equal(truncate_to(5000), 0);
	assert_as_model();
	assert_int_equal(write_at(7, "x", 1), 0);
	assert_int_equal(file->place, PLACE_MEMORY);
	assert_int_equal(model_n, 5000);
	assert_as_model();
	close_file();
	assert_int_equal(file->place, PLACE_MEMORY);
	assert_as_model();
	drop_file();
}

static void an_array_from_the_front_is_never_staged(void **state)
{
	auto_buf npy = { 0 };
	uint8_t part[100];

	npy_of(100000, &npy);
	new_file("w.npy");
	write_front(&npy, 30000);
	assert_int_equal(file->place, PLACE_MEMORY);
	write_front(&npy, 200000);
	assert_int_equal(file->place, PLACE_STREAM);
	assert_as_model();
	/* Only what there is, for those who ask for all of it. */
	assert_int_equal(draft_file_read_into(file, 199950, 50, part), 0);
	assert_int_equal(draft_file_read_into(file, 199950, 51, part), -EINVAL);
	/* The header once more, as numpy writes it when it does not know the length. */
	assert_int_equal(write_at(0, npy.p, 128), 0);
	assert_int_equal(file->place, PLACE_STREAM);
	write_front(&npy, npy.n);
	assert_int_equal(draft_file_sync(file), 0);
	assert_int_equal(file->place, PLACE_STREAM);
	close_file();
	assert_int_equal(file->place, PLACE_STORED);
	assert_null(file->staged);
	assert_true(draft_file_stored_bytes(file) > 0 && draft_file_stored_bytes(file) < npy.n);
	assert_as_model();
	assert_int_equal(draft_file_seal(file), 0);
	assert_int_equal(file->place, PLACE_STORED);
	drop_file();
}

static void tensors_stream_one_after_the_other(void **state)
{
	static const char json[] =
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
		"\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[12,12]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[300000],\"data_offsets\":[12,300012]}}";
	auto_buf content = { 0 };
	uint8_t length[8];

	set_u64le(length, sizeof(json) - 1);
	assert_int_equal(buf_add(&content, length, 8), 0);
	assert_int_equal(buf_add_str(&content, json), 0);
	for (size_t i = 0; i < 300012; i++)
		assert_int_equal(buf_add_byte(&content, (uint8_t)(i % 251)), 0);
	new_file("all.safetensors");
	write_front(&content, content.n - 1);
	assert_int_equal(file->place, PLACE_STREAM);
	assert_int_equal(file->n_arrays, 3);
	assert_as_model();
	assert_int_equal(write_at(content.n - 1, content.p + content.n - 1, 1), 0);
	close_file();
	assert_int_equal(file->place, PLACE_STORED);
	assert_as_model();
	drop_file();
}

/*
 * Operations on an array of which `front` bytes were written in order, while it is open or closed.
 */
static const struct {
	size_t front;
	bool closed;
	enum { WRITE, TRUNCATE } what;
	size_t at;
} staging[] = {
	{ 1000, false, WRITE, 2000 },      { 200000, false, WRITE, 150000 },
	{ 200000, false, WRITE, 300000 },  { 200000, false, WRITE, 10 },
	{ 200000, false, TRUNCATE, 1000 }, { 400128, false, WRITE, 400128 },
	{ 400128, true, WRITE, 5000 },     { 400128, true, WRITE, 400128 },
	{ 400128, true, TRUNCATE, 90000 }, { 400128, true, TRUNCATE, 500000 },
	{ 399999, true, WRITE, 399999 },
};

static void bytes_out_of_order_are_staged(void **state)
{
	auto_buf npy = { 0 };

	npy_of(100000, &npy);
	assert_int_equal(npy.n, 400128);
	for (size_t i = 0; i < ARRAY_LEN(staging); i++) {
		char name[32];

		snprintf(name, sizeof(name), "w%zu.npy", i);
		new_file(name);
		write_front(&npy, staging[i].front);
		if (staging[i].closed) {
			close_file();
			open_file();
		}
		if (staging[i].what == WRITE)
			assert_int_equal(write_at(staging[i].at, "\xaa\xbb\xcc", 3), 0);
		else
			assert_int_equal(truncate_to(staging[i].at), 0);
		assert_int_equal(file->place, PLACE_STAGED);
		assert_as_model();
		/* Written anew it is an array like any other. */
		assert_int_equal(truncate_to(0), 0);
		assert_int_equal(file->place, PLACE_MEMORY);
		write_front(&npy, npy.n);
		close_file();
		assert_int_equal(file->place, PLACE_STORED);
		assert_as_model();
		drop_file();
	}
}

/* numpy maps a file and fills it in any order: encoded when it is closed. */
static void a_whole_array_leaves_the_staged_file(void **state)
{
	auto_buf npy = { 0 };

	npy_of(100000, &npy);
	new_file("w.npy");
	assert_int_equal(truncate_to(npy.n), 0);
	for (size_t at = npy.n / 4096 * 4096;; at -= 4096) {
		assert_int_equal(write_at(at, npy.p + at, MIN((size_t)4096, npy.n - at)), 0);
		if (at == 0)
			break;
	}
	assert_int_equal(file->place, PLACE_STAGED);
	assert_as_model();
	close_file();
	assert_int_equal(file->place, PLACE_STORED);
	assert_null(file->staged);
	assert_as_model();
	drop_file();
}

/* Malformed contents stay as they are until somebody mends them; only the commit refuses them. */
static void malformed_contents_stay(void **state)
{
	static const struct {
		const char *name, *says;
		size_t front, extra;
	} cases[] = {
		{ "short.npy", "its header announces 400128", 300000, 0 },
		{ "long.npy", "its header announces 400128", 400128, 5 },
		{ "head.npy", "end inside the header", 50, 0 },
		{ "none.npy", "it is empty", 0, 0 },
	};
	auto_buf npy = { 0 };

	npy_of(100000, &npy);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		new_file(cases[i].name);
		write_front(&npy, cases[i].front);
		if (cases[i].extra)
			assert_int_equal(write_at(model_n, "extra", cases[i].extra), 0);
		close_file();
		assert_int_equal(draft_file_take_error(file), 0);
		assert_as_model();
		assert_int_equal(draft_file_seal(file), -EINVAL);
		if (!strstr(err_text(-EINVAL), cases[i].says))
			fail_msg("%s says '%s'", cases[i].name, err_text(-EINVAL));
		err_clear();
		assert_as_model();
		drop_file();
	}
}

static void an_open_handle_is_known_until_its_program_closed_it(void **state)
{
	new_file("a.txt");
	assert_int_equal(draft_file_is_open(file), DRAFT_OPEN_WRITING);
	draft_file_flush(file, &flushed, true);
	draft_file_flush(file, &flushed, true);
	assert_int_equal(draft_file_is_open(file), DRAFT_OPEN_CLOSING);
	draft_file_flush(file, &flushed, false);
	assert_int_equal(draft_file_is_open(file), DRAFT_OPEN_WRITING);
	close_file();
	assert_int_equal(draft_file_is_open(file), DRAFT_OPEN_CLOSED);
	drop_file();
}

/* A writer whose name is gone goes on with bytes that are nobody's. */
static void a_file_without_a_name_is_not_encoded(void **state)
{
	auto_buf npy = { 0 };

	npy_of(100000, &npy);
	new_file("w.npy");
	write_front(&npy, 200000);
	draft_file_unname(file);
	assert_int_equal(file->place, PLACE_STAGED);
	assert_as_model();
	write_front(&npy, npy.n);
	assert_int_equal(truncate_to(0), 0);
	write_front(&npy, npy.n);
	close_file();
	assert_int_equal(file->place, PLACE_STAGED);
	assert_null(file->array);
	assert_as_model();
	drop_file();
}

static void bytes_that_a_map_lost_are_reported_until_written_anew(void **state)
{
	new_file("a.txt");
	assert_int_equal(draft_file_check_lost(file), 0);
	draft_file_set_lost(file, -EIO);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(draft_file_check_lost(file), -EIO);
		assert_non_null(strstr(err_text(-EIO), "'a.txt': bytes that were written through"));
	}
	assert_int_equal(truncate_to(0), 0);
	assert_int_equal(draft_file_check_lost(file), 0);
	draft_file_set_lost(file, -ENOSPC);
	assert_int_equal(draft_file_sync(file), 0);
	assert_int_equal(draft_file_check_lost(file), 0);
	err_clear();
	drop_file();
}

/* Parts become the chunks of a whole: whoever has one open reads on, and nobody else. */
static void readers_of_a_part_outlive_the_commit(void **state)
{
	static const struct {
		bool before, during, fails;
		int after;
	} cases[] = {
		{ true, false, false, 0 },
		{ false, true, false, 0 },
		{ false, false, false, -ESTALE },
		{ false, false, true, 0 },
	};
	auto_buf npy = { 0 };

	npy_of(100000, &npy);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char name[32];

		snprintf(name, sizeof(name), "w%zu.npy", i);
		new_file(name);
		write_front(&npy, npy.n);
		close_file();
		if (cases[i].before)
			assert_int_equal(draft_file_used(file, true), 0);
		draft_file_keep(file);
		if (cases[i].during)
			assert_int_equal(draft_file_used(file, true), 0);
		if (cases[i].fails)
			draft_file_stays(file);
		else
			draft_file_moved(file);
		assert_int_equal(draft_file_used(file, true), cases[i].after);
		if (cases[i].after == 0)
			assert_as_model();
		err_clear();
		drop_file();
	}
}

/* ---- any sequence of calls ---- */

static uint64_t seed;

static uint64_t any(uint64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % n;
}

/* One call, with what numpy, cp, tar and editors do more often than the rest. */
static int any_call(const struct buf *npy)
{
	size_t at = any(2) ? model_n : any(ROOM / 2), n = 1 + any(60000);

	switch (any(12)) {
	case 0:
		return truncate_to(any(3) ? 0 : any(2) ? npy->n : any(ROOM / 2));
	case 1:
		close_file();
		open_file();
		return 0;
	case 2:
		return draft_file_sync(file);
	case 3:
		return draft_file_take_error(file);
	case 4:
		at = 0;
		n = 128;
		break;
	default:
		break;
	}
	if (at >= npy->n)
		return truncate_to(0);
	return write_at(at, npy->p + at, MIN(n, npy->n - at));
}

static unsigned model_run(const char *io, unsigned rounds)
{
	unsigned places[4] = { 0 }, failed = 0;
	auto_buf npy = { 0 };

	begin(io);
	npy_of(60000, &npy);
	for (unsigned i = 0; i < rounds; i++) {
		char name[32];

		seed = i;
		snprintf(name, sizeof(name), "w%u.npy", i);
		new_file(name);
		for (int j = 0; j < 40; j++) {
			failed += any_call(&npy) < 0;
			err_clear();
			assert_as_model();
			places[file->place]++;
		}
		close_file();
		assert_as_model();
		places[file->place]++;
		drop_file();
	}
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		assert_true(places[i] > 0);
	end();
	return failed;
}

static void any_sequence_of_calls_reads_back(void **state)
{
	assert_int_equal(model_run("io=sync", 60), 0);
}

static void accepted_bytes_read_back_from_a_full_disk(void **state)
{
	assert_true(model_run("io=fault(write:enospc:20%;truncate:eio:20%):sync", 60) > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(few_bytes_stay_in_memory),
		TEST(an_array_from_the_front_is_never_staged),
		TEST(tensors_stream_one_after_the_other),
		TEST(bytes_out_of_order_are_staged),
		TEST(a_whole_array_leaves_the_staged_file),
		TEST(malformed_contents_stay),
		TEST(an_open_handle_is_known_until_its_program_closed_it),
		TEST(a_file_without_a_name_is_not_encoded),
		TEST(bytes_that_a_map_lost_are_reported_until_written_anew),
		TEST(readers_of_a_part_outlive_the_commit),
		cmocka_unit_test(any_sequence_of_calls_reads_back),
		cmocka_unit_test(accepted_bytes_read_back_from_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
