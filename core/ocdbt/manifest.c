/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c - the manifest: configuration and the roots of all versions, bytes <-> struct.
 *
 * version.c has the version arrays; db.c chooses the file of the manifest, and finds the newest one
 * of the numbered kind.
 *
 * Invariants: a manifest of the single kind has a current version; its version nodes obey R7, so
 * that a search for a version visits each node at most once.
 */
#include <assert.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/record.h"

/* ---- configuration ---- */

/* R2 */
static int config_parse(struct wire *w, struct ocdbt_config *c)
{
	struct span uuid = wire_bytes(w, sizeof(c->uuid));
	uint8_t kind = wire_u8(w), arity;
	uint32_t method;

	if (uuid.n == sizeof(c->uuid))
		memcpy(c->uuid, uuid.p, uuid.n);
	c->max_inline_value_bytes = (uint32_t)wire_varint(w, UINT32_MAX);
	c->max_decoded_node_bytes = (uint32_t)wire_varint(w, UINT32_MAX);
	arity = wire_u8(w);
	method = (uint32_t)wire_varint(w, UINT32_MAX);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "configuration is truncated or holds a malformed number");
	if (kind > OCDBT_NUMBERED)
		return fail(-EOPNOTSUPP, "manifest of kind %u, known are 0 and 1", kind);
	if (arity < 1 || arity > OCDBT_ARITY_LOG2_MAX)
		return fail(-EUCLEAN, "version tree of arity 2^%u, known are 2^1 to 2^%d", arity,
			    OCDBT_ARITY_LOG2_MAX);
	if (method > OCDBT_ZSTD)
		return fail(-EOPNOTSUPP, "compression method %u, known are 0 and 1", method);
	c->kind = kind;
	c->arity_log2 = arity;
	c->compression = method;
	c->zstd_level = method == OCDBT_ZSTD ? (int32_t)wire_u32le(w) : 0;
	if (!wire_ok(w))
		return fail(-EUCLEAN, "configuration is truncated");
	if (c->zstd_level < OCDBT_ZSTD_LEVEL_MIN || c->zstd_level > OCDBT_ZSTD_LEVEL_MAX)
		return fail(-EUCLEAN, "zstd level %d, known are %d to %d", c->zstd_level,
			    OCDBT_ZSTD_LEVEL_MIN, OCDBT_ZSTD_LEVEL_MAX);
	return 0;
}

static int config_pack(const struct ocdbt_config *c, struct buf *ret)
{
	int r = buf_add(ret, c->uuid, sizeof(c->uuid));

	if (r < 0)
		return r;
	r = wire_put_u8(ret, (uint8_t)c->kind);
	if (r < 0)
		return r;
	r = wire_put_varint(ret, c->max_inline_value_bytes);
	if (r < 0)
		return r;
	r = wire_put_varint(ret, c->max_decoded_node_bytes);
	if (r < 0)
		return r;
	r = wire_put_u8(ret, (uint8_t)c->arity_log2);
	if (r < 0)
		return r;
	r = wire_put_varint(ret, c->compression);
	if (r < 0)
		return r;
	if (c->compression == OCDBT_ZSTD)
		r = wire_put_u32le(ret, (uint32_t)c->zstd_level);
	return r;
}

/* ---- parse ---- */

bool ocdbt_manifest_range(unsigned arity_log2, uint64_t g, unsigned height, uint64_t *ret_low,
			  uint64_t *ret_high)
{
	/*
	 * c(1), then n(h) = c(h + 1): each is the largest multiple of A^h below the previous one.
	 */
	uint64_t high = g ? (g - 1) >> arity_log2 << arity_log2 : 0;

	for (unsigned h = 1; high; h++) {
		unsigned shift = arity_log2 * (h + 1);
		uint64_t low = (high - 1) >> shift << shift;

		if (h == height) {
			*ret_low = low;
			*ret_high = high;
			return true;
		}
		if (h == ocdbt_vnode_height_max(arity_log2))
			return false;
		high = low;
	}
	return false;
}

/* R7 for one of the manifest's version nodes. */
static int manifest_check_node(const struct ocdbt_manifest *m, size_t i)
{
	unsigned a = m->config.arity_log2;
	const struct ocdbt_version_ref *v = &m->nodes[i];
	uint64_t g = m->versions[m->n_versions - 1].generation, low, high;

	if (v->height < 1 || v->height > ocdbt_vnode_height_max(a) ||
	    (i && v->height >= v[-1].height))
		return fail(-EUCLEAN, "version node %zu: height %u follows %u, most is %u", i,
			    v->height, i ? v[-1].height : 0, ocdbt_vnode_height_max(a));
	if (!ocdbt_manifest_range(a, g, v->height, &low, &high))
		return fail(-EUCLEAN, "version node %zu: height %u before generation %llu", i,
			    v->height, (unsigned long long)g);
	if (v->generation <= low || v->generation > high)
		return fail(-EUCLEAN, "version node %zu: generation %llu is not in %llu to %llu", i,
			    (unsigned long long)v->generation, (unsigned long long)(low + 1),
			    (unsigned long long)high);
	if (v->generation & (((uint64_t)1 << a * v->height) - 1))
		return fail(-EUCLEAN, "version node %zu: generation %llu is not a multiple of 2^%u",
			    i, (unsigned long long)v->generation, a * v->height);
	if (v->num_generations > (uint64_t)1 << a * (v->height + 1))
		return fail(-EUCLEAN, "version node %zu: %llu generations in a block of 2^%u", i,
			    (unsigned long long)v->num_generations, a * (v->height + 1));
	return 0;
}

static int versions_parse(struct wire *w, struct ocdbt_manifest *m)
{
	unsigned a = m->config.arity_log2;
	struct ocdbt_files files;
	int r = ocdbt_files_parse(w, span_of(NULL, 0), &m->arena, &files);

	if (r < 0)
		return r;
	r = ocdbt_versions_parse(w, &files, a, &m->arena, &m->versions, &m->n_versions);
	if (r < 0)
		return r;
	r = ocdbt_version_refs_parse(w, &files, ocdbt_vnode_height_max(a), true, &m->arena,
				     &m->nodes, &m->n_nodes);
	for (size_t i = 0; r >= 0 && i < m->n_nodes; i++)
		r = manifest_check_node(m, i);
	if (r < 0)
		return r;
	if (m->n_nodes && m->nodes[m->n_nodes - 1].commit_time >= m->versions[0].commit_time)
		return fail(-EUCLEAN, "version nodes begin at time %llu, later versions at %llu",
			    (unsigned long long)m->nodes[m->n_nodes - 1].commit_time,
			    (unsigned long long)m->versions[0].commit_time);
	return 0;
}

int ocdbt_manifest_parse(struct span stored, struct ocdbt_manifest *ret)
{
	auto_manifest m = { .arena.metered = true };
	auto_buf hold = { 0 };
	struct span body;
	struct wire w;
	int r = ocdbt_frame_open(OCDBT_MANIFEST, stored, LIMIT_MANIFEST_BYTES, &hold, &body);

	if (r < 0)
		return r;
	w = wire_of(body);
	r = config_parse(&w, &m.config);
	if (r < 0)
		return r;
	if (m.config.kind == OCDBT_SINGLE)
		r = versions_parse(&w, &m);
	if (r < 0)
		return r;
	if (wire_left(&w))
		return fail(-EUCLEAN, "%zu bytes follow the manifest's contents", wire_left(&w));
	*ret = m;
	m = (struct ocdbt_manifest){ 0 };
	return 0;
}

/* ---- pack ---- */

static int versions_pack(const struct ocdbt_manifest *m, struct buf *body)
{
	auto_filelist files = { 0 };
	size_t n = m->n_versions + m->n_nodes;
	auto_free uint32_t *id = calloc(n, sizeof(*id));
	auto_free uint32_t *index = calloc(n, sizeof(*index));
	int r;

	if (!id || !index)
		return fail(-ENOMEM, "cannot allocate %zu versions", n);
	for (size_t i = 0; i < n; i++) {
		const struct ocdbt_ref *ref = i < m->n_versions ? &m->versions[i].root :
								  &m->nodes[i - m->n_versions].node;

		r = ocdbt_filelist_add(&files, ref->base, ref->rel, &id[i]);
		if (r < 0)
			return r;
	}
	r = ocdbt_filelist_pack(&files, body, index);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		id[i] = index[id[i]];
	r = ocdbt_versions_pack(m->versions, m->n_versions, id, body);
	return r < 0 ? r :
		       ocdbt_version_refs_pack(m->nodes, m->n_nodes, true, id + m->n_versions,
					       body);
}

int ocdbt_manifest_pack(const struct ocdbt_manifest *m, const struct ocdbt_config *compress,
			struct buf *ret)
{
	auto_buf body = { 0 };
	int r;

	assert(m->config.arity_log2 >= 1 && m->config.arity_log2 <= OCDBT_ARITY_LOG2_MAX);
	assert(m->config.kind == OCDBT_NUMBERED ||
	       (m->n_versions >= 1 && m->n_versions <= (size_t)1 << m->config.arity_log2 &&
		m->n_nodes <= ocdbt_vnode_height_max(m->config.arity_log2)));
	r = config_pack(&m->config, &body);
	if (r < 0)
		return r;
	if (m->config.kind == OCDBT_SINGLE)
		r = versions_pack(m, &body);
	return r < 0 ? r : ocdbt_frame_pack(OCDBT_MANIFEST, compress, buf_span(&body), ret);
}

void ocdbt_manifest_release(struct ocdbt_manifest *m)
{
	arena_release(&m->arena);
	*m = (struct ocdbt_manifest){ 0 };
}
