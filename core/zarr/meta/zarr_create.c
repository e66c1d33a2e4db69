/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_create.c - print metadata documents, byte for byte as TensorStore writes them for Orbax:
 * compact, with sorted members.
 */
#include "core/base/err.h"
#include "core/zarr/meta/zarr_meta.h"

static void create_put_sizes(struct buf *b, const char *before, const uint64_t *sizes,
			     unsigned rank)
{
	buf_add_str(b, before);
	json_put_uints(b, sizes, rank, JSON_COMPACT);
}

/* Append the compressor's object, or `none` when there is no compressor. */
static int put_compressor(struct buf *b, const struct zarr_create *c, const char *before,
			  const char *none)
{
	enum codec_dialect dialect = c->format == 2 ? CODEC_V2 : CODEC_V3;
	auto_arena arena = { 0 };
	const struct codec *codec;
	int r;

	if (c->compression.kind == COMPRESSION_NONE)
		return buf_add_str(b, none);
	r = compression_codec(&c->compression, dialect, dtype_info(c->array.dtype)->size, &arena,
			      &codec);
	if (r < 0)
		return r;
	buf_add_str(b, before);
	return codec_print(codec, dialect, b);
}

static int print_v2(const struct zarr_create *c, struct buf *b)
{
	int r;

	create_put_sizes(b, "{\"chunks\":", c->chunk, c->array.rank);
	r = put_compressor(b, c, ",\"compressor\":", ",\"compressor\":null");
	if (r < 0)
		return r;
	buf_addf(b,
		 ",\"dimension_separator\":\".\",\"dtype\":\"%s\",\"fill_value\":null,"
		 "\"filters\":null,\"order\":\"C\"",
		 dtype_info(c->array.dtype)->v2);
	create_put_sizes(b, ",\"shape\":", c->array.shape, c->array.rank);
	return buf_add_str(b, ",\"zarr_format\":2}");
}

/*
 * Append [bytes], and compressor and checksum if configured: those of the chunk, or of the inner
 * chunk of a shard.
 */
static int create_put_codecs(struct buf *b, const struct zarr_create *c)
{
	bool has_order = dtype_info(c->array.dtype)->word > 1;
	int r;

	buf_add_str(b, has_order ?
			       "[{\"configuration\":{\"endian\":\"little\"},\"name\":\"bytes\"}" :
			       "[{\"name\":\"bytes\"}");
	r = put_compressor(b, c, ",", "");
	if (c->compression.summed)
		buf_add_str(b, ",{\"name\":\"crc32c\"}");
	return r < 0 ? r : buf_add_byte(b, ']');
}

static int print_v3(const struct zarr_create *c, struct buf *b)
{
	static const uint8_t zero[LIMIT_ITEM_BYTES];
	int r;

	create_put_sizes(b, "{\"chunk_grid\":{\"configuration\":{\"chunk_shape\":", c->chunk,
			 c->array.rank);
	buf_add_str(b, "},\"name\":\"regular\"},\"chunk_key_encoding\":{\"name\":\"default\"},"
		       "\"codecs\":");
	if (c->sharded) {
		create_put_sizes(b, "[{\"configuration\":{\"chunk_shape\":", c->chunk,
				 c->array.rank);
		buf_add_str(b, ",\"codecs\":");
	}
	r = create_put_codecs(b, c);
	if (r < 0)
		return r;
	if (c->sharded)
		buf_add_str(b, ",\"index_codecs\":[{\"configuration\":{\"endian\":\"little\"},"
			       "\"name\":\"bytes\"},{\"name\":\"crc32c\"}]},"
			       "\"name\":\"sharding_indexed\"}]");
	buf_addf(b, ",\"data_type\":\"%s\",\"fill_value\":", dtype_info(c->array.dtype)->name);
	dtype_fill_print(c->array.dtype, 3, zero, b);
	create_put_sizes(b, ",\"node_type\":\"array\",\"shape\":", c->array.shape, c->array.rank);
	return buf_add_str(b, ",\"zarr_format\":3}");
}

int zarr_meta_print(const struct zarr_create *c, struct buf *ret)
{
	size_t at = ret->n;
	int r;

	if ((c->format != 2 && c->format != 3) || c->array.rank > LIMIT_RANK ||
	    ((c->sharded || c->compression.summed) && c->format == 2))
		return fail(-EINVAL, "cannot create a zarr array of format %u and rank %u%s%s",
			    c->format, c->array.rank, c->sharded ? ", sharded" : "",
			    c->compression.summed ? ", with crc32c" : "");
	r = c->format == 2 ? print_v2(c, ret) : print_v3(c, ret);
	r = r < 0 ? r : buf_failed(ret);
	if (r < 0)
		ret->n = at;
	return r;
}

int zarr_meta_print_whole(const struct array_type *t, struct buf *ret)
{
	uint64_t chunk[LIMIT_RANK];
	struct zarr_create c = { .format = 2, .array = *t, .chunk = chunk };

	for (unsigned i = 0; i < t->rank; i++)
		chunk[i] = MAX(t->shape[i], (uint64_t)1);
	return zarr_meta_print(&c, ret);
}

int zarr_whole_key(unsigned rank, struct buf *ret)
{
	buf_add_byte(ret, '0');
	for (unsigned i = 1; i < rank; i++)
		buf_add_str(ret, ".0");
	return buf_failed(ret);
}
