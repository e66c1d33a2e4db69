/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.c - version arrays and the version tree node: bytes <-> struct.
 *
 * manifest.c has the manifest around the same arrays; versions.c follows
 * references from version node to version node.
 *
 * Invariants: generations and commit times strictly ascend in every array; an
 * empty version has no statistics; references stay below 2^63.
 */
#include <assert.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/record.h"

void ocdbt_stats_add(struct ocdbt_stats *sum, const struct ocdbt_stats *more)
{
	if (__builtin_add_overflow(sum->keys, more->keys, &sum->keys))
		sum->keys = UINT64_MAX;
	if (__builtin_add_overflow(sum->tree_bytes, more->tree_bytes, &sum->tree_bytes))
		sum->tree_bytes = UINT64_MAX;
	if (__builtin_add_overflow(sum->value_bytes, more->value_bytes, &sum->value_bytes))
		sum->value_bytes = UINT64_MAX;
}

static int no_memory_for_versions(size_t n)
{
	return fail(-ENOMEM, "cannot allocate %zu versions", n);
}

/* ---- columns of both arrays ---- */

/* The reference in item i of an array of structs. */
#define REF_AT(array, stride, i) ((struct ocdbt_ref *)((char *)(array) + (i) * (stride)))

/* Parse the three columns of references; ref points to the one of the first item. */
static int refs_parse(struct wire *w, const struct ocdbt_files *files, struct ocdbt_ref *ref,
		      size_t stride, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t file = wire_varint(w, UINT64_MAX);

		if (!wire_ok(w))
			return fail(-EUCLEAN, "version array is truncated");
		if (file >= files->n)
			return fail(-EUCLEAN, "version %zu refers to data file %llu of %u", i,
				    (unsigned long long)file, files->n);
		ocdbt_files_get(files, (uint32_t)file, REF_AT(ref, stride, i));
	}
	for (size_t i = 0; i < n; i++)
		REF_AT(ref, stride, i)->off = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		REF_AT(ref, stride, i)->len = wire_varint(w, UINT64_MAX);
	return 0;
}

static int refs_pack(const struct ocdbt_ref *ref, size_t stride, size_t n, const uint32_t *file,
		     struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, file[i]);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, REF_AT(ref, stride, i)->off);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, REF_AT(ref, stride, i)->len);
	return r;
}

/* R4 */
static int check_ref(const struct ocdbt_ref *ref, size_t i)
{
	uint64_t end;

	if (!add_fits(ref->off, ref->len, &end) || end > INT64_MAX)
		return fail(-EUCLEAN, "version %zu: %llu bytes at offset %llu are beyond 2^63", i,
			    (unsigned long long)ref->len, (unsigned long long)ref->off);
	return 0;
}

/* R5: check the generation and commit time of item i against the previous item. */
static int check_order(size_t i, uint64_t g_before, uint64_t g, uint64_t t_before, uint64_t t)
{
	if (g == 0 || (i && g <= g_before))
		return fail(-EUCLEAN, "version %zu: generation %llu follows %llu", i,
			    (unsigned long long)g, (unsigned long long)(i ? g_before : 0));
	if (i && t <= t_before)
		return fail(-EUCLEAN, "version %zu: commit time %llu follows %llu", i,
			    (unsigned long long)t, (unsigned long long)t_before);
	return 0;
}

/* ---- leaf array ---- */

static int check_version_entry(const struct ocdbt_version *v, size_t i)
{
	int r = check_order(i, i ? v[i - 1].generation : 0, v[i].generation,
			    i ? v[i - 1].commit_time : 0, v[i].commit_time);

	if (r < 0)
		return r;
	if (v[i].root.off != OCDBT_NO_ROOT || v[i].root.len != OCDBT_NO_ROOT)
		return check_ref(&v[i].root, i);
	if (v[i].root_height || v[i].stats.keys || v[i].stats.tree_bytes || v[i].stats.value_bytes)
		return fail(-EUCLEAN, "version %zu is empty but has a height or statistics", i);
	return 0;
}

int ocdbt_versions_parse(struct wire *w, const struct ocdbt_files *files, unsigned arity_log2,
			 struct arena *a, struct ocdbt_version **ret, size_t *ret_n)
{
	uint64_t n = wire_varint(w, UINT64_MAX);
	struct ocdbt_version *v;
	int r;

	if (!wire_ok(w) || n < 1 || n > (uint64_t)1 << arity_log2)
		return fail(-EUCLEAN, "array of %llu versions, the arity is %u",
			    (unsigned long long)n, 1u << arity_log2);
	if (wire_left(w) < 16 * n)
		return fail(-EUCLEAN, "array of %llu versions is truncated", (unsigned long long)n);
	v = arena_calloc(a, n, sizeof(*v));
	if (!v)
		return no_memory_for_versions(n);
	for (size_t i = 0; i < n; i++)
		v[i].generation = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		v[i].root_height = wire_u8(w);
	r = refs_parse(w, files, &v->root, sizeof(*v), n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		v[i].stats.keys = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		v[i].stats.tree_bytes = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		v[i].stats.value_bytes = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		v[i].commit_time = wire_u64le(w);
	if (!wire_ok(w))
		return fail(-EUCLEAN,
			    "array of %llu versions is truncated or holds a malformed number",
			    (unsigned long long)n);
	for (size_t i = 0; i < n; i++) {
		r = check_version_entry(v, i);
		if (r < 0)
			return r;
	}
	/* R5: the generations are in one aligned block of the size of the arity. */
	if ((v[0].generation - 1) >> arity_log2 != (v[n - 1].generation - 1) >> arity_log2)
		return fail(-EUCLEAN, "generations %llu and %llu are not in one block of %u",
			    (unsigned long long)v[0].generation,
			    (unsigned long long)v[n - 1].generation, 1u << arity_log2);
	*ret = v;
	*ret_n = n;
	return 0;
}

int ocdbt_versions_pack(const struct ocdbt_version *v, size_t n, const uint32_t *file,
			struct buf *ret)
{
	int r = wire_put_varint(ret, n);

	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].generation);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_u8(ret, (uint8_t)v[i].root_height);
	if (r < 0)
		return r;
	if (n)
		r = refs_pack(&v->root, sizeof(*v), n, file, ret);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].stats.keys);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].stats.tree_bytes);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].stats.value_bytes);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_u64le(ret, v[i].commit_time);
	return r;
}

/* ---- interior array ---- */

static int check_version_ref(const struct ocdbt_version_ref *v, size_t i)
{
	int r = check_order(i, i ? v[i - 1].generation : 0, v[i].generation,
			    i ? v[i - 1].commit_time : 0, v[i].commit_time);

	if (r < 0)
		return r;
	if (v[i].num_generations == 0)
		return fail(-EUCLEAN, "version node %zu says that it has no generations", i);
	return check_ref(&v[i].node, i);
}

int ocdbt_version_refs_parse(struct wire *w, const struct ocdbt_files *files, size_t max,
			     bool has_height, struct arena *a, struct ocdbt_version_ref **ret,
			     size_t *ret_n)
{
	uint64_t n = wire_varint(w, UINT64_MAX);
	struct ocdbt_version_ref *v;
	int r;

	if (!wire_ok(w) || n > max)
		return fail(-EUCLEAN, "array of %llu version nodes, most is %zu",
			    (unsigned long long)n, max);
	if (wire_left(w) < (13 + has_height) * n)
		return fail(-EUCLEAN, "array of %llu version nodes is truncated",
			    (unsigned long long)n);
	v = arena_calloc(a, n, sizeof(*v));
	if (!v)
		return no_memory_for_versions(n);
	for (size_t i = 0; i < n; i++)
		v[i].generation = wire_varint(w, UINT64_MAX);
	r = n ? refs_parse(w, files, &v->node, sizeof(*v), n) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		v[i].num_generations = wire_varint(w, UINT64_MAX);
	for (size_t i = 0; i < n; i++)
		v[i].commit_time = wire_u64le(w);
	for (size_t i = 0; i < n && has_height; i++)
		v[i].height = wire_u8(w);
	if (!wire_ok(w))
		return fail(-EUCLEAN,
			    "array of %llu version nodes is truncated or holds a malformed number",
			    (unsigned long long)n);
	for (size_t i = 0; i < n; i++) {
		r = check_version_ref(v, i);
		if (r < 0)
			return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

int ocdbt_version_refs_pack(const struct ocdbt_version_ref *v, size_t n, bool has_height,
			    const uint32_t *file, struct buf *ret)
{
	int r = wire_put_varint(ret, n);

	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].generation);
	if (r < 0)
		return r;
	if (n)
		r = refs_pack(&v->node, sizeof(*v), n, file, ret);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_varint(ret, v[i].num_generations);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = wire_put_u64le(ret, v[i].commit_time);
	for (size_t i = 0; i < n && r >= 0 && has_height; i++)
		r = wire_put_u8(ret, (uint8_t)v[i].height);
	return r;
}

/* ---- version node ---- */

/* R6: children of a node of height h end whole blocks of A^h, all inside one block of A^(h+1). */
static int check_children(const struct ocdbt_vnode *v)
{
	unsigned shift = v->arity_log2 * v->height, span = shift + v->arity_log2;
	uint64_t stride = (uint64_t)1 << shift, first, last;

	if (v->n == 0)
		return fail(-EUCLEAN, "version node has no children");
	for (size_t i = 0; i < v->n; i++) {
		if (v->children[i].generation & (stride - 1))
			return fail(-EUCLEAN,
				    "child %zu: generation %llu is not a multiple of %llu", i,
				    (unsigned long long)v->children[i].generation,
				    (unsigned long long)stride);
		if (v->children[i].num_generations > stride)
			return fail(-EUCLEAN, "child %zu: %llu generations in a block of %llu", i,
				    (unsigned long long)v->children[i].num_generations,
				    (unsigned long long)stride);
		v->children[i].height = v->height - 1;
	}
	first = v->children[0].generation;
	last = v->children[v->n - 1].generation;
	if ((first - 1) >> span != (last - 1) >> span)
		return fail(-EUCLEAN, "generations %llu and %llu are not in one block of 2^%u",
			    (unsigned long long)first, (unsigned long long)last, span);
	return 0;
}

static int vnode_parse_body(struct wire *w, struct span transitive, struct ocdbt_vnode *v)
{
	struct ocdbt_files files;
	int r;

	v->arity_log2 = wire_u8(w);
	v->height = wire_u8(w);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "version node is truncated");
	if (v->arity_log2 < 1 || v->arity_log2 > OCDBT_ARITY_LOG2_MAX)
		return fail(-EUCLEAN, "version node: arity 2^%u, known are 2^1 to 2^%d",
			    v->arity_log2, OCDBT_ARITY_LOG2_MAX);
	if (v->height > ocdbt_vnode_height_max(v->arity_log2))
		return fail(-EUCLEAN, "version node: height %u, most is %u", v->height,
			    ocdbt_vnode_height_max(v->arity_log2));
	r = ocdbt_files_parse(w, transitive, &v->arena, &files);
	if (r < 0)
		return r;
	if (v->height == 0) {
		r = ocdbt_versions_parse(w, &files, v->arity_log2, &v->arena, &v->versions, &v->n);
	} else {
		r = ocdbt_version_refs_parse(w, &files, (size_t)1 << v->arity_log2, false,
					     &v->arena, &v->children, &v->n);
		if (r < 0)
			return r;
		r = check_children(v);
	}
	if (r < 0)
		return r;
	if (wire_left(w))
		return fail(-EUCLEAN, "%zu bytes follow the version array", wire_left(w));
	return r;
}

int ocdbt_vnode_parse(struct span stored, struct span transitive, struct ocdbt_vnode *ret)
{
	auto_vnode v = { .arena.metered = true };
	auto_buf hold = { 0 };
	struct span body;
	struct wire w;
	int r = ocdbt_frame_open(OCDBT_VERSIONNODE, stored, LIMIT_MANIFEST_BYTES, &hold, &body);

	if (r < 0)
		return r;
	w = wire_of(body);
	r = vnode_parse_body(&w, transitive, &v);
	if (r < 0)
		return r;
	*ret = v;
	v = (struct ocdbt_vnode){ 0 };
	return 0;
}

static int vnode_pack_body(const struct ocdbt_vnode *v, struct buf *body)
{
	auto_filelist files = { 0 };
	auto_free uint32_t *id = calloc(v->n + 1, sizeof(*id));
	auto_free uint32_t *index = calloc(v->n + 1, sizeof(*index));
	int r = wire_put_u8(body, (uint8_t)v->arity_log2);

	if (!id || !index)
		return no_memory_for_versions(v->n);
	if (r < 0)
		return r;
	r = wire_put_u8(body, (uint8_t)v->height);
	for (size_t i = 0; i < v->n && r >= 0; i++) {
		const struct ocdbt_ref *ref = v->height ? &v->children[i].node :
							  &v->versions[i].root;

		r = ocdbt_filelist_add(&files, ref->base, ref->rel, &id[i]);
	}
	if (r < 0)
		return r;
	r = ocdbt_filelist_pack(&files, body, index);
	if (r < 0)
		return r;
	for (size_t i = 0; i < v->n; i++)
		id[i] = index[id[i]];
	return v->height ? ocdbt_version_refs_pack(v->children, v->n, false, id, body) :
			   ocdbt_versions_pack(v->versions, v->n, id, body);
}

int ocdbt_vnode_pack(const struct ocdbt_vnode *v, const struct ocdbt_config *compress,
		     struct buf *ret)
{
	auto_buf body = { 0 };
	int r;

	assert(v->n >= 1 && v->n <= (size_t)1 << v->arity_log2);
	r = vnode_pack_body(v, &body);
	return r < 0 ? r : ocdbt_frame_pack(OCDBT_VERSIONNODE, compress, buf_span(&body), ret);
}

void ocdbt_vnode_release(struct ocdbt_vnode *v)
{
	arena_release(&v->arena);
	*v = (struct ocdbt_vnode){ 0 };
}
