/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_sums.c - how many bytes of an array are stored, and which of them have a checksum;
 * determined from listings, heads and trailers alone.
 *
 * Readers compare the checksums: chunk.c, stream.c.
 */
#include "core/base/err.h"
#include "core/zarr/chunk.h"

bool chunk_head_is_summed(const struct zarr *z, const struct chunk *c, struct span head,
			  bool has_nodes)
{
	return (c->src.loc.where == KV_INLINE && has_nodes) ||
	       codec_is_summed(&z->leaf->codecs, head);
}

int chunk_is_summed(struct zarr *z, const struct chunk *c, bool has_nodes)
{
	size_t n = (size_t)MIN(c->src.len, (uint64_t)CODEC_HEAD_BYTES);
	uint8_t head[CODEC_HEAD_BYTES];
	int r = 0;

	if (c->src.loc.where == KV_FILE && chunk_source_is_all(&c->src))
		r = kv_loc_has_sum(&c->src.loc);
	if (r != 0)
		return r;
	r = kv_loc_read(&c->src.loc, c->src.off, n, head);
	if (r < 0)
		return r;
	return chunk_head_is_summed(z, c, span_of(head, n), has_nodes);
}

struct stored {
	const struct zarr *z;
	uint64_t bytes, objects;
};

static int sums_add_stored(void *arg, struct span key, uint64_t len)
{
	struct stored *s = arg;
	uint64_t index[LIMIT_RANK];

	if (zarr_chunk_key_parse(&s->z->meta, span_from(key, s->z->prefix_len), index)) {
		s->bytes += len;
		s->objects++;
	}
	return 0;
}

/* On a server that cannot list, the object of the first chunk stands for all of the grid. */
static uint64_t as_first(const struct zarr *z, uint64_t len)
{
	uint64_t bytes;

	if (!mul_fits(zarr_meta_objects(&z->meta), len, &bytes) || bytes > INT64_MAX)
		bytes = INT64_MAX;
	return bytes;
}

int zarr_stored(struct zarr *z, uint64_t *ret_bytes, uint64_t *ret_objects)
{
	const uint64_t first[LIMIT_RANK] = { 0 };
	struct stored s = { .z = z };
	struct kv_loc loc = { 0 };
	int r = z->kv->no_list ?
			zarr_object_locate(z, first, &loc) :
			kv_list(z->kv, span_of(z->prefix, z->prefix_len), sums_add_stored, &s);

	if (r < 0)
		return r;
	if (loc.where != KV_ABSENT) {
		s.objects = zarr_meta_objects(&z->meta);
		s.bytes = as_first(z, loc.len);
		kv_loc_release(&loc);
	}
	*ret_bytes = s.bytes;
	*ret_objects = s.objects;
	return 0;
}

/* each head takes a read: examine this many of an array, then fewer and fewer */
#define LOOKED_AT 256

struct summing {
	struct zarr *z;
	bool has_nodes;
	uint64_t n;     /* number of stored objects so far */
	bool is_summed; /* result for the last one that was examined */
	uint64_t unsummed;
};

/* Count one stored object, judged by its first chunk: one writer wrote all of it. */
static int sums_add_object(void *arg, struct span key, uint64_t len)
{
	struct summing *s = arg;
	struct chunk c = { 0 };
	uint64_t number;
	int r;

	if (!zarr_chunk_key_parse(&s->z->meta, span_from(key, s->z->prefix_len), c.index))
		return 0;
	/*
	 * Examine each of the first ones, then those whose number is a power of two; in a store,
	 * where a read takes a round trip, only the latter.
	 */
	number = s->n++;
	if ((number >= LOOKED_AT || s->z->env->in_store) && number & (number - 1)) {
		s->unsummed += s->is_summed ? 0 : len;
		return 0;
	}
	for (unsigned i = 0; i < s->z->meta.rank; i++)
		c.index[i] *= s->z->meta.chunk[i] / s->z->leaf_chunk[i];
	r = chunk_locate(s->z, &c, 1);
	if (r < 0)
		return r;
	r = c.src.loc.where == KV_ABSENT ? 0 : chunk_is_summed(s->z, &c, s->has_nodes);
	kv_loc_release(&c.src.loc);
	s->is_summed = r != 0;
	if (r == 0)
		s->unsummed += len;
	return MIN(r, 0);
}

int zarr_unsummed(struct zarr *z, bool has_nodes, uint64_t *ret)
{
	struct summing s = { .z = z, .has_nodes = has_nodes };
	struct chunk c = { 0 };
	int r;

	if (!z->kv->no_list) {
		r = kv_list(z->kv, span_of(z->prefix, z->prefix_len), sums_add_object, &s);
		if (r >= 0)
			*ret = s.unsummed;
		return MIN(r, 0);
	}
	r = chunk_locate(z, &c, 1);
	if (r < 0)
		return r;
	r = c.src.loc.where == KV_ABSENT ? 1 : chunk_is_summed(z, &c, has_nodes);
	if (r >= 0)
		*ret = r == 0 ? as_first(z, c.src.loc.len) : 0;
	kv_loc_release(&c.src.loc);
	return MIN(r, 0);
}
