/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_text.c - zarr metadata as text for people: `dump`, `info`, error notes.
 */
#include "core/base/err.h"
#include "core/zarr/meta/zarr_meta.h"

static void put_list(struct buf *b, const char *name, const uint64_t *v, unsigned n)
{
	buf_addf(b, "%s ", name);
	json_put_uints(b, v, n, JSON_PYTHON);
}

/* LIMIT_SHARD_NESTING bounds the recursion. */
static void put_level(struct buf *b, const struct zarr_meta *m, const struct zarr_level *l,
		      int indent)
{
	const struct zarr_shard *s = l->shard;
	uint64_t axis[LIMIT_RANK];

	for (unsigned i = 0; i < m->rank; i++)
		axis[i] = l->axis[i];
	buf_addf(b, "%*s%s ", indent, "", s ? "shard" : "elements");
	put_list(b, "shape", l->shape, m->rank);
	put_list(b, " axes", axis, m->rank);
	if (!s) {
		buf_addf(b, " %s %llu bytes\n", l->big_endian ? "big-endian" : "little-endian",
			 (unsigned long long)l->bytes);
		for (unsigned i = 0; i < l->codecs.n; i++) {
			buf_addf(b, "%*scodec ", indent + 2, "");
			codec_print(l->codecs.codec[i], l->codecs.dialect, b);
			buf_add_byte(b, '\n');
		}
		return;
	}
	put_list(b, " grid", s->grid, m->rank);
	buf_addf(b, "\n%*sindex %llu bytes at %s, %s%s\n", indent + 2, "",
		 (unsigned long long)s->index_bytes, s->index_at_start ? "start" : "end",
		 s->index_big_endian ? "big-endian" : "little-endian",
		 s->index_crc32c ? ", crc32c" : "");
	put_level(b, m, &s->inner, indent + 2);
}

int zarr_meta_text(struct buf *out, const struct zarr_meta *m)
{
	buf_addf(out, "zarr %u\ndtype %s\n", m->format, dtype_info(m->dtype)->name);
	put_list(out, "shape", m->shape, m->rank);
	put_list(out, "\nchunk", m->chunk, m->rank);
	put_list(out, "\ngrid", m->grid, m->rank);
	buf_addf(out, "\nkeys %s '%c'\nfill ", m->keys == ZARR_KEYS_DEFAULT ? "default" : "v2",
		 m->separator);
	if (m->fill_is_null)
		buf_add_str(out, "null");
	else
		dtype_fill_print(m->dtype, (int)m->format, m->fill, out);
	buf_addf(out, "\nelements %llu\nbytes %llu\n", (unsigned long long)m->n_elements,
		 (unsigned long long)m->bytes);
	put_level(out, m, &m->level, 0);
	return buf_failed(out);
}
