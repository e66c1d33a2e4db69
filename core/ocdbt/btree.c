/* SPDX-License-Identifier: Apache-2.0 */
/*
 * btree.c - parse one B+tree node, and search in it.
 *
 * No file is accessed here (db.c does), and no reference is followed
 * (lookup.c). packer.c builds nodes.
 *
 * Invariants: relative keys strictly ascend; every reference has a file of the
 * table and stays below 2^63; every inline value lies inside inline_bytes; the
 * parser checks what the packer asserts.
 */
#include <assert.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/meter.h"
#include "core/ocdbt/record.h"

static int no_memory_for_node(uint32_t n)
{
	return fail(-ENOMEM, "cannot allocate a node of %u entries", n);
}

/* ---- keys ---- */

/* The columns of lengths, before the keys are expanded. */
struct lengths {
	uint16_t *prefix, *suffix; /* n of each */
	struct arena arena;        /* of these columns */
};

static void lengths_release(struct lengths *l)
{
	arena_release(&l->arena);
}

/*
 * R8: the lengths agree with each other. Sets the total size of all suffixes, and that of all
 * expanded keys.
 */
static int lengths_parse(struct wire *w, uint32_t n, struct lengths *l, uint64_t *ret_suffixes,
			 uint64_t *ret_keys)
{
	uint64_t suffixes = 0, keys = 0;
	uint32_t before = 0;

	l->prefix = arena_calloc(&l->arena, n, sizeof(*l->prefix));
	l->suffix = arena_calloc(&l->arena, n, sizeof(*l->suffix));
	if (!l->prefix || !l->suffix)
		return no_memory_for_node(n);
	for (uint32_t i = 1; i < n; i++)
		l->prefix[i] = (uint16_t)wire_varint(w, UINT16_MAX);
	for (uint32_t i = 0; i < n; i++)
		l->suffix[i] = (uint16_t)wire_varint(w, UINT16_MAX);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "key lengths are truncated or malformed");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t len = (uint32_t)l->prefix[i] + l->suffix[i];

		if (l->prefix[i] > before)
			return fail(-EUCLEAN, "key %u shares %u bytes with a key of %u", i,
				    l->prefix[i], before);
		if (len > LIMIT_KEY_BYTES)
			return fail(-EUCLEAN, "key %u has %u bytes, most is %d", i, len,
				    LIMIT_KEY_BYTES);
		before = len;
		suffixes += l->suffix[i];
		keys += len;
	}
	if (keys > LIMIT_NODE_KEYS)
		return fail(-EFBIG, "keys of one node have %llu bytes, the limit is %llu",
			    (unsigned long long)keys, (unsigned long long)LIMIT_NODE_KEYS);
	*ret_suffixes = suffixes;
	*ret_keys = keys;
	return 0;
}

static int keys_expand(struct ocdbt_node *node, const struct lengths *l, struct span suffixes,
		       uint64_t total)
{
	uint8_t *keys = arena_alloc(&node->arena, total);
	uint32_t *end = arena_calloc(&node->arena, node->n, sizeof(*end)), at = 0, before = 0;
	const uint8_t *suffix = suffixes.p;

	if (!keys || !end)
		return no_memory_for_node(node->n);
	for (uint32_t i = 0; i < node->n; i++) {
		struct span new = span_of(suffix, l->suffix[i]);

		/* Both keys begin with the same prefix, so the rest determines the order. */
		if (i && span_cmp(span_of(keys + before + l->prefix[i], at - before - l->prefix[i]),
				  new) >= 0)
			return fail(-EUCLEAN, "key %u does not sort after key %u", i, i - 1);
		if (l->prefix[i])
			memcpy(keys + at, keys + before, l->prefix[i]);
		if (new.n)
			memcpy(keys + at + l->prefix[i], new.p, new.n);
		before = at;
		at += l->prefix[i] + (uint32_t) new.n;
		end[i] = at;
		suffix += new.n;
	}
	node->keys = keys;
	node->key_end = end;
	return 0;
}

/* In interior nodes, a column of cuts is between the lengths and the bytes. */
static int cuts_parse(struct wire *w, struct ocdbt_node *node, const struct lengths *l)
{
	uint16_t *cut = arena_calloc(&node->arena, node->n, sizeof(*cut));

	if (!cut)
		return no_memory_for_node(node->n);
	for (uint32_t i = 0; i < node->n; i++) {
		cut[i] = (uint16_t)wire_varint(w, UINT16_MAX);
		if (cut[i] > l->prefix[i] + l->suffix[i])
			return fail(-EUCLEAN, "child %u leaves out %u bytes of a key of %u", i,
				    cut[i], l->prefix[i] + l->suffix[i]);
	}
	node->cut = cut;
	return 0;
}

static int keys_parse(struct wire *w, struct ocdbt_node *node)
{
	__attribute__((cleanup(lengths_release))) struct lengths l = { .arena.metered = true };
	/*
	 * An entry has at least two key lengths and, in a leaf, a value length and a kind; in an
	 * interior node, seven more numbers.
	 */
	unsigned least = node->height ? 9 : 4;
	uint64_t n = wire_varint(w, UINT32_MAX), suffixes = 0, total = 0;
	struct span bytes;
	int r;

	if (!wire_ok(w) || n < 1 || n > LIMIT_NODE_ENTRIES)
		return fail(-EUCLEAN, "node of %llu entries, should be 1 to %d",
			    (unsigned long long)n, LIMIT_NODE_ENTRIES);
	if (wire_left(w) < least * n - 1)
		return fail(-EUCLEAN, "node of %llu entries is truncated", (unsigned long long)n);
	node->n = (uint32_t)n;
	r = lengths_parse(w, node->n, &l, &suffixes, &total);
	if (r < 0)
		return r;
	if (node->height)
		r = cuts_parse(w, node, &l);
	if (r < 0)
		return r;
	bytes = wire_bytes(w, suffixes);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "keys are truncated");
	return keys_expand(node, &l, bytes, total);
}

/* ---- values and children ---- */

/* R4 */
static int check_range(const struct ocdbt_node *node, uint32_t i)
{
	uint64_t end;

	if (!add_fits(node->off[i], node->len[i], &end) || end > INT64_MAX)
		return fail(-EUCLEAN, "entry %u: %llu bytes at offset %llu are beyond 2^63", i,
			    (unsigned long long)node->len[i], (unsigned long long)node->off[i]);
	return 0;
}

static int file_parse(struct wire *w, const struct ocdbt_files *files, uint32_t i, uint32_t *ret)
{
	uint64_t file = wire_varint(w, UINT64_MAX);

	if (!wire_ok(w) || file >= files->n)
		return fail(-EUCLEAN, "entry %u refers to data file %llu of %u", i,
			    (unsigned long long)file, files->n);
	*ret = (uint32_t)file;
	return 0;
}

/* Inline values are copied, so that the decoded body can be freed. */
static int inline_parse(struct wire *w, struct ocdbt_node *node, uint64_t *off, uint64_t *len)
{
	uint64_t sum = 0;
	struct span bytes;

	for (uint32_t i = 0; i < node->n; i++) {
		if (node->file[i] != OCDBT_FILE_NONE)
			continue;
		if (len[i] > LIMIT_INLINE_VALUE)
			return fail(-EUCLEAN, "entry %u: inline value of %llu bytes, most is %d", i,
				    (unsigned long long)len[i], LIMIT_INLINE_VALUE);
		off[i] = sum;
		sum += len[i];
	}
	bytes = wire_bytes(w, sum);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "inline values are truncated");
	node->inline_bytes = arena_dup(&node->arena, bytes);
	return node->inline_bytes ? 0 : no_memory_for_node(node->n);
}

/* R9 */
static int leaf_parse(struct wire *w, struct ocdbt_node *node)
{
	uint32_t *file = arena_calloc(&node->arena, node->n, sizeof(*file));
	uint64_t *off = arena_calloc(&node->arena, node->n, sizeof(*off));
	uint64_t *len = arena_calloc(&node->arena, node->n, sizeof(*len));
	int r = 0;

	if (!file || !off || !len)
		return no_memory_for_node(node->n);
	node->file = file;
	node->off = off;
	node->len = len;
	for (uint32_t i = 0; i < node->n; i++)
		len[i] = wire_varint(w, UINT64_MAX);
	for (uint32_t i = 0; i < node->n; i++) {
		uint8_t kind = wire_u8(w);

		if (kind > OCDBT_FILE)
			return fail(-EUCLEAN, "entry %u: value of kind %u, known are 0 and 1", i,
				    kind);
		file[i] = kind == OCDBT_INLINE ? OCDBT_FILE_NONE : 0;
	}
	for (uint32_t i = 0; i < node->n && r >= 0; i++)
		if (file[i] != OCDBT_FILE_NONE)
			r = file_parse(w, &node->files, i, &file[i]);
	for (uint32_t i = 0; i < node->n && r >= 0; i++)
		if (file[i] != OCDBT_FILE_NONE) {
			off[i] = wire_varint(w, UINT64_MAX);
			r = check_range(node, i);
		}
	if (r < 0)
		return r;
	if (!wire_ok(w))
		return fail(-EUCLEAN, "values are truncated or hold a malformed number");
	return inline_parse(w, node, off, len);
}

static int interior_parse(struct wire *w, struct ocdbt_node *node)
{
	uint32_t *file = arena_calloc(&node->arena, node->n, sizeof(*file));
	uint64_t *off = arena_calloc(&node->arena, node->n, sizeof(*off));
	uint64_t *len = arena_calloc(&node->arena, node->n, sizeof(*len));
	struct ocdbt_stats *stats = arena_calloc(&node->arena, node->n, sizeof(*stats));
	int r = 0;

	if (!file || !off || !len || !stats)
		return no_memory_for_node(node->n);
	for (uint32_t i = 0; i < node->n && r >= 0; i++)
		r = file_parse(w, &node->files, i, &file[i]);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < node->n; i++)
		off[i] = wire_varint(w, UINT64_MAX);
	for (uint32_t i = 0; i < node->n; i++)
		len[i] = wire_varint(w, UINT64_MAX);
	for (uint32_t i = 0; i < node->n; i++)
		stats[i].keys = wire_varint(w, UINT64_MAX);
	for (uint32_t i = 0; i < node->n; i++)
		stats[i].tree_bytes = wire_varint(w, UINT64_MAX);
	for (uint32_t i = 0; i < node->n; i++)
		stats[i].value_bytes = wire_varint(w, UINT64_MAX);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "children are truncated or hold a malformed number");
	node->file = file;
	node->off = off;
	node->len = len;
	node->stats = stats;
	for (uint32_t i = 0; i < node->n && r >= 0; i++)
		r = check_range(node, i);
	return r;
}

/* ---- the node ---- */

static int node_parse_body(struct wire *w, struct span transitive, struct ocdbt_node *node)
{
	int r;

	node->height = wire_u8(w);
	if (!wire_ok(w))
		return fail(-EUCLEAN, "node is empty");
	r = ocdbt_files_parse(w, transitive, &node->arena, &node->files);
	if (r < 0)
		return r;
	r = keys_parse(w, node);
	if (r < 0)
		return r;
	r = node->height ? interior_parse(w, node) : leaf_parse(w, node);
	if (r < 0)
		return r;
	if (wire_left(w))
		return fail(-EUCLEAN, "%zu bytes follow the last entry", wire_left(w));
	return r;
}

int ocdbt_node_parse(struct span stored, struct span transitive, struct ocdbt_node **ret)
{
	auto_of(ocdbt_node) struct ocdbt_node *node = NULL;
	auto_buf hold = { 0 };
	struct span body;
	struct wire w;
	int r = ocdbt_frame_open(OCDBT_BTREENODE, stored, LIMIT_NODE_BYTES, &hold, &body);

	if (r < 0)
		return r;
	node = calloc(1, sizeof(*node));
	if (!node)
		return no_memory_for_node(0);
	node->arena.metered = true;
	w = wire_of(body);
	r = node_parse_body(&w, transitive, node);
	if (r < 0)
		return r;
	*ret = take(node);
	return 0;
}

void ocdbt_node_free(struct ocdbt_node *node)
{
	if (!node)
		return;
	arena_release(&node->arena);
	free(node);
}

void ocdbt_node_unmeter(struct ocdbt_node *node)
{
	if (node->arena.charged < METER_SMALL)
		arena_unmeter(&node->arena);
}

uint64_t ocdbt_node_charge(const struct ocdbt_node *node)
{
	return sizeof(*node) + node->arena.total;
}

void ocdbt_node_value(const struct ocdbt_node *node, uint32_t i, struct ocdbt_value *ret)
{
	assert(node->height == 0 && i < node->n);
	*ret = (struct ocdbt_value){ 0 };
	if (node->file[i] == OCDBT_FILE_NONE) {
		ret->kind = OCDBT_INLINE;
		ret->bytes = span_of(node->inline_bytes + node->off[i], node->len[i]);
		return;
	}
	ret->kind = OCDBT_FILE;
	ocdbt_files_get(&node->files, node->file[i], &ret->ref);
	ret->ref.off = node->off[i];
	ret->ref.len = node->len[i];
}

void ocdbt_node_child(const struct ocdbt_node *node, uint32_t i, struct ocdbt_child *ret)
{
	assert(node->height > 0 && i < node->n);
	ret->key = ocdbt_node_key(node, i);
	ret->cut = node->cut[i];
	ocdbt_files_get(&node->files, node->file[i], &ret->ref);
	ret->ref.off = node->off[i];
	ret->ref.len = node->len[i];
	ret->stats = node->stats[i];
}

void ocdbt_node_stats(const struct ocdbt_node *node, struct ocdbt_stats *ret)
{
	struct ocdbt_stats sum = { 0 };

	if (node->height == 0)
		sum.keys = node->n;
	for (uint32_t i = 0; i < node->n; i++) {
		struct ocdbt_stats one = { 0 };

		if (node->height)
			one = node->stats[i];
		else if (node->file[i] != OCDBT_FILE_NONE)
			one.value_bytes = node->len[i];
		ocdbt_stats_add(&sum, &one);
	}
	*ret = sum;
}

uint32_t ocdbt_node_rank(const struct ocdbt_node *node, struct span key, uint32_t hint)
{
	/* Keys before low are <= key; keys from high on are > key. */
	uint32_t low = 0, high = node->n;

	/*
	 * Widen the range from the hint in doubling steps, so that a result nearby is found
	 * quickly.
	 */
	if (hint < node->n && span_cmp(ocdbt_node_key(node, hint), key) <= 0) {
		uint32_t step = 1;

		low = hint + 1;
		while (low < high && step < high - low) {
			if (span_cmp(ocdbt_node_key(node, low + step - 1), key) > 0) {
				high = low + step - 1;
				break;
			}
			low += step;
			step *= 2;
		}
	} else if (hint < node->n) {
		high = hint;
	}
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (span_cmp(ocdbt_node_key(node, mid), key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}
