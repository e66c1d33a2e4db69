/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - the read path below one root: the value of a key, and ranges in the order of keys.
 *
 * One cursor serves both. It holds the path from the root to its position, with one pinned node per
 * level, and moves forward cheaply: a key near the last one is found without starting at the root,
 * so a sorted batch reads each node once.
 *
 * No file is accessed here (db.c does).
 *
 * Invariants: the node of level i + 1 is the child at pos of level i; the first prefix_n bytes of
 * `key` are the implicit prefix of the level, and prefix_n never decreases from level to level; a
 * node whose keys leave the range that its parent gives it is an error (R10), so a look-up never
 * misses a key that a listing returns.
 */
#include <assert.h>

#include "core/base/err.h"
#include "core/ocdbt/db.h"

struct level {
	struct db_pin pin;
	uint32_t pos;      /* interior node: the child that was entered; leaf: the entry */
	uint32_t prefix_n; /* length of the implicit prefix, which the keys of this node omit */
	int bound;         /* level whose entry pos + 1 bounds this subtree; -1: none */
};

struct ocdbt_cursor {
	struct ocdbt *db;
	struct ocdbt_ref root; /* borrowed paths */
	unsigned root_height;
	bool is_empty;
	struct db_walk *walk; /* own_walk, or that of a larger traversal */
	struct db_walk own_walk;
	struct buf key;  /* implicit prefixes; in a range, also the returned key */
	struct buf last; /* position of the last find */
	bool any;        /* last is valid, and the levels are at or before it */

	struct span low, high; /* of the range; borrowed */
	/* is_fresh: the entry at the leaf's pos has not been returned yet */
	bool is_ranging, is_fresh;

	unsigned depth;       /* levels in use */
	struct level level[]; /* root_height + 1 */
};

int db_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct db_walk *walk,
		   struct ocdbt_cursor **ret)
{
	struct ocdbt_cursor *cur;

	if (v->root_height > LIMIT_BTREE_HEIGHT)
		return fail(-EFBIG, "B+tree of height %u, the limit is %d", v->root_height,
			    LIMIT_BTREE_HEIGHT);
	cur = calloc(1, sizeof(*cur) + (v->root_height + 1) * sizeof(cur->level[0]));
	if (!cur)
		return fail(-ENOMEM, "cannot allocate a cursor");
	cur->db = db;
	cur->walk = walk ? walk : &cur->own_walk;
	cur->root = v->root;
	cur->root_height = v->root_height;
	cur->is_empty = ocdbt_version_is_empty(v);
	*ret = cur;
	return 0;
}

int ocdbt_cursor_open(struct ocdbt *db, const struct ocdbt_version *v, struct ocdbt_cursor **ret)
{
	return db_cursor_open(db, v, NULL, ret);
}

/* Leave the levels from depth on. */
static void climb(struct ocdbt_cursor *cur, unsigned depth)
{
	while (cur->depth > depth)
		db_unpin(cur->db, &cur->level[--cur->depth].pin);
}

void ocdbt_cursor_close(struct ocdbt_cursor *cur)
{
	if (!cur)
		return;
	climb(cur, 0);
	buf_release(&cur->key);
	buf_release(&cur->last);
	free(cur);
}

/* ---- comparison of keys in pieces ---- */

/* Compare a followed by b with key. */
static int cmp_joined(struct span a, struct span b, struct span key)
{
	int c = span_cmp(a, span_of(key.p, MIN(a.n, key.n)));

	return c ? c : span_cmp(b, span_from(key, a.n));
}

static struct span prefix_of(const struct ocdbt_cursor *cur, const struct level *l)
{
	return span_of(cur->key.p, l->prefix_n);
}

/* Whether key is below the upper bound of level d's subtree. */
static bool is_below_end(const struct ocdbt_cursor *cur, unsigned d, struct span key)
{
	const struct level *b;

	if (cur->level[d].bound < 0)
		return true;
	b = &cur->level[cur->level[d].bound];
	return cmp_joined(prefix_of(cur, b), ocdbt_node_key(b->pin.node, b->pos + 1), key) > 0;
}

/* ---- descending ---- */

/* R10: the keys of a child are between the key of its entry and its upper bound. */
static int check_bounds(const struct ocdbt_cursor *cur, const struct level *up,
			const struct level *down)
{
	const struct ocdbt_node *node = down->pin.node;
	struct span first = ocdbt_node_key(node, 0), last = ocdbt_node_key(node, node->n - 1);
	struct span entry = ocdbt_node_key(up->pin.node, up->pos);
	const struct level *b;

	if (span_cmp(first, span_from(entry, up->pin.node->cut[up->pos])) < 0)
		return fail(-EUCLEAN, "first key '%.*s' is below '%.*s', the key of its reference",
			    SPAN_ARG(first), SPAN_ARG(entry));
	if (down->bound < 0)
		return 0;
	b = &cur->level[down->bound];
	/* Both begin with the prefix of level b. */
	if (cmp_joined(span_from(prefix_of(cur, down), b->prefix_n), last,
		       ocdbt_node_key(b->pin.node, b->pos + 1)) >= 0)
		return fail(-EUCLEAN, "last key '%.*s' is not below the next reference's",
			    SPAN_ARG(last));
	return 0;
}

/* Enter the child at pos of the lowest level. */
static int descend(struct ocdbt_cursor *cur)
{
	struct level *up = &cur->level[cur->depth - 1], *down = up + 1;
	uint32_t cut = up->pin.node->cut[up->pos];
	struct ocdbt_child child;
	int r;

	assert(up->pin.node->height > 0 && cur->depth <= cur->root_height);
	ocdbt_node_child(up->pin.node, up->pos, &child);
	/* The implicit prefix of the child continues that of this node. */
	if (up->prefix_n + cut > LIMIT_KEY_BYTES)
		return fail(-EUCLEAN, "a key has more than %d bytes", LIMIT_KEY_BYTES);
	cur->key.n = up->prefix_n;
	r = buf_add(&cur->key, ocdbt_node_key(up->pin.node, up->pos).p, cut);
	if (r < 0)
		return r;
	r = db_pin(cur->db, &child.ref, up->pin.node->height - 1, cur->walk, &down->pin);
	if (r < 0)
		return r;
	down->pos = 0;
	down->prefix_n = (uint32_t)cur->key.n;
	down->bound = up->pos + 1 < up->pin.node->n ? (int)(cur->depth - 1) : up->bound;
	cur->depth++;
	r = check_bounds(cur, up, down);
	if (r < 0) {
		climb(cur, cur->depth - 1);
		return db_err_at(r, "btreenode", &child.ref);
	}
	return 0;
}

static int enter_root(struct ocdbt_cursor *cur)
{
	int r;

	climb(cur, 0);
	buf_clear(&cur->key);
	r = db_pin(cur->db, &cur->root, cur->root_height, cur->walk, &cur->level[0].pin);
	if (r < 0)
		return r;
	cur->level[0].pos = 0;
	cur->level[0].prefix_n = 0;
	cur->level[0].bound = -1;
	cur->depth = 1;
	return 0;
}

/* ---- one key ---- */

/* Search from the lowest level down. The position stays where the key would be. */
static int find_below(struct ocdbt_cursor *cur, struct span key, struct ocdbt_value *ret)
{
	while (true) {
		struct level *l = &cur->level[cur->depth - 1];
		const struct ocdbt_node *node = l->pin.node;
		struct span rest, at;
		uint32_t rank;
		int r;

		if (!span_starts(key, prefix_of(cur, l)))
			return 0;
		rest = span_from(key, l->prefix_n);
		rank = ocdbt_node_rank(node, rest, l->pos);
		if (rank == 0)
			return 0;
		l->pos = rank - 1;
		at = ocdbt_node_key(node, l->pos);
		if (node->height == 0) {
			if (!span_eq(at, rest))
				return 0;
			ocdbt_node_value(node, l->pos, ret);
			return 1;
		}
		if (!span_starts(rest, span_of(at.p, node->cut[l->pos])))
			return 0;
		r = descend(cur);
		if (r < 0)
			return r;
	}
}

int ocdbt_cursor_find(struct ocdbt_cursor *cur, struct span key, struct ocdbt_value *ret)
{
	int r;

	if (cur->is_empty)
		return 0;
	cur->is_ranging = false;
	/* Levels above the key's place stay; for a smaller key than the last, start at the root. */
	if (cur->depth == 0 || !cur->any || span_cmp(key, buf_span(&cur->last)) < 0) {
		r = enter_root(cur);
		if (r < 0)
			return r;
	}
	while (cur->depth > 1 && !is_below_end(cur, cur->depth - 1, key))
		climb(cur, cur->depth - 1);
	cur->any = false;
	buf_clear(&cur->last);
	r = buf_add_span(&cur->last, key);
	if (r >= 0)
		r = find_below(cur, key, ret);
	if (r < 0) {
		climb(cur, 0);
		return r;
	}
	cur->any = true;
	return r;
}

/* ---- ranges ---- */

int ocdbt_prefix_end(struct span prefix, struct buf *ret)
{
	size_t n = prefix.n;
	int r;

	while (n && prefix.p[n - 1] == 0xff)
		n--;
	r = buf_add(ret, prefix.p, n);
	if (r < 0)
		return r;
	if (n)
		ret->p[ret->n - 1]++;
	return r;
}

/* Whether the key of the entry at pos is at or after the end of the range. */
static bool is_past(const struct ocdbt_cursor *cur, const struct level *l)
{
	return cur->high.n && l->pos < l->pin.node->n &&
	       cmp_joined(prefix_of(cur, l), ocdbt_node_key(l->pin.node, l->pos), cur->high) >= 0;
}

/*
 * Set pos of a level that was just entered to the entry that may have the first key >= low: in a
 * leaf the first such entry, in an interior node the last child that begins at or before low.
 * Children before it have smaller keys only.
 */
static void seek_low(struct ocdbt_cursor *cur, struct level *l)
{
	struct span prefix = prefix_of(cur, l), rest, at;
	uint32_t rank;

	l->pos = 0;
	if (!span_starts(cur->low, prefix)) {
		/* All keys of the node are on one side of low. */
		if (span_cmp(prefix, cur->low) < 0)
			l->pos = l->pin.node->n;
		return;
	}
	rest = span_from(cur->low, prefix.n);
	rank = ocdbt_node_rank(l->pin.node, rest, 0);
	if (rank == 0)
		return;
	at = ocdbt_node_key(l->pin.node, rank - 1);
	if (l->pin.node->height || span_eq(at, rest))
		l->pos = rank - 1;
	else
		l->pos = rank;
}

/* Whether the common prefix of its keys shows that the child at pos has no key >= low. */
static bool is_before_low(const struct ocdbt_cursor *cur, const struct level *l)
{
	struct span prefix = prefix_of(cur, l), at = ocdbt_node_key(l->pin.node, l->pos);
	struct span rest, cut = span_of(at.p, l->pin.node->cut[l->pos]);

	if (!span_starts(cur->low, prefix))
		return span_cmp(prefix, cur->low) < 0;
	rest = span_from(cur->low, prefix.n);
	return !span_starts(rest, cut) && span_cmp(cut, rest) < 0;
}

int ocdbt_cursor_range(struct ocdbt_cursor *cur, struct span low, struct span high)
{
	int r;

	climb(cur, 0);
	cur->any = false;
	cur->low = low;
	cur->high = high;
	cur->is_ranging = true;
	cur->is_fresh = true;
	if (cur->is_empty)
		return 0;
	r = enter_root(cur);
	if (r < 0)
		return r;
	seek_low(cur, &cur->level[0]);
	return r;
}

/* Move the cursor to a leaf entry in the range. Returns 1, or 0 at the end. */
static int seek_entry(struct ocdbt_cursor *cur)
{
	while (cur->depth) {
		struct level *l = &cur->level[cur->depth - 1];
		int r;

		if (l->pos >= l->pin.node->n) {
			climb(cur, cur->depth - 1);
			if (cur->depth)
				cur->level[cur->depth - 1].pos++;
			continue;
		}
		if (is_past(cur, l)) {
			/* Everything that follows is further still. */
			climb(cur, 0);
			return 0;
		}
		if (l->pin.node->height == 0)
			return 1;
		if (is_before_low(cur, l)) {
			l->pos++;
			continue;
		}
		r = descend(cur);
		if (r < 0)
			return r;
		seek_low(cur, &cur->level[cur->depth - 1]);
	}
	return 0;
}

int ocdbt_cursor_next(struct ocdbt_cursor *cur, struct ocdbt_entry *ret)
{
	struct level *l;
	struct span key;
	int r;

	assert(cur->is_ranging);
	if (cur->depth && !cur->is_fresh)
		cur->level[cur->depth - 1].pos++;
	r = seek_entry(cur);
	if (r <= 0) {
		climb(cur, 0);
		return r;
	}
	cur->is_fresh = false;
	l = &cur->level[cur->depth - 1];
	key = ocdbt_node_key(l->pin.node, l->pos);
	if (l->prefix_n + key.n > LIMIT_KEY_BYTES)
		return fail(-EUCLEAN, "a key has more than %d bytes", LIMIT_KEY_BYTES);
	r = db_walk_key(cur->walk, l->prefix_n + key.n);
	if (r < 0)
		return r;
	cur->key.n = l->prefix_n;
	r = buf_add_span(&cur->key, key);
	if (r < 0)
		return r;
	ret->key = buf_span(&cur->key);
	ocdbt_node_value(l->pin.node, l->pos, &ret->value);
	return 1;
}
