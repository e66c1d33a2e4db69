/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_raw.c - chunks whose stored bytes are the elements as shown: read them into the result,
 * and compare their checksum.
 */
#include "core/base/crc32c.h"
#include "core/zarr/read_many/read_many_impl.h"

#define PIECE (4 * MiB)

/* The value ends with the bytes that were read, or a few bytes later. */
static int check_sum(const struct many_job *job, uint32_t crc)
{
	return MIN(kv_loc_check_end(&job->loc, job->len, crc), 0);
}

int many_run_raw(struct many_work *k)
{
	const struct many_job *job = k->job;
	const struct many_target *t = job->t;
	const uint8_t *p = k->to;
	int r;

	atomic_fetch_add_explicit(&t->many->env->raw_bytes, k->n, memory_order_relaxed);
	if (job->n || !kv_loc_may_have_sum(&job->loc) || job->off || k->n != t->r.z->leaf->bytes ||
	    job->loc.len - job->len > KV_SUM_REST)
		return 0;
	r = kv_loc_has_sum(&job->loc);
	return r > 0 ? check_sum(job, crc32c(span_of(p, k->n))) : r;
}

/* Two pieces at a time: the next one is read while the checksum of the current one is computed. */
struct pieces {
	struct io_engine *io;
	struct io_req req[2];
	uint64_t asked, done; /* bytes */
};

static void ask(struct pieces *s, const struct many_work *k, uint8_t *to)
{
	while (s->asked < MIN(k->n, s->done + 2 * PIECE)) {
		struct io_req *q = &s->req[s->asked / PIECE % 2];
		size_t n = (size_t)MIN((uint64_t)PIECE, k->n - s->asked);

		*q = (struct io_req){ .op = IO_READ,
				      .file = k->job->loc.file,
				      .p = to + s->asked,
				      .n = n,
				      .off = k->job->loc.off + k->at + s->asked };
		io_submit(s->io, q, 1);
		s->asked += n;
	}
}

/* Wait for the next piece; returns its size. */
static int take_piece(struct pieces *s, struct span *ret)
{
	struct io_req *q = &s->req[s->done / PIECE % 2];
	int r = io_wait(s->io, q, 1);

	s->done += q->n;
	if (r >= 0)
		r = many_read_result(q, &(struct err_note){ 0 });
	if (r >= 0)
		*ret = span_of(q->p, q->n);
	return r;
}

int many_run_pieces(struct many_worker *w, struct many_work *k)
{
	struct many *m = w->many;
	struct pieces s = { .io = m->env->io };
	uint8_t *to = k->to;
	struct err_note why;
	uint32_t crc = 0;
	int r = kv_loc_has_sum(&k->job->loc);
	bool summed = r > 0;

	while (s.done < k->n && r >= 0) {
		struct span piece;

		ask(&s, k, to);
		r = take_piece(&s, &piece);
		if (r >= 0 && summed)
			crc = crc32c_more(crc, piece);
		if (r >= 0)
			r = many_go_on(w, k, s.done);
	}
	/* Wait for the other requests, which read into the caller's memory. */
	err_save(r, &why);
	while (s.done < s.asked)
		take_piece(&s, &(struct span){ 0 });
	err_clear();
	if (r < 0)
		return err_restore(&why);
	atomic_fetch_add_explicit(&m->env->raw_bytes, k->n, memory_order_relaxed);
	return summed ? check_sum(k->job, crc) : 0;
}
