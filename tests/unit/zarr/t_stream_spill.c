/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_stream_spill.c - temporary files of users other than streams: counted in the same limit, and
 * given up in the right order when room is needed.
 */
#include "tests/unit/lib/zarr_make.h"

#include "core/base/err.h"
#include "core/zarr/stream.h"

static const char zstd_doc[] =
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[2,6000000],\"data_type\":\"uint8\","
	"\"fill_value\":0,\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2,6000000]}},"
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"bytes\"},"
	"{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":true}}]}";

static struct streams_stats stats_of(struct made *m)
{
	struct streams_stats s;

	streams_stats(m->env.streams, &s);
	return s;
}

/* Read back and forth, which puts the pieces into a spill file. */
static void jump_about(struct made *m)
{
	struct zarr_view v;
	uint8_t got[100];

	zarr_view_whole(&m->meta, &v);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t off = made_random(m, m->meta.bytes - sizeof(got));

		assert_int_equal(zarr_read_into(m->z, &v, off, sizeof(got), got), 0);
		assert_memory_equal(got, m->want + off, sizeof(got));
	}
}

/* Like a computed leaf: it has one file, and gives it up on request. */
struct owner {
	struct streams_user user;
	struct io_file *file;
	bool is_open;
};

static struct io_file *owner_gives(struct streams_user *u, bool open)
{
	struct owner *o = container_of(u, struct owner, user);

	return o->file && o->file->refs == 1 && (open || !o->is_open) ? take(o->file) : NULL;
}

static int owner_makes(struct made *m, struct owner *o, uint64_t bytes)
{
	int r = streams_file(m->env.streams, m->env.io, bytes, &o->file);

	o->user.give_up = owner_gives;
	if (r >= 0)
		streams_user_add(m->env.streams, &o->user);
	return r;
}

static void owners_go(struct made *m, struct owner *o, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		streams_user_remove(m->env.streams, &o[i].user);
		io_file_unref(o[i].file);
	}
}

static void files_of_other_users_are_counted_until_they_are_closed(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 2 * MiB,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 20 * MiB } };
	struct io_file *a, *b;
	struct made m;

	made_array(&m, zstd_doc, &o);
	assert_int_equal(streams_file(m.env.streams, m.env.io, 15 * MiB, &a), 0);
	assert_int_equal(stats_of(&m).spill_bytes, 15 * MiB);
	assert_int_equal(streams_file(m.env.streams, m.env.io, 6 * MiB, &b), -ENOSPC);
	assert_non_null(
		strstr(err_text(-ENOSPC), "spill_limit is 20971520, of which 5242880 are free"));
	/* There is no room for the pieces of the chunk either. */
	jump_about(&m);
	assert_int_equal(stats_of(&m).spill_reads, 0);
	assert_int_equal(stats_of(&m).spill_bytes, 15 * MiB);
	io_file_ref(a);
	io_file_unref(a);
	assert_int_equal(stats_of(&m).spill_bytes, 15 * MiB);
	io_file_unref(a);
	assert_int_equal(stats_of(&m).spill_bytes, 0);
	jump_about(&m);
	assert_int_equal(stats_of(&m).spill_bytes, m.meta.bytes);
	/* A stream that nobody reads makes room. */
	assert_int_equal(streams_file(m.env.streams, m.env.io, 20 * MiB, &a), 0);
	assert_int_equal(stats_of(&m).spill_bytes, 20 * MiB);
	io_file_unref(a);
	assert_int_equal(streams_file(m.env.streams, m.env.io, UINT64_MAX, &a), -ENOSPC);
	made_release(&m);
}

/* Read from the first byte to the last. */
static void pass_through(struct made *m)
{
	uint64_t off = 0;
	struct zarr_view v;
	uint8_t got[60000];

	zarr_view_whole(&m->meta, &v);
	for (; off < m->meta.bytes; off += sizeof(got)) {
		assert_int_equal(zarr_read_into(m->z, &v, off, sizeof(got), got), 0);
		assert_memory_equal(got, m->want + off, sizeof(got));
	}
}

static void a_second_pass_is_decoded_and_not_spilled(void **state)
{
	struct made_opts o = { .smooth = true,
			       .cache = 2 * MiB,
			       .streams = { .spill_dir = "/tmp", .spill_limit = 20 * MiB } };
	struct made m;

	made_array(&m, zstd_doc, &o);
	for (unsigned i = 0; i < 2; i++) {
		pass_through(&m);
		assert_int_equal(stats_of(&m).restarts, i);
		assert_int_equal(stats_of(&m).spill_bytes, 0);
	}
	/* A reader that comes a third time may come for ever. */
	for (unsigned i = 0; i < 2; i++) {
		pass_through(&m);
		assert_int_equal(stats_of(&m).restarts, 2);
		assert_int_equal(stats_of(&m).spill_bytes, m.meta.bytes);
	}
	assert_true(stats_of(&m).spill_reads > 0);
	made_release(&m);
}

static void the_oldest_file_that_is_not_open_is_given_up_first(void **state)
{
	struct made_opts o = { .smooth = true, .streams = { .spill_limit = 10 * MiB } };
	struct owner own[4] = { { .is_open = true } };
	struct made m;

	made_array(&m, zstd_doc, &o);
	for (int i = 0; i < 3; i++)
		assert_int_equal(owner_makes(&m, &own[i], 3 * MiB), 0);
	assert_int_equal(owner_makes(&m, &own[3], 3 * MiB), 0);
	assert_true(own[0].file && !own[1].file && own[2].file);
	/* All room: even files that are open, but not one that is being read. */
	streams_user_remove(m.env.streams, &own[3].user);
	io_file_unref(take(own[3].file));
	io_file_ref(own[2].file);
	assert_int_equal(owner_makes(&m, &own[3], 8 * MiB), -ENOSPC);
	assert_true(!own[0].file && own[2].file);
	assert_int_equal(stats_of(&m).spill_bytes, 3 * MiB);
	io_file_unref(own[2].file);
	assert_int_equal(owner_makes(&m, &own[3], 8 * MiB), 0);
	owners_go(&m, own, ARRAY_LEN(own));
	assert_int_equal(stats_of(&m).spill_bytes, 0);
	made_release(&m);
}

static void descriptors_are_limited(void **state)
{
	struct made_opts o = { .smooth = true, .streams = { .spill_limit = 10 * MiB } };
	static struct owner own[1000];
	unsigned left = 0;
	struct made m;

	made_array(&m, zstd_doc, &o);
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		assert_int_equal(owner_makes(&m, &own[i], 10), 0);
	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		left += own[i].file != NULL;
	assert_int_equal(left, 256);
	owners_go(&m, own, ARRAY_LEN(own));
	made_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_other_users_are_counted_until_they_are_closed),
		cmocka_unit_test(a_second_pass_is_decoded_and_not_spilled),
		cmocka_unit_test(the_oldest_file_that_is_not_open_is_given_up_first),
		cmocka_unit_test(descriptors_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
