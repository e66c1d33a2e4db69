/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_mapped.c - where the elements of a view are stored as they are shown, for programs that map
 * them.
 */
#include "core/base/err.h"
#include "core/zarr/chunk.h"

/* Whether the array, wherever it is stored, has the elements of the view as they are shown. */
static int check_elements(const struct zarr *z, const struct zarr_view *v)
{
	struct compression how;
	auto_buf text = { 0 };

	if (v->dtype != z->meta.dtype)
		return fail(-EOPNOTSUPP, "it is stored as %s, not as %s",
			    dtype_info(z->meta.dtype)->name, dtype_info(v->dtype)->name);
	if (z->leaf->codecs.n) {
		if (!compression_of(&z->leaf->codecs, &how) || how.kind == COMPRESSION_NONE)
			return fail(-EOPNOTSUPP, "its chunks are encoded");
		compression_print(&how, &text);
		return fail(-EOPNOTSUPP, "it is compressed (%s)", buf_str(&text));
	}
	if (!z->leaf_as_shown)
		return fail(-EOPNOTSUPP, "its elements are stored %s",
			    z->leaf->big_endian ? "in the other order of bytes" : "in fewer bits");
	return 0;
}

/* Set index of the only chunk that has elements of the view, and the first one's byte in it. */
static int find_chunk(const struct zarr *z, const struct zarr_view *v, uint64_t *index,
		      uint64_t *ret_at)
{
	uint64_t chunks = 1;

	*ret_at = 0;
	for (unsigned i = 0; i < v->rank; i++) {
		const struct zarr_axis *a = &v->axis[i];
		uint64_t last = a->start + (a->count - 1) * a->step;

		if (last >= z->meta.shape[i])
			return fail(-EOPNOTSUPP, "it is padded to another shape");
		index[i] = a->start / z->leaf_chunk[i];
		chunks *= last / z->leaf_chunk[i] - index[i] + 1;
		*ret_at += a->start % z->leaf_chunk[i] * z->leaf_stride[i];
	}
	return chunks == 1 ?
		       0 :
		       fail(-EOPNOTSUPP, "it is stored in %llu chunks", (unsigned long long)chunks);
}

static int check_place(const struct zarr *z, const struct chunk *c, uint64_t off)
{
	size_t item = dtype_info(z->meta.dtype)->size, unit = MIN(item, sizeof(uint64_t));
	int r;

	if (c->src.loc.where == KV_ABSENT)
		return fail(-EOPNOTSUPP, "it is not stored: all elements have the fill value");
	if (c->src.loc.file->fd < 0)
		return fail(-EOPNOTSUPP, "it is not in a local file");
	r = chunk_source_check_size(z, &c->src);
	if (r < 0)
		return r;
	if (off % unit)
		return fail(-EOPNOTSUPP,
			    "it begins at byte %llu of '%s', which is not a multiple of %zu",
			    (unsigned long long)off, c->src.loc.file->name, unit);
	return 0;
}

int zarr_find_mapped(struct zarr *z, const struct zarr_view *v, struct zarr_mapped *ret)
{
	struct zarr_mapped m = { .bytes = dtype_info(v->dtype)->size };
	struct chunk c = { 0 };
	unsigned rank = 0;
	uint64_t at;
	int r;

	if (v->n_elements == 0)
		return 0;
	r = check_elements(z, v);
	r = r < 0 ? r : find_chunk(z, v, c.index, &at);
	r = r < 0 ? r : chunk_locate(z, &c, 1);
	if (r < 0)
		return r;
	if (c.src.loc.where == KV_INLINE) {
		kv_loc_release(&c.src.loc);
		return 0;
	}
	m.off = c.src.loc.off + c.src.off + at;
	r = check_place(z, &c, m.off);
	for (unsigned i = 0; i < v->rank; i++) {
		uint64_t stride = v->axis[i].step * z->leaf_stride[i];

		m.bytes += (v->axis[i].count - 1) * stride;
		if (!v->axis[i].drop)
			m.stride[rank++] = (int64_t)stride;
	}
	if (r >= 0) {
		m.file = io_file_ref(c.src.loc.file);
		*ret = m;
	}
	kv_loc_release(&c.src.loc);
	return r < 0 ? r : 1;
}
