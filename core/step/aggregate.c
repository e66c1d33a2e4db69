/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aggregate.c - show a number or array of the legacy msgpack file as a zarr array of one chunk.
 *
 * All other code thus reads it as any array. Arrays larger than 1 GiB are stored in pieces, which
 * are joined in an unlinked temporary file.
 */
#include "core/step/aggregate.h"

#include "core/base/err.h"
#include "core/zarr/stream.h"

/* Write the pieces of an array one after the other to a temporary file. */
static int join_pieces(struct item *item, const struct aggregate *a, uint64_t bytes,
		       struct io_file **ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	uint64_t at = 0;
	int r = streams_file(item->ckpt->streams, item->ckpt->io, bytes, &f);

	for (uint32_t i = 0; i < a->n_chunks && r >= 0; i++) {
		r = io_write_exact(f, a->chunks[i].p, a->chunks[i].n, at);
		at += a->chunks[i].n;
	}
	if (r < 0)
		return r;
	*ret = take(f);
	return 0;
}

static int aggregate_put_array(struct item *item, struct kv *kv, const struct aggregate *a)
{
	auto_buf key = { 0 };
	uint64_t bytes = 0, off = 0;
	int r = zarr_whole_key(a->rank, &key);

	for (uint32_t i = 0; i < a->n_chunks; i++)
		bytes += a->chunks[i].n;
	if (r < 0 || bytes == 0)
		return r;
	if (a->n_chunks > 1) {
		auto_of(io_file) struct io_file *joined = NULL;

		r = join_pieces(item, a, bytes, &joined);
		return r < 0 ? r : kv_mem_put_file(kv, buf_span(&key), joined, 0, bytes);
	}
	off = (uint64_t)(a->chunks[0].p - item->aggregate_text.text.p);
	return kv_mem_put_file(kv, buf_span(&key), item->aggregate, off, bytes);
}

static int put_number(struct kv *kv, const struct aggregate *a, enum dtype *ret)
{
	uint8_t bytes[16] = { 0 };
	size_t n = 8;

	switch (a->kind) {
	case AGGREGATE_BOOL:
		*ret = DTYPE_BOOL;
		bytes[0] = a->b;
		n = 1;
		break;
	case AGGREGATE_INT:
		*ret = DTYPE_INT64;
		memcpy(bytes, &a->i, 8);
		break;
	case AGGREGATE_UINT:
		*ret = DTYPE_UINT64;
		memcpy(bytes, &a->u, 8);
		break;
	case AGGREGATE_FLOAT:
		*ret = DTYPE_FLOAT64;
		memcpy(bytes, &a->f, 8);
		break;
	case AGGREGATE_COMPLEX:
		*ret = DTYPE_COMPLEX128;
		memcpy(bytes, &a->re, 8);
		memcpy(bytes + 8, &a->im, 8);
		n = 16;
		break;
	default:
		return fail(-EOPNOTSUPP,
			    "a value of this kind inside an aggregate file is not a number");
	}
	return kv_put(kv, span_str("0"), span_of(bytes, n));
}

int aggregate_store(struct item *item, const struct aggregate *a, struct kv **ret)
{
	auto_of(kv) struct kv *kv = NULL;
	struct array_type t = { 0 };
	uint64_t n = a->s.n;
	auto_buf meta = { 0 };
	int r = kv_mem_new(item->ckpt->io, &kv);

	if (r < 0)
		return r;
	kv_mem_meter(kv);
	if (a->kind == AGGREGATE_ARRAY) {
		t = (struct array_type){ dtype_by_name(span_str(a->dtype)), a->rank, a->shape };
		if (t.dtype == DTYPE_UNKNOWN)
			return fail(-EOPNOTSUPP, "dtype '%s' of an aggregated array", a->dtype);
		if (a->item_size && a->item_size != dtype_info(t.dtype)->size)
			return fail(-EUCLEAN, "aggregated array of %s has %llu bytes an element",
				    a->dtype, (unsigned long long)a->item_size);
		r = aggregate_put_array(item, kv, a);
	} else if (a->kind == AGGREGATE_BYTES) {
		t = (struct array_type){ DTYPE_UINT8, 1, &n };
		r = n ? kv_mem_put_file(kv, span_str("0"), item->aggregate,
					(uint64_t)(a->s.p - item->aggregate_text.text.p), n) :
			0;
	} else {
		r = put_number(kv, a, &t.dtype);
	}
	if (r < 0)
		return r;
	r = zarr_meta_print_whole(&t, &meta);
	if (r < 0)
		return r;
	r = kv_put(kv, span_str(".zarray"), buf_span(&meta));
	if (r < 0)
		return r;
	*ret = take(kv);
	return 0;
}
