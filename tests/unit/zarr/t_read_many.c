/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_read_many.c - many views of arrays of any layout at once, into memory of any layout; each
 * failure is that of its own target.
 */
#include "core/zarr/read_many/read_many.h"

#include "core/io/io_engine.h"
#include "tests/unit/lib/zarr_views.h"

#define VIEWS 12
#define GAP 0xa5

/* ---- a job ---- */

struct one {
	struct made *m;
	struct zarr_view v;
	uint8_t *memory; /* n bytes */
	size_t n, first;
	int64_t stride[LIMIT_RANK];
	int result; /* 1: not reported */
	char error[ERR_TEXT_MAX];
};

struct job {
	struct one one[VIEWS];
	size_t n, refused; /* open() fails for that one */
	int (*progress)(struct job *j);
	bool is_alone;
	unsigned n_progress;
	uint64_t done;
};

static int open_one(void *arg, size_t i, struct read_target *ret)
{
	struct job *j = arg;

	if (i == j->refused)
		return fail(-ENOENT, "number %zu does not exist", i);
	ret->z = zarr_ref(j->one[i].m->z);
	ret->view = j->one[i].v;
	ret->to = j->one[i].memory + j->one[i].first;
	memcpy(ret->stride, j->one[i].stride, sizeof(ret->stride));
	return 1;
}

static void one_done(void *arg, size_t i, int result)
{
	struct one *o = &((struct job *)arg)->one[i];

	assert_int_equal(o->result, 1);
	o->result = result;
	if (result < 0)
		snprintf(o->error, sizeof(o->error), "%s", err_text(result));
}

static int job_progress(void *arg, uint64_t done)
{
	struct job *j = arg;

	assert_true(done >= j->done);
	j->done = done;
	return j->progress ? j->progress(j) : 0;
}

static int run(struct job *j)
{
	const struct read_many_ops ops = { open_one, one_done, job_progress, j->is_alone };

	return zarr_read_many(&j->one[0].m->env, j->n, &ops, j);
}

/* Axes in any order, reversed, with gaps. */
static void any_memory(struct one *o)
{
	size_t item = dtype_info(o->v.dtype)->size;
	int64_t stride = (int64_t)item, first = 0;
	unsigned order[LIMIT_RANK];

	for (unsigned i = 0; i < o->v.rank; i++)
		order[i] = o->v.rank - 1 - i;
	for (unsigned i = o->v.rank; i > 1 && made_random(o->m, 2); i--) {
		unsigned k = (unsigned)made_random(o->m, i), other = order[i - 1];

		order[i - 1] = order[k];
		order[k] = other;
	}
	for (unsigned i = 0; i < o->v.rank; i++) {
		int64_t extent = (int64_t)MAX(o->v.axis[order[i]].count, (uint64_t)1);

		stride += made_random(o->m, 4) ? 0 : (int64_t)item;
		o->stride[order[i]] = stride;
		if (!made_random(o->m, 6)) {
			first += stride * (extent - 1);
			o->stride[order[i]] = -stride;
		}
		stride *= extent;
	}
	o->first = (size_t)first;
	o->n = (size_t)stride + item;
	o->memory = malloc(o->n);
	assert_non_null(o->memory);
	memset(o->memory, GAP, o->n);
	o->result = 1;
}

static void check_memory(const struct one *o, const char *what)
{
	auto_free uint8_t *want = view_bytes(o->m, &o->v), *memory = malloc(o->n);
	size_t item = dtype_info(o->v.dtype)->size;
	uint64_t pos[LIMIT_RANK] = { 0 }, count[LIMIT_RANK], e = 0;

	assert_non_null(memory);
	memset(memory, GAP, o->n);
	for (unsigned i = 0; i < o->v.rank; i++)
		count[i] = o->v.axis[i].count;
	do {
		int64_t at = (int64_t)o->first;

		if (!o->v.n_elements)
			break;
		for (unsigned i = 0; i < o->v.rank; i++)
			at += (int64_t)pos[i] * o->stride[i];
		memcpy(memory + at, want + e++ * item, item);
	} while (made_step(pos, count, o->v.rank));
	if (memcmp(memory, o->memory, o->n))
		fail_msg("%s: wrong bytes, or bytes between the elements", what);
}

static void job_make(struct job *j, struct made *m, size_t n, bool whole)
{
	*j = (struct job){ .n = n, .refused = SIZE_MAX };
	for (size_t i = 0; i < n; i++) {
		j->one[i].m = m;
		if (whole)
			zarr_view_whole(&m->meta, &j->one[i].v);
		else
			random_view(m, &j->one[i].v);
		any_memory(&j->one[i]);
	}
}

static void job_release(struct job *j)
{
	for (size_t i = 0; i < j->n; i++)
		free(j->one[i].memory);
}

static void views_of(const struct made_opts *o)
{
	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m;

		made_array(&m, docs[i], o);
		for (unsigned round = 0; round < 4; round++) {
			uint64_t bytes = 0;
			struct job j;

			job_make(&j, &m, VIEWS, false);
			j.is_alone = round % 2;
			if (run(&j) < 0)
				fail_msg("%s: %s", docs[i], unit_last_note());
			for (size_t k = 0; k < j.n; k++) {
				if (j.one[k].result)
					fail_msg("%s: %s", docs[i], j.one[k].error);
				check_memory(&j.one[k], docs[i]);
				bytes += j.one[k].v.bytes;
			}
			assert_true(j.done <= bytes);
			job_release(&j);
		}
		made_release(&m);
	}
}

static void any_view_of_any_layout(void **state)
{
	views_of(&(struct made_opts){ .missing = 20, .seed = 1 });
	views_of(&(struct made_opts){ .missing = 20, .seed = 2, .in_file = true, .threads = 3 });
	views_of(&(struct made_opts){ .in_file = true, .seed = 3, .threads = 2, .io = "auto" });
}

/* Chunks that do not fit the budget are decoded as streams, or read through the cache. */
static void with_next_to_no_memory(void **state)
{
	views_of(&(struct made_opts){ .missing = 10, .seed = 5, .cache = 1, .budget = 150 });
	views_of(&(struct made_opts){ .missing = 10,
				      .seed = 6,
				      .cache = 3000,
				      .budget = 400,
				      .threads = 2,
				      .in_file = true });
}

/* ---- large chunks ---- */

static const char *const streamed[] = {
	V3("\"shape\":[5,300000],\"data_type\":\"float32\",\"fill_value\":0," GRID(
		"[2,300000]") "," KEYS ",\"codecs\":[" LITTLE "," ZSTD "," CRC "]"),
	V3("\"shape\":[4,300000],\"data_type\":\"uint16\",\"fill_value\":0," GRID(
		"[4,300000]") "," KEYS ",\"codecs\":[" BIG "," ZSTD "]"),
	V2("\"shape\":[3000000],\"chunks\":[3000000],\"dtype\":\"<i4\",\"fill_value\":0,"
	   "\"order\":\"C\",\"compressor\":null"),
};

static void large_chunks_are_streams(void **state)
{
	const struct made_opts o = {
		.seed = 11, .in_file = true, .threads = 2, .budget = 2 * MiB, .cache = MiB
	};

	for (size_t i = 0; i < ARRAY_LEN(streamed); i++) {
		struct made m;
		struct job j;

		made_array(&m, streamed[i], &o);
		job_make(&j, &m, 2, true);
		j.one[1].v.dtype = DTYPE_FLOAT64;
		assert_int_equal(zarr_view_finish(&j.one[1].v), 0);
		free(j.one[1].memory);
		any_memory(&j.one[1]);
		assert_int_equal(run(&j), 0);
		for (size_t k = 0; k < j.n; k++) {
			assert_int_equal(j.one[k].result, 0);
			check_memory(&j.one[k], streamed[i]);
		}
		assert_true(budget_peak(&m.budget) <= 2 * MiB);
		job_release(&j);
		made_release(&m);
	}
}

/* Of a large chunk, no more is decoded, and read, than the view needs. */
static void boxes_of_large_chunks(void **state)
{
	static const char *const large[] = {
		V3("\"shape\":[6,300000],\"data_type\":\"float32\",\"fill_value\":0," GRID(
			"[6,300000]") "," KEYS ",\"codecs\":[" LITTLE "," ZSTD "," CRC "]"),
		V3("\"shape\":[12,300000],\"data_type\":\"uint16\",\"fill_value\":0," GRID(
			"[12,300000]") "," KEYS ",\"codecs\":[" BIG "," ZSTD "]"),
	};
	const struct made_opts o = { .seed = 13, .in_file = true, .threads = 2, .budget = 64 * MiB };

	for (size_t i = 0; i < ARRAY_LEN(large); i++) {
		struct made m;
		struct job j;

		made_array(&m, large[i], &o);
		for (unsigned first = 0; first < 6; first += 5) {
			uint64_t before = atomic_load(&m.env.chunk_bytes_decoded), decoded;

			job_make(&j, &m, 1, true);
			assert_int_equal(zarr_view_slice(&j.one[0].v, 0, first, 1, 1, true), 0);
			assert_int_equal(zarr_view_slice(&j.one[0].v, 1, 7, 3, 90000, false), 0);
			assert_int_equal(zarr_view_finish(&j.one[0].v), 0);
			free(j.one[0].memory);
			any_memory(&j.one[0]);
			assert_int_equal(run(&j), 0);
			assert_int_equal(j.one[0].result, 0);
			check_memory(&j.one[0], large[i]);
			decoded = atomic_load(&m.env.chunk_bytes_decoded) - before;
			assert_true(decoded <= (first + 1) * m.z->leaf->bytes / m.meta.shape[0]);
			job_release(&j);
		}
		made_release(&m);
	}
}

/* Whole and in pieces, also when the view that came first has failed before. */
static void a_chunk_of_several_views_is_decoded_once(void **state)
{
	static const char *const one[] = {
		V3("\"shape\":[9,50],\"data_type\":\"float32\",\"fill_value\":0," GRID(
			"[9,50]") "," KEYS ",\"codecs\":[" LITTLE "," ZSTD "]"),
		V3("\"shape\":[6,300000],\"data_type\":\"float32\",\"fill_value\":0," GRID(
			"[6,300000]") "," KEYS ",\"codecs\":[" LITTLE "," ZSTD "]"),
	};
	const struct made_opts o = { .seed = 17, .in_file = true, .threads = 2, .budget = 64 * MiB };

	for (size_t i = 0; i < 2 * ARRAY_LEN(one); i++) {
		uint64_t before, bytes;
		struct made m;
		struct job j;

		made_array(&m, one[i / 2], &o);
		before = atomic_load(&m.env.chunk_bytes_decoded);
		bytes = m.z->leaf->bytes;
		job_make(&j, &m, VIEWS, true);
		j.refused = i % 2 ? 0 : SIZE_MAX;
		for (size_t k = 0; k < j.n; k += 2) {
			assert_int_equal(zarr_view_slice(&j.one[k].v, 0, k / 4, 1, 3, false), 0);
			assert_int_equal(zarr_view_slice(&j.one[k].v, 1, k, 2, 20, false), 0);
			assert_int_equal(zarr_view_finish(&j.one[k].v), 0);
			free(j.one[k].memory);
			any_memory(&j.one[k]);
		}
		assert_int_equal(run(&j), 0);
		for (size_t k = 0; k < j.n; k++) {
			assert_int_equal(j.one[k].result, k == j.refused ? -ENOENT : 0);
			if (k != j.refused)
				check_memory(&j.one[k], one[i / 2]);
		}
		assert_int_equal(atomic_load(&m.env.chunk_bytes_decoded) - before, bytes);
		job_release(&j);
		made_release(&m);
	}
}

/* ---- failures ---- */

/* The number of requests that failed, each with that code and naming its chunk. */
static unsigned failed(const struct job *j, int code)
{
	unsigned n = 0;

	for (size_t i = 0; i < j->n; i++) {
		if (!j->one[i].result) {
			check_memory(&j->one[i], "beside one that failed");
			continue;
		}
		assert_int_equal(j->one[i].result, code);
		assert_non_null(strstr(j->one[i].error, "chunk 'a/"));
		n++;
	}
	return n;
}

static void a_damaged_chunk_fails_its_request(void **state)
{
	const struct made_opts o = { .seed = 12, .in_file = true, .threads = 2 };
	struct io_req req = { .op = IO_WRITE, .p = "#", .n = 1 };
	struct made m;
	struct job j;

	/* Chunks with checksums: the first is damaged, and a view of the last one is whole. */
	made_array(&m, docs[10], &o);
	job_make(&j, &m, 3, true);
	assert_int_equal(zarr_view_slice(&j.one[1].v, 0, 4, 1, 3, false), 0);
	assert_int_equal(zarr_view_finish(&j.one[1].v), 0);
	req.file = m.file;
	req.off = 10;
	assert_int_equal(io_run(m.env.io, &req, 1), 0);
	assert_int_equal(run(&j), 0);
	assert_int_equal(j.one[1].result, 0);
	assert_int_equal(failed(&j, -EBADMSG), 2);
	job_release(&j);
	made_release(&m);
}

static void a_read_that_fails_fails_its_request(void **state)
{
	static const char *const io[] = { "fault(read:eio:5):sync", "fault(read:torn:7):sync",
					  "fault(read:short:30%):sync" };

	for (size_t i = 0; i < ARRAY_LEN(io); i++) {
		const struct made_opts o = {
			.seed = 13 + i, .in_file = true, .threads = 2, .io = io[i]
		};
		struct made m;
		struct job j;

		for (size_t d = 0; d < 2; d++) {
			made_array(&m, docs[d], &o);
			job_make(&j, &m, 6, true);
			assert_int_equal(run(&j), 0);
			/* All of them need the chunk, which is read once. */
			assert_int_equal(failed(&j, -EIO), i < 2 ? j.n : 0);
			job_release(&j);
			made_release(&m);
		}
	}
}

/* Credentials that cannot be renewed: from the n-th batch of reads on, the engine begins none. */
struct refusing {
	struct io_engine base;
	atomic_int n;
};

static int refusing_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	struct refusing *e = container_of(io, struct refusing, base);

	if (req->op == IO_READ && atomic_fetch_sub(&e->n, 1) <= 1) {
		atomic_store(&e->n, 1);
		return fail(-EACCES, "no credentials: status 403");
	}
	return io->below->ops->submit(io->below, req, n);
}

static int refusing_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	return io->below->ops->wait(io->below, req, n);
}

static void refusing_free(struct io_engine *io)
{
	io->below->ops->free(io->below);
	free(container_of(io, struct refusing, base));
}

static int refusing_new(const char *what, struct io_engine *below, struct io_engine **ret)
{
	static struct io_engine_ops ops;
	struct refusing *e = calloc(1, sizeof(*e));

	assert_non_null(e);
	ops = *below->ops;
	ops.submit = refusing_submit;
	ops.wait = refusing_wait;
	ops.free = refusing_free;
	e->base.ops = &ops;
	e->base.below = below;
	atomic_init(&e->n, atoi(what));
	*ret = &e->base;
	return 0;
}

static void a_read_that_cannot_begin_fails_its_request(void **state)
{
	static struct io_engine_kind kind = { .name = "refuse", .open = refusing_new };

	io_register_engine(&kind);
	for (size_t i = 0; i < ARRAY_LEN(streamed); i++) {
		unsigned n = 0, bad = 1;

		while (bad) {
			char io[32];
			const struct made_opts o = { .seed = 17 + n,
						     .in_file = true,
						     .threads = 2,
						     .budget = 2 * MiB,
						     .cache = MiB,
						     .io = io };
			struct made m;
			struct job j;

			snprintf(io, sizeof(io), "fault(refuse:%u):sync", ++n);
			made_array(&m, streamed[i], &o);
			job_make(&j, &m, 2, true);
			assert_int_equal(run(&j), 0);
			bad = 0;
			for (size_t k = 0; k < j.n; k++) {
				if (!j.one[k].result) {
					check_memory(&j.one[k], io);
					continue;
				}
				assert_int_equal(j.one[k].result, -EACCES);
				if (!strstr(j.one[k].error, ": no credentials: status 403"))
					fail_msg("%s: %s", io, j.one[k].error);
				bad++;
			}
			job_release(&j);
			made_release(&m);
		}
		/* A chunk of each is read by several batches. */
		assert_true(n > 3);
	}
}

/* Its stored size is far more than its decoded size, so it is not read. */
static void a_chunk_that_is_too_long(void **state)
{
	const struct made_opts o = { .seed = 16 };
	auto_buf value = { 0 };
	struct made m;
	struct job j;

	made_array(&m, docs[0], &o);
	assert_int_equal(buf_add_zero(&value, 70000), 0);
	assert_int_equal(kv_put(m.kv, span_str("a/0.0.0"), buf_span(&value)), 0);
	job_make(&j, &m, 1, true);
	assert_int_equal(run(&j), 0);
	assert_int_equal(failed(&j, -EUCLEAN), 1);
	assert_non_null(strstr(j.one[0].error, "stored in 70000"));
	job_release(&j);
	made_release(&m);
}

static void a_request_that_cannot_be_opened(void **state)
{
	const struct made_opts o = { .seed = 14, .threads = 2 };
	struct made m;
	struct job j;

	made_array(&m, docs[0], &o);
	job_make(&j, &m, 5, true);
	j.refused = 3;
	assert_int_equal(run(&j), 0);
	assert_int_equal(j.one[3].result, -ENOENT);
	assert_string_equal(j.one[3].error, "number 3 does not exist");
	for (size_t i = 0; i < j.n; i++)
		assert_int_equal(j.one[i].result, i == 3 ? -ENOENT : 0);
	job_release(&j);
	made_release(&m);
}

static int stop(struct job *j)
{
	return fail(-ECANCELED, "enough");
}

static void progress_ends_the_job(void **state)
{
	const struct made_opts o = { .seed = 15, .threads = 2, .in_file = true };
	struct made m;
	struct job j;

	made_array(&m, docs[3], &o);
	job_make(&j, &m, VIEWS, true);
	j.progress = stop;
	assert_int_equal(run(&j), -ECANCELED);
	assert_string_equal(err_text(-ECANCELED), "enough");
	for (size_t i = 0; i < j.n; i++)
		assert_int_equal(j.one[i].result, 1);
	/* Nothing is held. */
	j.progress = NULL;
	assert_int_equal(run(&j), 0);
	assert_int_equal(failed(&j, 0), 0);
	job_release(&j);
	made_release(&m);
}

/* While the job waits for memory: it comes at the moment at which the job is ended. */
static int give_and_stop(struct job *j)
{
	struct budget *b = &j->one[0].m->budget;

	if (j->n_progress++ == 0)
		return 0;
	budget_give(b, budget_used(b));
	return fail(-ECANCELED, "enough");
}

static void a_job_that_ends_while_it_waits_takes_no_memory(void **state)
{
	const struct made_opts o = { .seed = 15, .threads = 2, .in_file = true, .budget = MiB };
	struct made m;
	struct job j;

	made_array(&m, docs[3], &o);
	job_make(&j, &m, VIEWS, true);
	j.progress = give_and_stop;
	assert_true(budget_try(&m.budget, MiB));
	assert_int_equal(run(&j), -ECANCELED);
	assert_int_equal(j.n_progress, 2);
	assert_int_equal(budget_used(&m.budget), 0);
	job_release(&j);
	made_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_view_of_any_layout),
		cmocka_unit_test(with_next_to_no_memory),
		cmocka_unit_test(large_chunks_are_streams),
		cmocka_unit_test(boxes_of_large_chunks),
		cmocka_unit_test(a_chunk_of_several_views_is_decoded_once),
		cmocka_unit_test(a_damaged_chunk_fails_its_request),
		cmocka_unit_test(a_read_that_fails_fails_its_request),
		cmocka_unit_test(a_read_that_cannot_begin_fails_its_request),
		cmocka_unit_test(a_chunk_that_is_too_long),
		cmocka_unit_test(a_request_that_cannot_be_opened),
		cmocka_unit_test(progress_ends_the_job),
		cmocka_unit_test(a_job_that_ends_while_it_waits_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
