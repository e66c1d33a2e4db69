/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_text.c - zarr metadata as text for people: `dump`, `info`, error notes.
 */
#include "core/base/err.h"
#include "core/zarr/meta/zarr_meta.h"

static int put_list(struct buf *b, const char *name, const uint64_t *v, unsigned n)
{
	int r = buf_addf(b, "%s [", name);

	for (unsigned i = 0; i < n && r >= 0; i++)
		r = buf_addf(b, "%s%llu", i ? ", " : "", (unsigned long long)v[i]);
	return r < 0 ? r : buf_add_str(b, "]");
}

static int text_put_line(struct buf *b, const char *name, const uint64_t *v, unsigned n)
{
	int r = put_list(b, name, v, n);

	return r < 0 ? r : buf_add_byte(b, '\n');
}

static int text_put_codecs(struct buf *b, const struct codec_chain *chain, int indent)
{
	int r = 0;

	for (unsigned i = 0; i < chain->n && r >= 0; i++) {
		r = buf_addf(b, "%*scodec ", indent, "");
		if (r < 0)
			return r;
		r = codec_print(chain->codec[i], chain->dialect, b);
		if (r < 0)
			return r;
		r = buf_add_byte(b, '\n');
	}
	return r;
}

/* LIMIT_SHARD_NESTING bounds the recursion. */
static int put_level(struct buf *b, const struct zarr_meta *m, const struct zarr_level *l,
		     int indent)
{
	const struct zarr_shard *s = l->shard;
	uint64_t axis[LIMIT_RANK];
	int r;

	for (unsigned i = 0; i < m->rank; i++)
		axis[i] = l->axis[i];
	r = buf_addf(b, "%*s%s ", indent, "", s ? "shard" : "elements");
	if (r < 0)
		return r;
	r = put_list(b, "shape", l->shape, m->rank);
	if (r < 0)
		return r;
	r = put_list(b, " axes", axis, m->rank);
	if (r < 0)
		return r;
	if (!s) {
		r = buf_addf(b, " %s %llu bytes\n", l->big_endian ? "big-endian" : "little-endian",
			     (unsigned long long)l->bytes);
		return r < 0 ? r : text_put_codecs(b, &l->codecs, indent + 2);
	}
	r = put_list(b, " grid", s->grid, m->rank);
	if (r < 0)
		return r;
	r = buf_addf(b, "\n%*sindex %llu bytes at %s, %s%s\n", indent + 2, "",
		     (unsigned long long)s->index_bytes, s->index_at_start ? "start" : "end",
		     s->index_big_endian ? "big-endian" : "little-endian",
		     s->index_crc32c ? ", crc32c" : "");
	return r < 0 ? r : put_level(b, m, &s->inner, indent + 2);
}

int zarr_meta_text(struct buf *out, const struct zarr_meta *m)
{
	int r = buf_addf(out, "zarr %u\ndtype %s\n", m->format, dtype_info(m->dtype)->name);

	if (r < 0)
		return r;
	r = text_put_line(out, "shape", m->shape, m->rank);
	if (r < 0)
		return r;
	r = text_put_line(out, "chunk", m->chunk, m->rank);
	if (r < 0)
		return r;
	r = text_put_line(out, "grid", m->grid, m->rank);
	if (r < 0)
		return r;
	r = buf_addf(out, "keys %s '%c'\nfill ", m->keys == ZARR_KEYS_DEFAULT ? "default" : "v2",
		     m->separator);
	if (r < 0)
		return r;
	r = m->fill_is_null ? buf_add_str(out, "null") :
			      dtype_fill_print(m->dtype, (int)m->format, m->fill, out);
	if (r < 0)
		return r;
	r = buf_addf(out, "\nelements %llu\nbytes %llu\n", (unsigned long long)m->n_elements,
		     (unsigned long long)m->bytes);
	return r < 0 ? r : put_level(out, m, &m->level, 0);
}
