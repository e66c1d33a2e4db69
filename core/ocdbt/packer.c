/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packer.c - build one B+tree node: entries in the order of keys -> bytes.
 *
 * build.c decides where a node ends. The result is what TensorStore would write for the same
 * entries, to the byte: sorted table, longest prefixes, shortest numbers (R16).
 *
 * Entries are kept in the columns that will be stored, so an unfinished node takes about the memory
 * of its encoding. Keys are full ones. The number of bytes that a node may omit is known only at
 * its end, and affects only the first key and the prefix lengths.
 *
 * Invariants: keys strictly ascend; `common` is the length of the common prefix of all keys; no
 * child's strip is less than the strip of the node.
 */
#include <assert.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/record.h"

/* Reserve room for one more entry in all columns, so that adding it cannot fail half-way. */
static int reserve_entry(struct ocdbt_packer *p, size_t key_n, size_t bytes_n)
{
	struct {
		struct buf *b;
		size_t n;
	} need[] = {
		{ &p->last_key, key_n },
		{ &p->first_key, key_n },
		{ &p->prefix_len, 2 },
		{ &p->suffix_len, 2 },
		{ &p->suffix, key_n },
		{ &p->id, 4 },
		{ &p->off, 8 },
		{ &p->len, 8 },
		{ &p->inline_bytes, bytes_n },
		{ &p->strip, p->height ? 2 : 0 },
		{ &p->stats, p->height ? sizeof(struct ocdbt_stats) : 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(need); i++) {
		int r = buf_reserve(need[i].b, need[i].n);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Append within the room that reserve_entry() made. */
static void packer_put(struct buf *b, const void *p, size_t n)
{
	assert(b->cap - b->n >= n);
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
}

static int check_key(const struct ocdbt_packer *p, struct span key)
{
	if (key.n > LIMIT_KEY_BYTES)
		return fail(-EINVAL, "key of %zu bytes, most is %d", key.n, LIMIT_KEY_BYTES);
	if (p->n >= LIMIT_NODE_ENTRIES)
		return fail(-EINVAL, "node has %u entries already", p->n);
	if (p->n && span_cmp(buf_span(&p->last_key), key) >= 0)
		return fail(-EINVAL, "key '%.*s' follows '%.*s'", SPAN_ARG(key), (int)p->last_key.n,
			    (const char *)p->last_key.p);
	return 0;
}

static void add_key(struct ocdbt_packer *p, struct span key)
{
	size_t same = p->n ? span_common(buf_span(&p->last_key), key) : 0;
	uint16_t prefix = (uint16_t)same, suffix = (uint16_t)(key.n - same);

	packer_put(&p->prefix_len, &prefix, 2);
	packer_put(&p->suffix_len, &suffix, 2);
	packer_put(&p->suffix, key.p + same, suffix);
	/* Since keys are sorted, all share what each shares with its neighbour. */
	p->common = p->n ? MIN(p->common, prefix) : (unsigned)key.n;
	if (p->n == 0)
		packer_put(&p->first_key, key.p, key.n);
	buf_clear(&p->last_key);
	packer_put(&p->last_key, key.p, key.n);
	p->n++;
}

static int check_value(const struct ocdbt_value *v)
{
	uint64_t end;

	if (v->kind == OCDBT_INLINE && v->bytes.n > LIMIT_INLINE_VALUE)
		return fail(-EINVAL, "inline value of %zu bytes, most is %d", v->bytes.n,
			    LIMIT_INLINE_VALUE);
	if (v->kind == OCDBT_FILE && (!add_fits(v->ref.off, v->ref.len, &end) || end > INT64_MAX))
		return fail(-EINVAL, "%llu bytes at offset %llu are beyond 2^63",
			    (unsigned long long)v->ref.len, (unsigned long long)v->ref.off);
	return 0;
}

int ocdbt_packer_add(struct ocdbt_packer *p, const struct ocdbt_entry *e)
{
	const struct ocdbt_value *v = &e->value;
	uint32_t id = OCDBT_FILE_NONE;
	uint64_t off = 0, len = ocdbt_value_len(v);
	int r = check_key(p, e->key);

	assert(p->height == 0);
	if (r < 0)
		return r;
	r = check_value(v);
	if (r < 0)
		return r;
	r = reserve_entry(p, e->key.n, v->kind == OCDBT_INLINE ? v->bytes.n : 0);
	if (r < 0)
		return r;
	if (v->kind == OCDBT_FILE)
		r = ocdbt_filelist_add(&p->files, v->ref.base, v->ref.rel, &id);
	if (r < 0)
		return r;
	if (v->kind == OCDBT_FILE)
		off = v->ref.off;
	else
		packer_put(&p->inline_bytes, v->bytes.p, v->bytes.n);
	packer_put(&p->id, &id, 4);
	packer_put(&p->off, &off, 8);
	packer_put(&p->len, &len, 8);
	add_key(p, e->key);
	return 0;
}

int ocdbt_packer_add_child(struct ocdbt_packer *p, struct span key, unsigned strip,
			   const struct ocdbt_ref *ref, const struct ocdbt_stats *stats)
{
	struct ocdbt_value as_value = { .kind = OCDBT_FILE, .ref = *ref };
	uint16_t strip16 = (uint16_t)strip;
	uint32_t id;
	int r = check_key(p, key);

	assert(p->height > 0 && strip <= key.n);
	if (r < 0)
		return r;
	r = check_value(&as_value);
	if (r < 0)
		return r;
	r = reserve_entry(p, key.n, 0);
	if (r < 0)
		return r;
	r = ocdbt_filelist_add(&p->files, ref->base, ref->rel, &id);
	if (r < 0)
		return r;
	packer_put(&p->id, &id, 4);
	packer_put(&p->off, &ref->off, 8);
	packer_put(&p->len, &ref->len, 8);
	packer_put(&p->strip, &strip16, 2);
	packer_put(&p->stats, stats, sizeof(*stats));
	p->strip_min = p->n ? MIN(p->strip_min, strip) : strip;
	add_key(p, key);
	return 0;
}

unsigned ocdbt_packer_strip(const struct ocdbt_packer *p)
{
	return p->height ? MIN(p->common, p->strip_min) : p->common;
}

/* ---- encoding ---- */

static uint16_t u16_at(const struct buf *b, uint32_t i)
{
	return ((const uint16_t *)(const void *)b->p)[i];
}

static uint32_t u32_at(const struct buf *b, uint32_t i)
{
	return ((const uint32_t *)(const void *)b->p)[i];
}

static uint64_t u64_at(const struct buf *b, uint32_t i)
{
	return ((const uint64_t *)(const void *)b->p)[i];
}

static bool is_inline(const struct ocdbt_packer *p, uint32_t i)
{
	return u32_at(&p->id, i) == OCDBT_FILE_NONE;
}

static int put_keys(const struct ocdbt_packer *p, unsigned strip, struct buf *body)
{
	int r = wire_put_varint(body, p->n);

	for (uint32_t i = 1; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, u16_at(&p->prefix_len, i) - strip);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, u16_at(&p->suffix_len, i) - (i ? 0 : strip));
	for (uint32_t i = 0; i < p->n && r >= 0 && p->height; i++)
		r = wire_put_varint(body, u16_at(&p->strip, i) - strip);
	/*
	 * The first suffix is the whole first key, so removing the strip from its front removes it
	 * from all keys.
	 */
	return r < 0 ? r : buf_add_span(body, span_from(buf_span(&p->suffix), strip));
}

static int put_values(const struct ocdbt_packer *p, const uint32_t *index, struct buf *body)
{
	int r = 0;

	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, u64_at(&p->len, i));
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_u8(body, is_inline(p, i) ? OCDBT_INLINE : OCDBT_FILE);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		if (!is_inline(p, i))
			r = wire_put_varint(body, index[u32_at(&p->id, i)]);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		if (!is_inline(p, i))
			r = wire_put_varint(body, u64_at(&p->off, i));
	return r < 0 ? r : buf_add_span(body, buf_span(&p->inline_bytes));
}

static const struct ocdbt_stats *stats_at(const struct ocdbt_packer *p, uint32_t i)
{
	return (const struct ocdbt_stats *)(const void *)p->stats.p + i;
}

static int put_children(const struct ocdbt_packer *p, const uint32_t *index, struct buf *body)
{
	int r = 0;

	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, index[u32_at(&p->id, i)]);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, u64_at(&p->off, i));
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, u64_at(&p->len, i));
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, stats_at(p, i)->keys);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, stats_at(p, i)->tree_bytes);
	for (uint32_t i = 0; i < p->n && r >= 0; i++)
		r = wire_put_varint(body, stats_at(p, i)->value_bytes);
	return r;
}

static void sum_stats(const struct ocdbt_packer *p, struct ocdbt_stats *ret)
{
	struct ocdbt_stats sum = { .keys = p->height ? 0 : p->n };

	for (uint32_t i = 0; i < p->n; i++) {
		struct ocdbt_stats one = { 0 };

		if (p->height)
			one = *stats_at(p, i);
		else if (!is_inline(p, i))
			one.value_bytes = u64_at(&p->len, i);
		ocdbt_stats_add(&sum, &one);
	}
	*ret = sum;
}

int ocdbt_packer_pack(struct ocdbt_packer *p, unsigned strip, const struct ocdbt_config *compress,
		      struct buf *ret, struct ocdbt_stats *ret_stats)
{
	auto_free uint32_t *index = calloc(p->files.n + 1, sizeof(*index));
	auto_buf body = { 0 };
	int r;

	assert(p->n >= 1 && strip <= ocdbt_packer_strip(p));
	if (!index)
		return fail(-ENOMEM, "cannot allocate a node of %u entries", p->n);
	/* Most of the body is keys and inline values; growing it in steps would copy them. */
	r = buf_reserve(&body, p->suffix.n + p->inline_bytes.n + (size_t)p->n * 12);
	if (r < 0)
		return r;
	r = wire_put_u8(&body, (uint8_t)p->height);
	if (r < 0)
		return r;
	r = ocdbt_filelist_pack(&p->files, &body, index);
	if (r < 0)
		return r;
	r = put_keys(p, strip, &body);
	if (r < 0)
		return r;
	r = p->height ? put_children(p, index, &body) : put_values(p, index, &body);
	if (r < 0)
		return r;
	r = ocdbt_frame_pack(OCDBT_BTREENODE, compress, buf_span(&body), ret);
	if (r < 0)
		return r;
	sum_stats(p, ret_stats);
	return r;
}

void ocdbt_packer_clear(struct ocdbt_packer *p)
{
	struct buf *bufs[] = { &p->last_key,     &p->first_key, &p->prefix_len, &p->suffix_len,
			       &p->suffix,       &p->id,        &p->off,        &p->len,
			       &p->inline_bytes, &p->strip,     &p->stats };

	for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
		buf_clear(bufs[i]);
	ocdbt_filelist_release(&p->files);
	p->n = 0;
	p->common = p->strip_min = 0;
}

void ocdbt_packer_release(struct ocdbt_packer *p)
{
	struct buf *bufs[] = { &p->last_key,     &p->first_key, &p->prefix_len, &p->suffix_len,
			       &p->suffix,       &p->id,        &p->off,        &p->len,
			       &p->inline_bytes, &p->strip,     &p->stats };

	for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
		buf_release(bufs[i]);
	ocdbt_filelist_release(&p->files);
	*p = (struct ocdbt_packer){ 0 };
}

int ocdbt_node_pack(const struct ocdbt_node *node, const struct ocdbt_config *compress,
		    struct buf *ret)
{
	auto_packer p = { .height = node->height };
	struct ocdbt_stats stats;
	int r = 0;

	for (uint32_t i = 0; i < node->n && r >= 0; i++) {
		struct ocdbt_entry e = { .key = ocdbt_node_key(node, i) };
		struct ocdbt_child c;

		if (node->height) {
			ocdbt_node_child(node, i, &c);
			r = ocdbt_packer_add_child(&p, c.key, c.cut, &c.ref, &c.stats);
		} else {
			ocdbt_node_value(node, i, &e.value);
			r = ocdbt_packer_add(&p, &e);
		}
	}
	return r < 0 ? r : ocdbt_packer_pack(&p, 0, compress, ret, &stats);
}
