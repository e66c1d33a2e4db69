/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_tool.c - zarr metadata, keys and chunks as a filter, for tests/interop/test_zarr_meta.py and
 * test_codecs.py.
 *
 * Each request is a line "COMMAND LENGTH LENGTH" and that many bytes twice; each answer a line
 * "ok LENGTH" or "error CODE LENGTH" and LENGTH bytes:
 *
 *     text DOC -           zarr_meta_text()
 *     decode DOC OBJECT    a chunk object -> the whole chunk, in C order, little-endian (no shards)
 *     encode DOC BYTES     bytes as the chunk stores them -> an object, through the codecs only
 *     encode-pieces DOC BYTES    the same, pushed in pieces
 *     keys DOC -           every chunk key, one a line
 *     create SPEC -        a document for "FORMAT DTYPE LEVEL|none sharded|plain SHAPE CHUNK"
 *
 * The bytes of encode differ from those of decode where elements are big-endian, or the order is
 * "F" or transposed. SHAPE and CHUNK are sizes with commas, "-" for rank 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/dtype/cast.h"
#include "core/zarr/meta/zarr_meta.h"

struct place {
	const struct zarr_meta *m;
	uint8_t *out;
	uint64_t stride[LIMIT_RANK]; /* of the chunk's axes, in bytes */
};

/* The next position in a C-order walk; false at the end. */
static bool step(uint64_t *pos, const uint64_t *shape, unsigned rank)
{
	for (unsigned i = rank; i-- > 0;) {
		if (++pos[i] < shape[i])
			return true;
		pos[i] = 0;
	}
	return false;
}

/* element: NULL: all of the same fill. */
static void put_elements(const struct place *p, const struct zarr_level *l, const uint8_t *elements,
			 uint64_t at)
{
	size_t size = dtype_info(p->m->dtype)->size;
	uint64_t pos[LIMIT_RANK] = { 0 };

	do {
		uint64_t to = at;

		for (unsigned i = 0; i < p->m->rank; i++)
			to += pos[i] * p->stride[l->axis[i]];
		memcpy(p->out + to, elements ? elements : p->m->fill, size);
		elements = elements ? elements + size : NULL;
	} while (step(pos, l->shape, p->m->rank));
}

static int put_level(const struct place *p, const struct zarr_level *l, struct span object,
		     uint64_t at);

static int put_shard(const struct place *p, const struct zarr_level *l, struct span object,
		     uint64_t at)
{
	const struct zarr_shard *s = l->shard;
	uint64_t pos[LIMIT_RANK] = { 0 }, entry = 0;
	struct span index;

	if (object.n < s->index_bytes)
		return fail(-EUCLEAN, "shard of %zu bytes", object.n);
	index = span_of(s->index_at_start ? object.p : object.p + object.n - s->index_bytes,
			s->index_bytes);
	if (s->index_crc32c &&
	    crc32c(span_of(index.p, index.n - 4)) != get_u32le(index.p + index.n - 4))
		return fail(-EBADMSG, "shard index");
	do {
		uint64_t off = get_u64le(index.p + 16 * entry),
			 len = get_u64le(index.p + 16 * entry + 8);
		uint64_t to = at;
		int r = 0;

		if (s->index_big_endian) {
			off = __builtin_bswap64(off);
			len = __builtin_bswap64(len);
		}
		for (unsigned i = 0; i < p->m->rank; i++)
			to += pos[i] * (l->shape[i] / s->grid[i]) * p->stride[l->axis[i]];
		if (off == UINT64_MAX && len == UINT64_MAX) {
			/* The position does not depend on the level below. */
			struct zarr_level plain = s->inner;

			put_elements(p, &plain, NULL, to);
		} else if (off > object.n || len > object.n - off) {
			return fail(-EUCLEAN, "shard entry %llu", (unsigned long long)entry);
		} else {
			r = put_level(p, &s->inner, span_of(object.p + off, len), to);
		}
		if (r < 0)
			return r;
		entry++;
	} while (step(pos, s->grid, p->m->rank));
	return 0;
}

static int put_level(const struct place *p, const struct zarr_level *l, struct span object,
		     uint64_t at)
{
	auto_buf elements = { 0 };
	int r;

	if (l->shard)
		return put_shard(p, l, object, at);
	r = buf_reserve(&elements, l->bytes);
	if (r >= 0)
		r = codec_decode(&l->codecs, object, elements.p, l->bytes);
	if (r < 0)
		return r;
	if (l->big_endian)
		cast_swap(p->m->dtype, elements.p, l->bytes / dtype_info(p->m->dtype)->size);
	put_elements(p, l, elements.p, at);
	return 0;
}

static int decode(const struct zarr_meta *m, struct span object, struct buf *out)
{
	struct place p = { .m = m };
	uint64_t bytes = dtype_info(m->dtype)->size;
	int r;

	for (unsigned i = m->rank; i-- > 0;) {
		p.stride[i] = bytes;
		bytes *= m->chunk[i];
	}
	r = buf_reserve(out, bytes);
	if (r < 0)
		return r;
	memset(out->p, 0xee, bytes);
	p.out = out->p;
	r = put_level(&p, &m->level, object, 0);
	if (r >= 0)
		out->n = bytes;
	return r;
}

static int sink(void *arg, struct span s)
{
	return buf_add_span(arg, s);
}

static int encode_pieces(const struct codec_chain *chain, struct span in, struct buf *out)
{
	auto_of(codec_encoder) struct codec_encoder *e = NULL;
	int r = codec_encoder_open(chain, in.n, sink, out, &e);

	for (size_t at = 0; at < in.n && r >= 0; at += 1000)
		r = codec_encoder_push(e, span_of(in.p + at, MIN((size_t)1000, in.n - at)));
	return r < 0 ? r : codec_encoder_finish(e);
}

static int keys(const struct zarr_meta *m, struct buf *out)
{
	uint64_t pos[LIMIT_RANK] = { 0 }, again[LIMIT_RANK];
	int r = 0;

	for (unsigned i = 0; i < m->rank; i++)
		if (!m->grid[i])
			return 0;
	do {
		size_t at = out->n;

		r = zarr_chunk_key(m, pos, out);
		if (r < 0)
			return r;
		if (zarr_chunk_key_parse(m, span_from(buf_span(out), at), again) != 1 ||
		    memcmp(pos, again, m->rank * sizeof(*pos)) != 0)
			return fail(-EINVAL, "key does not come back");
		r = buf_add_byte(out, '\n');
	} while (r >= 0 && step(pos, m->grid, m->rank));
	return r;
}

static unsigned sizes(char *text, uint64_t *ret)
{
	unsigned n = 0;

	for (char *s = strcmp(text, "-") ? strtok(text, ",") : NULL; s && n < LIMIT_RANK;
	     s = strtok(NULL, ","))
		ret[n++] = strtoull(s, NULL, 10);
	return n;
}

static int create(const char *spec, struct buf *out)
{
	char dtype[64], level[32], format[32], shape[512], chunk[512];
	uint64_t shape_of[LIMIT_RANK], chunk_of[LIMIT_RANK];
	struct zarr_create c = { .array.shape = shape_of, .chunk = chunk_of };

	if (sscanf(spec, "%u %63s %31s %31s %511s %511s", &c.format, dtype, level, format, shape,
		   chunk) != 6)
		return fail(-EINVAL, "spec");
	c.array.dtype = dtype_by_name(span_str(dtype));
	if (compression_parse(level, &c.compression) < 0)
		c.compression =
			(struct compression){ .kind = COMPRESSION_ZSTD, .level = atoi(level) };
	c.sharded = strcmp(format, "sharded") == 0;
	c.array.rank = sizes(shape, shape_of);
	sizes(chunk, chunk_of);
	return zarr_meta_print(&c, out);
}

static int run(const char *command, struct span a, struct span b, struct buf *out)
{
	auto_free char *text = span_dup_str(a);
	auto_free struct zarr_meta *m = calloc(1, sizeof(*m));
	int r;

	if (!m || !text)
		return -ENOMEM;
	if (strcmp(command, "create") == 0)
		return create(text, out);
	r = zarr_meta_parse(a, "document", m);
	if (r < 0)
		return r;
	if (strcmp(command, "text") == 0)
		r = zarr_meta_text(out, m);
	else if (strcmp(command, "decode") == 0)
		r = decode(m, b, out);
	else if (strcmp(command, "encode") == 0)
		r = codec_encode(&m->level.codecs, b, out);
	else if (strcmp(command, "encode-pieces") == 0)
		r = encode_pieces(&m->level.codecs, b, out);
	else if (strcmp(command, "keys") == 0)
		r = keys(m, out);
	else
		exit(2);
	zarr_meta_release(m);
	return r;
}

int main(void)
{
	char line[256], command[32];
	size_t na, nb;

	while (fgets(line, sizeof(line), stdin)) {
		auto_buf in = { 0 }, out = { 0 };
		int r;

		if (sscanf(line, "%31s %zu %zu", command, &na, &nb) != 3)
			return 2;
		if (buf_reserve(&in, na + nb + 1) < 0 || fread(in.p, 1, na + nb, stdin) != na + nb)
			return 2;
		r = run(command, span_of(in.p, na), span_of(in.p + na, nb), &out);
		if (r < 0) {
			const char *text = err_text(r);

			printf("error %d %zu\n%s", r, strlen(text), text);
		} else {
			printf("ok %zu\n", out.n);
			fwrite(out.p, 1, out.n, stdout);
		}
		fflush(stdout);
	}
	return 0;
}
