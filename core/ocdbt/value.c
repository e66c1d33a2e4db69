/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c - locate a value of a leaf, and compare two values.
 */
#include "core/base/err.h"
#include "core/kv/kv_sum.h"
#include "core/ocdbt/db.h"

/* Bytes of each value that a comparison reads at a time. */
#define COMPARE_BYTES ((size_t)(1 * MiB))

int value_locate(struct ocdbt *db, struct db_recent *recent, const struct ocdbt_value *v,
		 struct kv_loc *ret)
{
	struct kv_loc loc = { .len = ocdbt_value_len(v) };
	int r;

	/* An empty value has no place; TensorStore does not even open its file. */
	if (v->kind == OCDBT_INLINE || loc.len == 0) {
		loc.where = KV_INLINE;
		r = v->kind == OCDBT_INLINE ? buf_add_span(&loc.bytes, v->bytes) : 0;
	} else {
		loc.where = KV_FILE;
		loc.off = v->ref.off;
		r = db_file_again(db, recent, &v->ref, &loc.file);
		if (r < 0)
			return r;
		/*
		 * The file contains the value, as was checked; what follows is a trailer only in
		 * our own files.
		 */
		if (loc.file->size - loc.off - loc.len >= KV_SUM_BYTES)
			loc.tail = KV_SUM_BYTES;
	}
	if (r < 0)
		return r;
	*ret = loc;
	return r;
}

int ocdbt_value_locate(struct ocdbt *db, const struct ocdbt_value *v, struct kv_loc *ret)
{
	auto_recent recent = { 0 };

	return value_locate(db, &recent, v, ret);
}

/* Get the next bytes of a located value: read into room, or borrowed. */
static int next_piece(const struct kv_loc *loc, uint64_t at, size_t n, uint8_t *room,
		      struct span *ret)
{
	*ret = span_of(room, n);
	if (loc->where == KV_FILE)
		return io_read_exact(loc->file, room, n, loc->off + at);
	*ret = kv_loc_inline(loc, at, n);
	return 0;
}

int value_same(const struct kv_loc *a, const struct kv_loc *b)
{
	size_t most = (size_t)MIN(a->len, (uint64_t)COMPARE_BYTES);
	auto_free uint8_t *room = NULL;

	if (a->len != b->len)
		return 0;
	room = malloc(2 * most + 1);
	if (!room)
		return fail(-ENOMEM, "cannot allocate %zu bytes to compare values", 2 * most);
	for (uint64_t at = 0; at < a->len; at += most) {
		size_t n = (size_t)MIN(a->len - at, (uint64_t)most);
		struct span pa, pb;
		int r = next_piece(a, at, n, room, &pa);

		if (r < 0)
			return r;
		r = next_piece(b, at, n, room + most, &pb);
		if (r < 0)
			return r;
		if (!span_eq(pa, pb))
			return 0;
	}
	return 1;
}

int ocdbt_value_equal(struct ocdbt *a, const struct ocdbt_value *va, struct ocdbt *b,
		      const struct ocdbt_value *vb)
{
	auto_kv_loc la = { 0 }, lb = { 0 };
	int r;

	if (ocdbt_value_len(va) != ocdbt_value_len(vb))
		return 0;
	r = ocdbt_value_locate(a, va, &la);
	if (r < 0)
		return r;
	r = ocdbt_value_locate(b, vb, &lb);
	return r < 0 ? r : value_same(&la, &lb);
}

int value_where_text(struct buf *ret, const char *part, const struct ocdbt_value *v)
{
	struct ocdbt_ref ref = v->ref;
	auto_buf base = { 0 };
	int r;

	if (v->kind == OCDBT_INLINE)
		return buf_addf(ret, "inline:%zu", v->bytes.n);
	r = part ? buf_addf(&base, "%s/", part) : 0;
	if (r < 0)
		return r;
	r = buf_add_span(&base, ref.base);
	ref.base = buf_span(&base);
	return r < 0 ? r : ocdbt_ref_text(ret, "value", &ref);
}
