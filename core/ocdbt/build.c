/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - sorted entries -> B+tree nodes: where nodes end, and the levels above the leaves.
 *
 * packer.c encodes a node, data.c writes files, newversion.c makes the manifest.
 *
 * The shape is that of one TensorStore commit of the same entries into an empty database. It
 * depends on the total size of a level, so the entries are read twice. The levels above are small,
 * and in memory.
 *
 * Invariants: a child is written before the entry that refers to it (R13); the only node of a level
 * is the root and omits nothing.
 */
#include <assert.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/ocdbt/split.h"

/* A node that was written: an entry of the level above. */
struct built {
	struct span key;      /* first full key; in the level's arena */
	unsigned strip;       /* number of bytes that its keys omit */
	struct ocdbt_ref ref; /* path borrowed from the writer */
	struct ocdbt_stats stats;
};

/* The nodes of one level, owned. Zeroed it is empty. */
struct level {
	struct arena keys;
	struct built *node;
	size_t n, cap;
};

static void level_release(struct level *l)
{
	arena_release(&l->keys);
	free(l->node);
	*l = (struct level){ 0 };
}
#define auto_level __attribute__((cleanup(level_release))) struct level

struct build {
	const struct ocdbt_config *config;
	struct ocdbt_data *data;
	size_t path_len;            /* of our own files */
	struct ocdbt_packer packer; /* the current node */
	struct level *above;        /* receives finished nodes */
};

/* ---- where nodes end ---- */

static uint64_t cost(const struct split *s, uint64_t n, uint64_t sum)
{
	/* The common prefix is stored once. */
	return n ? sum - (n - 1) * s->common : 0;
}

void split_begin(struct split *s)
{
	uint64_t left = cost(s, s->n, s->sum), wanted = div_up(s->n, LIMIT_NODE_ENTRIES);

	if (s->max)
		wanted = MAX(wanted, div_up(left, s->max));
	s->target = wanted ? div_up(left, wanted) : 0;
	s->node_n = s->node_sum = 0;
}

bool split_refuses(const struct split *s, uint64_t size)
{
	uint64_t n = s->node_n + 1, total = cost(s, n, s->node_sum + size);

	/* For the last entry, or a full node, the size does not matter. */
	if (n == s->n || n == LIMIT_NODE_ENTRIES || n < s->least || total < s->target)
		return false;
	return total > s->max && n > s->least;
}

bool split_takes(struct split *s, uint64_t size)
{
	s->node_n++;
	s->node_sum += size;
	return s->node_n == s->n || s->node_n == LIMIT_NODE_ENTRIES ||
	       (s->node_n >= s->least && cost(s, s->node_n, s->node_sum) >= s->target);
}

void split_end(struct split *s)
{
	s->n -= s->node_n;
	s->sum -= s->node_sum;
}

static uint64_t leaf_size(const struct build *b, const struct ocdbt_entry *e)
{
	const struct ocdbt_value *v = &e->value;

	if (v->kind == OCDBT_FILE && v->ref.len)
		return e->key.n + 32 + v->ref.base.n + v->ref.rel.n;
	if (v->kind == OCDBT_INLINE && v->bytes.n > b->config->max_inline_value_bytes)
		return e->key.n + 32 + b->path_len;
	return e->key.n + 16 + ocdbt_value_len(v);
}

static uint64_t child_size(const struct built *c)
{
	return c->key.n + 56 + c->ref.base.n + c->ref.rel.n;
}

/* ---- nodes ---- */

static int level_add(struct level *l, const struct built *node)
{
	uint8_t *key = arena_dup(&l->keys, node->key);

	if (!key || !array_reserve(l->node, l->cap, l->n + 1))
		return fail(-ENOMEM, "cannot allocate a level of %zu nodes", l->n + 1);
	l->node[l->n] = *node;
	l->node[l->n++].key.p = key;
	return 0;
}

/* Write the current node. is_root: it is the only one of its level. */
static int finish_node(struct build *b, bool is_root)
{
	struct built node = { .strip = is_root ? 0 : ocdbt_packer_strip(&b->packer) };
	auto_buf record = { 0 };
	int r = ocdbt_packer_pack(&b->packer, node.strip, b->config, &record, &node.stats);
	struct ocdbt_stats own = { .tree_bytes = record.n };

	if (r < 0)
		return r;
	r = ocdbt_data_put(b->data, buf_span(&record), &node.ref);
	if (r < 0)
		return r;
	ocdbt_stats_add(&node.stats, &own);
	node.key = buf_span(&b->packer.first_key);
	r = level_add(b->above, &node);
	ocdbt_packer_clear(&b->packer);
	return r;
}

/* After an entry was refused or taken: write the node if it ends here. */
static int end_node(struct build *b, struct split *s)
{
	bool is_root = b->above->n == 0 && s->node_n == s->n;
	int r = finish_node(b, is_root);

	if (r < 0)
		return r;
	split_end(s);
	split_begin(s);
	return 0;
}

/* ---- leaves ---- */

/* First pass: the total size of the entries, and whether they are in order. */
static int measure(struct build *b, struct ocdbt_source *src, struct split *s)
{
	auto_buf first = { 0 }, last = { 0 };
	struct ocdbt_entry e;
	int r = src->rewind(src);

	while (r >= 0) {
		r = src->next(src, &e);
		if (r <= 0)
			break;
		if (e.key.n > LIMIT_KEY_BYTES)
			return fail(-EINVAL, "key of %zu bytes, most is %d", e.key.n,
				    LIMIT_KEY_BYTES);
		if (s->n && span_cmp(buf_span(&last), e.key) >= 0)
			return fail(-EINVAL, "key '%.*s' follows '%.*s'", SPAN_ARG(e.key),
				    (int)last.n, (const char *)last.p);
		s->sum += leaf_size(b, &e);
		r = s->n++ ? 0 : buf_add_span(&first, e.key);
		buf_clear(&last);
		if (r < 0)
			break;
		r = buf_add_span(&last, e.key);
	}
	s->common = span_common(buf_span(&first), buf_span(&last));
	return r;
}

/*
 * Convert a value as it is stored: a long inline value goes to a file, an empty one becomes inline.
 */
static int store_value(struct build *b, struct ocdbt_value *v)
{
	struct ocdbt_value was = *v;

	if (was.kind == OCDBT_FILE && was.ref.len == 0)
		*v = (struct ocdbt_value){ .kind = OCDBT_INLINE };
	if (was.kind != OCDBT_INLINE || was.bytes.n <= b->config->max_inline_value_bytes)
		return 0;
	*v = (struct ocdbt_value){ .kind = OCDBT_FILE };
	return ocdbt_data_put(b->data, was.bytes, &v->ref);
}

static int build_leaves(struct build *b, struct ocdbt_source *src)
{
	struct split s = { .max = b->config->max_decoded_node_bytes, .least = 1 };
	int r = measure(b, src, &s);

	if (r < 0)
		return r;
	r = src->rewind(src);
	split_begin(&s);
	while (r >= 0 && s.n) {
		struct ocdbt_entry e;
		uint64_t size;

		r = src->next(src, &e);
		if (r == 0)
			return fail(-EINVAL, "the source has fewer entries in the second pass");
		if (r < 0)
			return r;
		size = leaf_size(b, &e);
		r = store_value(b, &e.value);
		if (r < 0)
			return r;
		if (split_refuses(&s, size))
			r = end_node(b, &s);
		if (r < 0)
			return r;
		r = ocdbt_packer_add(&b->packer, &e);
		if (r < 0)
			return r;
		if (split_takes(&s, size))
			r = end_node(b, &s);
	}
	return r;
}

/* ---- interior nodes ---- */

static int build_level(struct build *b, const struct level *below)
{
	struct split s = { .max = b->config->max_decoded_node_bytes, .least = 2, .n = below->n };
	int r = 0;

	s.common = span_common(below->node[0].key, below->node[below->n - 1].key);
	for (size_t i = 0; i < below->n; i++)
		s.sum += child_size(&below->node[i]);
	split_begin(&s);
	for (size_t i = 0; i < below->n && r >= 0; i++) {
		const struct built *c = &below->node[i];

		if (split_refuses(&s, child_size(c)))
			r = end_node(b, &s);
		if (r < 0)
			return r;
		r = ocdbt_packer_add_child(&b->packer, c->key, c->strip, &c->ref, &c->stats);
		if (r < 0)
			return r;
		if (split_takes(&s, child_size(c)))
			r = end_node(b, &s);
	}
	return r;
}

static int build_tree(struct build *b, struct ocdbt_source *src, struct ocdbt_version *ret)
{
	auto_level level = { 0 };
	int r;

	b->above = &level;
	r = build_leaves(b, src);
	while (r >= 0 && level.n > 1) {
		auto_level up = { 0 };

		b->packer.height++;
		if (b->packer.height > LIMIT_BTREE_HEIGHT)
			return fail(-EFBIG, "B+tree is higher than %d", LIMIT_BTREE_HEIGHT);
		b->above = &up;
		r = build_level(b, &level);
		level_release(&level);
		level = up;
		up = (struct level){ 0 };
	}
	if (r < 0)
		return r;
	*ret = (struct ocdbt_version){ .root.off = OCDBT_NO_ROOT, .root.len = OCDBT_NO_ROOT };
	if (level.n) {
		ret->root_height = b->packer.height;
		ret->root = level.node[0].ref;
		ret->stats = level.node[0].stats;
	}
	return 0;
}

int ocdbt_build(struct ocdbt_source *src, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret)
{
	struct build b = { .config = config, .data = data, .path_len = ocdbt_data_path_len(data) };
	int r = build_tree(&b, src, ret);

	ocdbt_packer_release(&b.packer);
	return r;
}

/* ---- entries in memory ---- */

static int array_next(struct ocdbt_source *src, struct ocdbt_entry *ret)
{
	struct ocdbt_array_source *a = container_of(src, struct ocdbt_array_source, base);

	if (a->at == a->n)
		return 0;
	*ret = a->entry[a->at++];
	return 1;
}

static int array_rewind(struct ocdbt_source *src)
{
	container_of(src, struct ocdbt_array_source, base)->at = 0;
	return 0;
}

void ocdbt_array_source_init(struct ocdbt_array_source *src, const struct ocdbt_entry *entry,
			     size_t n)
{
	*src = (struct ocdbt_array_source){ { array_next, array_rewind }, entry, n, 0 };
}
