/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_digest.c - computes and looks up the SHA-256 of values.
 */
#include "handlers/leaf/leaf_digest.h"

#include "core/base/digest.h"
#include "core/base/err.h"

#define PIECE (1 * MiB)
#define AHEAD (16 * MiB) /* bytes to decode ahead of the reader */

int leaf_digest_name(const struct tree_node *leaf, struct buf *ret)
{
	const char *ext = name_ext_text(leaf_ext(NULL, leaf));
	auto_buf path = { 0 };
	int r = tree_path(leaf, &path);

	if (r < 0)
		return r;
	if (span_ends(buf_span(&path), span_str(ext)))
		path.n -= strlen(ext);
	return buf_addf(ret, "%.*s%s", SPAN_ARG(buf_span(&path)), name_ext_text(NAME_EXT_BIN));
}

static int hash_array(struct zarr *z, struct sha256 *s)
{
	auto_free uint8_t *piece = malloc(PIECE);
	struct zarr_view v;

	if (!piece)
		return fail(-ENOMEM, "cannot compute a SHA-256: not enough memory");
	zarr_view_whole(&z->meta, &v);
	for (uint64_t at = 0, next; at < v.bytes; at = next) {
		size_t n = (size_t)MIN((uint64_t)PIECE, v.bytes - at);
		int r;

		next = at + n;
		zarr_prefetch(z, &v, next, AHEAD, NULL);
		r = zarr_read_into(z, &v, at, n, piece);
		if (r < 0)
			return r;
		sha256_add(s, span_of(piece, n));
		zarr_drop_behind(z, &v, at, next);
	}
	return 0;
}

int leaf_digest(const struct value *v, uint8_t ret[DIGEST_BYTES])
{
	auto_of(sha256) struct sha256 *s = NULL;
	int r;

	if (v->kind != VALUE_ARRAY && v->kind != VALUE_TEXT)
		return 0;
	r = sha256_new(&s);
	if (r < 0)
		return r;
	if (v->kind == VALUE_ARRAY)
		r = hash_array(v->array, s);
	else
		sha256_add(s, buf_span(&v->text));
	if (r < 0)
		return r;
	sha256_end(s, ret);
	return 1;
}

int leaf_digest_recorded(struct item *item, const struct tree_node *leaf, uint8_t ret[DIGEST_BYTES])
{
	const struct digests_entry *e;
	const struct digests *d = NULL;
	auto_buf name = { 0 };
	int r = item->tree->made_of || leaf->source ? 0 : item_digests(item, &d);

	if (r < 0 || !d)
		return r;
	r = leaf_digest_name(leaf, &name);
	if (r < 0)
		return r;
	e = digests_find(d, buf_span(&name));
	if (e)
		memcpy(ret, e->sha256, DIGEST_BYTES);
	return e != NULL;
}
