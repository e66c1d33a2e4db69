/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_write_all.c - write a whole array from a source that can be read at any offset.
 *
 * Ordinary chunks go through the bands of zarr_write.c. Where a band does not fit the write budget,
 * each chunk is encoded as a stream, and is never in memory as a whole, neither before nor after
 * compression. For a codec that cannot do that (blosc), there is one whole chunk at a time.
 */
#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/zarr/write/zarr_encode.h"

#define PIECE ((size_t)256 << 10) /* a slow codec takes a tenth of a second for it */
#define CODEC_BESIDE (4 * MiB)    /* memory of a codec that needs whole chunks */

/* One long chunk that is being encoded. */
struct long_chunk {
	const struct write_env *we;
	const struct zarr *z;
	zarr_source_fn *source;
	void *arg;
	struct codec_encoder *encoder; /* NULL: the chunk is collected in `whole` */
	struct kv_stream *out;
	struct buf whole;
	uint64_t stored; /* bytes produced by the encoder */
	uint8_t *piece;
	size_t n; /* bytes collected in piece */
};

static int take_output(void *arg, struct span out)
{
	struct long_chunk *c = arg;

	c->stored += out.n;
	return kv_stream_add(c->out, out);
}

static int push_piece(struct long_chunk *c)
{
	struct span piece = span_of(c->piece, c->n);
	int r = write_env_check(c->we);

	c->n = 0;
	if (r < 0 || !piece.n)
		return r;
	r = encode_check(c->z, piece.p, piece.n);
	if (r < 0)
		return r;
	return c->encoder ? codec_encoder_push(c->encoder, piece) : buf_add_span(&c->whole, piece);
}

/* Push n bytes of the chunk: from the array at `from`, or (pad) fill values beyond its edge. */
static int push_run(struct long_chunk *c, uint64_t from, uint64_t n, bool pad)
{
	size_t item = dtype_info(c->z->meta.dtype)->size;
	int r = 0;

	while (n > 0 && r >= 0) {
		size_t part = (size_t)MIN(n, (uint64_t)(PIECE - c->n));

		if (pad)
			for (size_t i = 0; i < part; i += item)
				memcpy(c->piece + c->n + i, c->z->meta.fill, item);
		else
			r = c->source(c->arg, from, part, c->piece + c->n);
		c->n += part;
		from += part;
		n -= part;
		if (c->n == PIECE && r >= 0)
			r = push_piece(c);
	}
	return r;
}

/* Push all rows of a chunk, in its C order. */
static int push_chunk(struct long_chunk *c, const uint64_t *chunk)
{
	const struct zarr_meta *m = &c->z->meta;
	size_t item = dtype_info(m->dtype)->size;
	uint64_t row[LIMIT_RANK] = { 0 }, stride[LIMIT_RANK], s = item;
	unsigned last = m->rank - 1;
	bool more = true;

	for (unsigned i = m->rank; i > 0; i--) {
		stride[i - 1] = s;
		s *= m->shape[i - 1];
	}
	while (more) {
		uint64_t lo = chunk[last] * m->chunk[last], from = lo * item, have;
		bool outside = false;
		int r = 0;

		for (unsigned i = 0; i < last; i++) {
			uint64_t at = chunk[i] * m->chunk[i] + row[i];

			outside |= at >= m->shape[i];
			from += at * stride[i];
		}
		have = outside ? 0 : MIN(m->chunk[last], m->shape[last] - lo);
		if (have)
			r = push_run(c, from, have * item, false);
		if (r < 0)
			return r;
		r = push_run(c, 0, (m->chunk[last] - have) * item, true);
		if (r < 0)
			return r;
		more = false;
		for (unsigned i = last; i > 0 && !more; i--) {
			more = ++row[i - 1] < m->chunk[i - 1];
			if (!more)
				row[i - 1] = 0;
		}
	}
	return push_piece(c);
}

/* Encode a chunk that is in memory. */
static int put_whole_chunk(struct kv *kv, struct long_chunk *c, const uint64_t *chunk)
{
	auto_buf key = { 0 }, object = { 0 };
	int r = zarr_chunk_key(&c->z->meta, chunk, &key);

	c->n = c->whole.n = 0;
	if (r < 0)
		return r;
	r = buf_reserve(&c->whole, c->z->leaf->bytes);
	if (r < 0)
		return r;
	r = push_chunk(c, chunk);
	if (r < 0)
		return r;
	r = encode_chunk(c->we, c->z, c->whole.p, &object);
	return r < 0 ? r : kv_put(kv, buf_span(&key), buf_span(&object));
}

static int put_long_chunk(struct kv *kv, struct long_chunk *c, const uint64_t *chunk)
{
	auto_of(kv_stream) struct kv_stream *out = NULL;
	auto_of(codec_encoder) struct codec_encoder *encoder = NULL;
	auto_buf key = { 0 }, tail = { 0 };
	int r = zarr_chunk_key(&c->z->meta, chunk, &key);

	if (r < 0)
		return r;
	r = kv_put_open(kv, buf_span(&key), &out);
	if (r < 0)
		return r;
	r = codec_encoder_open(&c->z->leaf->codecs, c->z->leaf->bytes, take_output, c, &encoder);
	if (r < 0)
		return r;
	c->out = out;
	c->encoder = encoder;
	c->stored = 0;
	c->n = 0;
	r = push_chunk(c, chunk);
	if (r < 0)
		return r;
	r = codec_encoder_finish(encoder);
	if (r < 0)
		return r;
	r = encode_wrap(c->z, c->stored, &tail);
	if (r < 0)
		return r;
	if (tail.n)
		r = kv_stream_add(out, buf_span(&tail));
	return r < 0 ? r : kv_stream_close(&out);
}

int encode_long_chunk(const struct write_env *we, struct kv *kv, const struct zarr *z,
		      const uint64_t *chunk, zarr_source_fn *source, void *arg)
{
	struct long_chunk c = {
		.we = we, .z = z, .source = source, .arg = arg, .piece = block_alloc(PIECE)
	};
	int r = c.piece ? put_long_chunk(kv, &c, chunk) :
			  fail(-ENOMEM, "cannot allocate %zu bytes", PIECE);

	block_free(c.piece, PIECE);
	return r;
}

static int write_long_chunks(struct write_env *we, struct kv *kv, const struct zarr *z,
			     zarr_source_fn *source, void *arg)
{
	struct long_chunk c = {
		.we = we, .z = z, .source = source, .arg = arg, .piece = block_alloc(PIECE)
	};
	bool in_pieces = codec_writes_pieces(&z->leaf->codecs);
	uint64_t chunk[LIMIT_RANK] = { 0 }, cost = 0;
	bool more = z->meta.n_elements > 0;
	int r = 0;

	if (!c.piece)
		return fail(-ENOMEM, "cannot allocate %zu bytes", PIECE);
	/*
	 * The caller that chose such a codec has checked that the budget holds a chunk; the budget
	 * may be smaller by now.
	 */
	if (!in_pieces)
		cost = budget_take_most(we->budget, 2 * z->leaf->bytes + CODEC_BESIDE);
	while (more && r >= 0) {
		r = in_pieces ? put_long_chunk(kv, &c, chunk) : put_whole_chunk(kv, &c, chunk);
		more = false;
		for (unsigned i = z->meta.rank; i > 0 && !more; i--) {
			more = ++chunk[i - 1] < z->meta.grid[i - 1];
			if (!more)
				chunk[i - 1] = 0;
		}
	}
	budget_give(we->budget, cost);
	buf_release(&c.whole);
	block_free(c.piece, PIECE);
	return r;
}

int zarr_write_all(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		   zarr_source_fn *source, void *arg)
{
	auto_of(zarr_writer) struct zarr_writer *w = NULL;
	uint64_t bytes;
	uint8_t *piece;
	int r = zarr_writer_open(we, kv, json, fill, &w);

	if (r < 0)
		return r;
	if (zarr_writer_cost(w) > budget_total(we->budget))
		return write_long_chunks(we, kv, zarr_writer_array(w), source, arg);
	bytes = zarr_writer_array(w)->meta.bytes;
	piece = block_alloc(PIECE);
	if (!piece)
		return fail(-ENOMEM, "cannot allocate %zu bytes", PIECE);
	for (uint64_t at = 0; at < bytes && r >= 0;) {
		size_t n = (size_t)MIN((uint64_t)PIECE, bytes - at), taken;

		r = source(arg, at, n, piece);
		r = r < 0 ? r : zarr_writer_append(w, piece, n, ZARR_WRITER_BLOCK, &taken);
		at += n;
	}
	block_free(piece, PIECE);
	return r < 0 ? r : zarr_writer_flush(w);
}
