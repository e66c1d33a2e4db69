/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_chunk_remote.c - chunks that another process decodes: fetched once, or decoded here when that
 * process fails, whatever is in the cache already.
 */
#include "tests/unit/lib/zarr_make.h"

#include <unistd.h>

#define DOC(chunk)                                                   \
	"{\"zarr_format\":2,\"shape\":[12000000],\"chunks\":[" chunk \
	"],\"dtype\":\"|u1\",\"fill_value\":0,"                      \
	"\"filters\":null,\"order\":\"C\",\"compressor\":{\"id\":\"zstd\",\"level\":1}}"

static const char *const docs[] = { DOC("12000000"), DOC("3000000"), DOC("700000") };

struct other {
	struct zarr_remote base;
	struct made *m;
	bool is_asked, gives;
	unsigned fetched, refused;
};

static bool other_is_elsewhere(struct zarr_remote *rm, const struct zarr *z, uint64_t object,
			       int *ret_rank)
{
	*ret_rank = 1;
	return container_of(rm, struct other, base)->is_asked;
}

static int other_fetch(struct zarr_remote *rm, const struct zarr *z, int rank, uint64_t number,
		       uint64_t off, size_t n, void *p)
{
	struct other *o = container_of(rm, struct other, base);

	if (!o->gives) {
		o->refused++;
		return -ENOTCONN;
	}
	o->fetched++;
	return zarr_chunk_bytes(o->m->z, number, off, n, p);
}

static void read_all(struct made *m)
{
	auto_free uint8_t *got = malloc(m->meta.bytes);
	struct zarr_view v;
	int r;

	zarr_view_whole(&m->meta, &v);
	r = zarr_read_into(m->z, &v, 0, m->meta.bytes, got);
	if (r < 0)
		fail_msg("%s", err_text(r));
	assert_memory_equal(got, m->want, m->meta.bytes);
}

static void begin(struct made *m, struct made *there, struct other *o, const char *doc,
		  const struct made_opts *opts)
{
	made_array(m, doc, opts);
	made_array(there, doc, opts);
	*o = (struct other){ .base = { other_is_elsewhere, other_fetch },
			     .m = there,
			     .is_asked = true,
			     .gives = true };
	m->env.remote = &o->base;
	assert_int_equal(zarr_set_address(m->z, span_str("array")), 0);
	/* A chunk that waited for itself would do so for ever. */
	alarm(300);
}

static void end(struct made *m, struct made *there)
{
	alarm(0);
	made_release(m);
	made_release(there);
}

static void chunks_of_another_process_are_fetched_once(void **state)
{
	const struct made_opts opts = { .smooth = true };

	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m, there;
		struct other o;
		unsigned fetched;

		begin(&m, &there, &o, docs[i], &opts);
		read_all(&m);
		fetched = o.fetched;
		assert_true(fetched > 0);
		read_all(&m);
		assert_int_equal(o.fetched, fetched);
		assert_int_equal(m.env.chunk_bytes_decoded, 0);
		end(&m, &there);
	}
}

static void chunks_that_it_cannot_provide_are_decoded_here(void **state)
{
	const struct made_opts opts = { .smooth = true };

	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m, there;
		struct other o;

		begin(&m, &there, &o, docs[i], &opts);
		o.gives = false;
		read_all(&m);
		assert_true(o.refused > 0 && o.fetched == 0);
		end(&m, &there);
	}
}

static void a_process_may_go_and_come_back(void **state)
{
	const struct made_opts opts = { .smooth = true };

	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m, there;
		struct other o;

		begin(&m, &there, &o, docs[i], &opts);
		/* Alternately with the other process's pieces in the cache, and with our own. */
		for (unsigned k = 0; k < 4; k++) {
			o.is_asked = k % 2 == 0;
			read_all(&m);
		}
		end(&m, &there);
	}
}

static void an_error_is_that_of_decoding_here(void **state)
{
	const struct made_opts opts = { .smooth = true };

	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m, there;
		struct other o;
		struct zarr_view v;
		uint8_t got[100];

		begin(&m, &there, &o, docs[i], &opts);
		o.gives = false;
		assert_int_equal(kv_put(m.kv, span_str("a/0"), span_str("no frame")), 0);
		zarr_view_whole(&m.meta, &v);
		assert_int_equal(zarr_read_into(m.z, &v, 0, sizeof(got), got), -EUCLEAN);
		assert_string_equal(err_text(-EUCLEAN),
				    "chunk 'a/0' (inline:8): not a zstd frame: it begins with "
				    "66206f6e, not fd2fb528");
		end(&m, &there);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_of_another_process_are_fetched_once),
		cmocka_unit_test(chunks_that_it_cannot_provide_are_decoded_here),
		cmocka_unit_test(a_process_may_go_and_come_back),
		cmocka_unit_test(an_error_is_that_of_decoding_here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
