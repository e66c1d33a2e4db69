/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_copy.c - copy stored chunks from array to array.
 *
 * A chunk is located wherever it is (a shard inside a shard, a value of a database) and stored as
 * we store chunks: one object each, in v3 followed by the index of its shard.
 */
#include "core/zarr/write/zarr_copy.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/chunk.h"
#include "core/zarr/write/zarr_encode.h"

#define BATCH 64 /* chunks that are looked up together */

static bool same_codecs(const struct codec_chain *a, const struct codec_chain *b)
{
	struct compression x, y;

	/* Decoders depend neither on the level nor on blosc's settings. */
	return compression_of(a, &x) && compression_of(b, &y) && x.kind == y.kind &&
	       x.summed == y.summed;
}

static bool copy_fits(const struct zarr *from, const struct zarr *to)
{
	unsigned rank = to->meta.rank;
	bool one_byte = dtype_info(to->meta.dtype)->word == 1;
	/* Bools that readers of arrays may refuse are compared while they are encoded. */
	bool is_checked = from->any_bools && from->meta.dtype == DTYPE_BOOL;

	return !is_checked && from->meta.dtype == to->meta.dtype && from->meta.rank == rank &&
	       !memcmp(from->meta.shape, to->meta.shape, rank * sizeof(uint64_t)) &&
	       !memcmp(from->leaf_chunk, to->leaf_chunk, rank * sizeof(uint64_t)) &&
	       !memcmp(from->meta.fill, to->meta.fill, dtype_info(to->meta.dtype)->size) &&
	       from->leaf_in_order &&
	       (one_byte || from->leaf->big_endian == to->leaf->big_endian) &&
	       same_codecs(&from->leaf->codecs, &to->leaf->codecs);
}

struct copying {
	struct write_env *we;
	struct zarr *from, *to;
	struct kv *kv;
	enum zarr_fill fill;
	/* an encoded chunk of the fill value, made when it is first needed */
	struct buf fill_object;
	uint64_t cost, held; /* of write_budget: needed for that chunk; taken */
};

/* Check a stored chunk as far as possible without decoding it. */
static int copy_check_chunk(struct copying *y, const struct chunk *c)
{
	const struct zarr_level *leaf = y->from->leaf;
	uint8_t head[CODEC_START_BYTES];
	struct compression how;
	uint64_t least = 9; /* size of a compressed chunk */
	int r;

	r = chunk_source_check_size(y->from, &c->src);
	if (r < 0 || leaf->codecs.n == 0)
		return r;
	if (!compression_of(&leaf->codecs, &how) || how.kind == COMPRESSION_NONE)
		least = 0;
	if (c->src.len < least)
		return fail(-EUCLEAN, "its %llu bytes are not a compressed chunk",
			    (unsigned long long)c->src.len);
	r = kv_loc_read(&c->src.loc, c->src.off, (size_t)MIN(c->src.len, (uint64_t)sizeof(head)),
			head);
	return r < 0 ? r : codec_check_start(&leaf->codecs, head, c->src.len, leaf->bytes);
}

static int put_stored(struct copying *y, const struct chunk *c, struct span key)
{
	auto_buf tail = { 0 };
	struct kv_copying copy = { .from = &c->src.loc, .off = c->src.off, .len = c->src.len };
	int r = copy_check_chunk(y, c);

	if (r < 0)
		return r;
	r = encode_wrap(y->to, c->src.len, &tail);
	if (r < 0)
		return r;
	/* Bytes without codecs cannot be damaged; inline ones are in a node with a checksum. */
	copy.checked = y->from->leaf->codecs.n == 0 || c->src.loc.where == KV_INLINE;
	copy.tail = buf_span(&tail);
	return kv_copy(y->kv, key, &copy);
}

static int put_absent(struct copying *y, struct span key)
{
	uint64_t n = y->to->leaf->bytes;
	uint8_t *bytes;
	int r;

	if (y->from->missing_is_error)
		return fail(-EUCLEAN, "it is not stored");
	if (y->fill == ZARR_FILL_OMIT)
		return 0;
	if (!y->fill_object.n) {
		r = budget_take(y->we->budget, y->cost);
		if (r < 0)
			return r;
		y->held = y->cost;
		bytes = block_alloc(n);
		if (!bytes)
			return fail(-ENOMEM, "cannot allocate a chunk of %llu bytes",
				    (unsigned long long)n);
		encode_fill(y->to, bytes);
		r = encode_chunk(y->we, y->to, bytes, &y->fill_object);
		block_free(bytes, n);
		if (r < 0)
			return r;
	}
	return kv_put(y->kv, key, buf_span(&y->fill_object));
}

static int copy_put_chunk(struct copying *y, struct chunk *c)
{
	auto_buf key = { 0 };
	int r = zarr_chunk_key(&y->to->meta, c->index, &key);

	if (r >= 0)
		r = c->src.loc.where == KV_ABSENT ? put_absent(y, buf_span(&key)) :
						    put_stored(y, c, buf_span(&key));
	if (r < 0)
		return chunk_err(y->from, c, r);
	atomic_fetch_add_explicit(&y->we->copied_chunks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&y->we->copied_bytes, c->src.len, memory_order_relaxed);
	return 0;
}

static int copy_all(struct copying *y)
{
	auto_free struct chunk *batch = calloc(BATCH, sizeof(*batch));
	uint64_t index[LIMIT_RANK] = { 0 };
	bool more = y->from->meta.n_elements > 0;
	int r = batch ? 0 : fail(-ENOMEM, "cannot copy chunks");

	while (more && r >= 0) {
		size_t n = 0;

		memset(batch, 0, BATCH * sizeof(*batch));
		for (; more && n < BATCH; n++) {
			memcpy(batch[n].index, index, sizeof(index));
			chunk_number(y->from, &batch[n]);
			more = false;
			for (unsigned i = y->from->meta.rank; i-- > 0 && !more;) {
				more = ++index[i] < y->from->leaf_grid[i];
				if (!more)
					index[i] = 0;
			}
		}
		r = chunk_locate(y->from, batch, n);
		for (size_t i = 0; i < n && r >= 0; i++) {
			r = write_env_check(y->we);
			r = r < 0 ? r : copy_put_chunk(y, &batch[i]);
		}
		for (size_t i = 0; i < n; i++)
			kv_loc_release(&batch[i].src.loc);
	}
	return r;
}

int zarr_copy(struct write_env *we, struct zarr *from, struct kv *kv, struct span json,
	      enum zarr_fill fill)
{
	auto_of(zarr_writer) struct zarr_writer *w = NULL;
	struct copying y = { .we = we, .from = from, .kv = kv, .fill = fill };
	int r = zarr_writer_open(we, kv, json, fill, &w);

	if (r < 0)
		return err_except(r, -EOPNOTSUPP);
	y.to = zarr_writer_array(w);
	if (!copy_fits(from, y.to))
		return 0;
	/*
	 * A missing chunk may have to be encoded; one that is too large needs an encoder stream,
	 * which is not done here.
	 */
	y.cost = zarr_writer_cost(w);
	if (fill != ZARR_FILL_OMIT && !from->missing_is_error && y.cost > budget_total(we->budget))
		return 0;
	r = copy_all(&y);
	buf_release(&y.fill_object);
	if (y.held)
		budget_give(we->budget, y.held);
	trace(TRACE_ZARR, "copied chunks: %s", r < 0 ? err_text(r) : "all");
	return r < 0 ? r : 1;
}
