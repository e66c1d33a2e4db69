/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_views.h - arrays of all layouts, random views of them, and the elements of these: for the
 * tests of both read paths.
 */
#ifndef PYTREEFS_ZARR_VIEWS_H
#define PYTREEFS_ZARR_VIEWS_H

#include "tests/unit/lib/zarr_make.h"

#define V2(rest) "{\"zarr_format\":2,\"filters\":null," rest "}"
#define V3(rest) "{\"zarr_format\":3,\"node_type\":\"array\"," rest "}"
#define GRID(c) "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" c "}}"
#define KEYS "\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}}"
#define LITTLE "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define BIG "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}"
#define BYTES "{\"name\":\"bytes\"}"
#define ZSTD "{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":true}}"
#define CRC "{\"name\":\"crc32c\"}"
#define TURN(o) "{\"name\":\"transpose\",\"configuration\":{\"order\":" o "}}"
#define SHARD(c, codecs, index, where)                                         \
	"{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" c \
	",\"codecs\":[" codecs "],\"index_codecs\":[" index "],\"index_location\":\"" where "\"}}"

/* clang-format off */
static const char *const docs[] = {
	V2("\"shape\":[7,5,6],\"chunks\":[3,2,6],\"dtype\":\"<f4\",\"fill_value\":1.5,\"order\":\"C\","
	   "\"compressor\":{\"id\":\"zstd\",\"level\":1}"),
	V2("\"shape\":[7,5,6],\"chunks\":[3,2,4],\"dtype\":\">i2\",\"fill_value\":null,\"order\":\"F\","
	   "\"compressor\":null,\"dimension_separator\":\"/\""),
	V2("\"shape\":[6,4],\"chunks\":[3,4],\"dtype\":\"<u2\",\"fill_value\":0,\"order\":\"C\",\"compressor\":null"),
	V2("\"shape\":[1000],\"chunks\":[1],\"dtype\":\"|u1\",\"fill_value\":0,\"order\":\"C\",\"compressor\":null"),
	V2("\"shape\":[40,300],\"chunks\":[40,1],\"dtype\":\"<i4\",\"fill_value\":0,\"order\":\"C\","
	   "\"compressor\":null"),
	V2("\"shape\":[3000,3],\"chunks\":[2048,3],\"dtype\":\"<i4\",\"fill_value\":0,\"order\":\"C\","
	   "\"compressor\":null"),
	V2("\"shape\":[],\"chunks\":[],\"dtype\":\"<f8\",\"fill_value\":2.5,\"order\":\"C\",\"compressor\":null"),
	V2("\"shape\":[4,0,3],\"chunks\":[2,1,3],\"dtype\":\"<f8\",\"fill_value\":0,\"order\":\"C\","
	   "\"compressor\":{\"id\":\"zlib\",\"level\":1}"),
	V2("\"shape\":[5,5],\"chunks\":[4,4],\"dtype\":\"|b1\",\"fill_value\":true,\"order\":\"F\","
	   "\"compressor\":{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}"),
	V2("\"shape\":[9],\"chunks\":[4],\"dtype\":\"bfloat16\",\"fill_value\":null,\"order\":\"C\","
	   "\"compressor\":{\"id\":\"gzip\",\"level\":1}"),
	V3("\"shape\":[7,5,6],\"data_type\":\"float32\",\"fill_value\":-2.0," GRID("[4,3,6]") "," KEYS
	   ",\"codecs\":[" TURN("[2,0,1]") "," BIG "," ZSTD "," CRC "]"),
	V3("\"shape\":[7,5,6],\"data_type\":\"int4\",\"fill_value\":-3," GRID("[4,5,2]") "," KEYS
	   ",\"codecs\":[" TURN("[1,2,0]") "," TURN("[2,1,0]") "," BYTES "]"),
	V3("\"shape\":[9,10],\"data_type\":\"uint16\",\"fill_value\":0," GRID("[8,4]") "," KEYS
	   ",\"codecs\":[" SHARD("[2,2]", LITTLE, LITTLE "," CRC, "end") "]"),
	V3("\"shape\":[9,10],\"data_type\":\"complex64\",\"fill_value\":[1.0,2.0]," GRID("[6,4]") "," KEYS
	   ",\"codecs\":[" TURN("[1,0]") "," SHARD("[2,3]", TURN("[1,0]") "," BIG "," ZSTD, BIG, "start") "]"),
	V3("\"shape\":[16,12],\"data_type\":\"int64\",\"fill_value\":7," GRID("[16,8]") "," KEYS ",\"codecs\":["
	   SHARD("[8,4]", SHARD("[4,2]", LITTLE "," CRC, LITTLE, "end"), LITTLE "," CRC, "start") "]"),
	V3("\"shape\":[16,12],\"data_type\":\"int8\",\"fill_value\":0," GRID("[16,8]") "," KEYS ",\"codecs\":["
	   SHARD("[8,4]", TURN("[1,0]") "," SHARD("[2,8]", SHARD("[1,4]", BYTES, LITTLE, "end"), LITTLE, "end"),
		 LITTLE "," CRC, "start") "]"),
	V3("\"shape\":[2,1,3,1,2,1,1,2],\"data_type\":\"float16\",\"fill_value\":\"NaN\"," GRID("[1,1,2,1,2,1,1,1]")
	   "," KEYS ",\"codecs\":[" LITTLE "]"),
};
/* clang-format on */

/* ---- views ---- */

static inline void random_view(struct made *m, struct zarr_view *v)
{
	unsigned rank = m->meta.rank;

	zarr_view_whole(&m->meta, v);
	if (made_random(m, 3) == 0) {
		uint64_t shape[LIMIT_RANK];

		for (unsigned i = 0; i < rank; i++)
			shape[i] = made_random(m, 3) ? m->meta.shape[i] :
						       made_random(m, 2 * m->meta.shape[i] + 2);
		assert_int_equal(zarr_view_reshape(v, rank, shape), 0);
	}
	for (unsigned i = 0; i < rank; i++) {
		uint64_t extent = v->shape[i], start, step, most;

		if (made_random(m, 2) == 0 || !extent)
			continue;
		start = made_random(m, extent);
		step = 1 + made_random(m, 3) * made_random(m, 3);
		most = (extent - start - 1) / step + 1;
		if (made_random(m, 4) == 0)
			assert_int_equal(zarr_view_slice(v, i, start, 1, 1, true), 0);
		else
			assert_int_equal(zarr_view_slice(v, i, start, step,
							 made_random(m, most + 1), false),
					 0);
	}
	if (made_random(m, 3) == 0) {
		static const enum dtype to[] = { DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_INT8,
						 DTYPE_COMPLEX128, DTYPE_BOOL };

		v->dtype = to[made_random(m, ARRAY_LEN(to))];
	}
	assert_int_equal(zarr_view_finish(v), 0);
}

/* The bytes of a view, computed one element after the other. */
static inline uint8_t *view_bytes(const struct made *m, const struct zarr_view *v)
{
	size_t item = dtype_info(m->meta.dtype)->size, out = dtype_info(v->dtype)->size;
	uint8_t *p = calloc(v->bytes + 1, 1), *to = p;
	uint64_t pos[LIMIT_RANK] = { 0 }, at[LIMIT_RANK], count[LIMIT_RANK];

	assert_non_null(p);
	if (v->n_elements == 0)
		return p;
	for (unsigned i = 0; i < v->rank; i++)
		count[i] = v->axis[i].count;
	do {
		for (unsigned i = 0; i < v->rank; i++)
			at[i] = v->axis[i].start + v->axis[i].step * pos[i];
		if (made_inside(m, at))
			cast(v->dtype, to, m->meta.dtype, m->want + made_index(m, at) * item, 1);
		to += out;
	} while (made_step(pos, count, v->rank));
	assert_ptr_equal(to, p + v->bytes);
	return p;
}

#endif
