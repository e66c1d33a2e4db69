/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mergelist.c - several databases as one sequence of keys in order.
 *
 * A heap of the parts, by their next key. Each part is read one window at a time and pins nothing
 * in between, so the windows bound the memory, whatever the size of nodes. Returning to a node
 * costs little while it is in the cache.
 *
 * The callers (merge.c, kv_union.c) decide whether a key in several parts is an error.
 *
 * Invariants: the heap is ordered by key, then by part; a part in the heap has an entry at `at`.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/ocdbt/db.h"

/* of all parts together, except that each window has at least WINDOW_LEAST */
#define WINDOWS_BYTES (32 * MiB)
#define WINDOW_LEAST (4 * KiB)

struct stream {
	struct mergelist_part part;
	struct db_walk walk;
	struct arena arena;        /* of the window */
	struct ocdbt_entry *entry; /* owned: the window */
	size_t n, cap, at;
	struct buf low; /* start of the next window */
	bool is_end;    /* there is no further window */
};

struct mergelist {
	struct stream *stream;
	size_t n;
	size_t *heap; /* indices of streams */
	size_t n_heap;
	struct mergelist_hit *hit;
	size_t n_hit;     /* hits of the last call; their streams are not in the heap */
	struct span high; /* borrowed */
	uint64_t window;
};

/* ---- one part ---- */

static int copy_entry(struct stream *s, const struct ocdbt_entry *e)
{
	struct ocdbt_entry *to;
	struct span *copy[4];

	if (!array_reserve(s->entry, s->cap, s->n + 1))
		return fail(-ENOMEM, "cannot allocate a window of %zu keys", s->n + 1);
	to = &s->entry[s->n];
	*to = *e;
	copy[0] = &to->key;
	copy[1] = &to->value.bytes;
	copy[2] = &to->value.ref.base;
	copy[3] = &to->value.ref.rel;
	for (size_t i = 0; i < ARRAY_LEN(copy); i++) {
		copy[i]->p = arena_dup(&s->arena, *copy[i]);
		if (!copy[i]->p)
			return fail(-ENOMEM, "cannot allocate a key of %zu bytes", e->key.n);
	}
	s->n++;
	return 0;
}

static int fill(struct mergelist *m, struct stream *s)
{
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	int r;

	/* A window begins right after the last key of the one before it. */
	if (s->n) {
		buf_clear(&s->low);
		r = buf_add_span(&s->low, s->entry[s->n - 1].key);
		if (r < 0)
			return r;
		r = buf_add_byte(&s->low, 0);
		if (r < 0)
			return r;
	}
	arena_release(&s->arena);
	s->n = s->at = 0;
	r = db_cursor_open(s->part.db, s->part.version, &s->walk, &cur);
	if (r < 0)
		return r;
	r = ocdbt_cursor_range(cur, buf_span(&s->low), m->high);
	while (r >= 0 && (s->n == 0 || s->arena.total + s->n * sizeof(*s->entry) < m->window)) {
		struct ocdbt_entry e;

		r = ocdbt_cursor_next(cur, &e);
		if (r == 0) {
			s->is_end = true;
			return 0;
		}
		if (r > 0)
			r = copy_entry(s, &e);
	}
	return r;
}

/* ---- the heap ---- */

static struct span head(const struct mergelist *m, size_t i)
{
	const struct stream *s = &m->stream[i];

	return s->entry[s->at].key;
}

static bool is_before(const struct mergelist *m, size_t a, size_t b)
{
	int c = span_cmp(head(m, a), head(m, b));

	return c ? c < 0 : a < b;
}

static void heap_push(struct mergelist *m, size_t i)
{
	size_t at = m->n_heap++;

	while (at && is_before(m, i, m->heap[(at - 1) / 2])) {
		m->heap[at] = m->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	m->heap[at] = i;
}

static size_t heap_pop(struct mergelist *m)
{
	size_t first = m->heap[0], last = m->heap[--m->n_heap], at = 0;

	while (2 * at + 1 < m->n_heap) {
		size_t down = 2 * at + 1;

		if (down + 1 < m->n_heap && is_before(m, m->heap[down + 1], m->heap[down]))
			down++;
		if (!is_before(m, m->heap[down], last))
			break;
		m->heap[at] = m->heap[down];
		at = down;
	}
	m->heap[at] = last;
	return first;
}

/* Put a part back into the heap, with a new window when the current one has ended. */
static int enter(struct mergelist *m, size_t i)
{
	struct stream *s = &m->stream[i];
	int r = 0;

	if (s->at == s->n && !s->is_end)
		r = fill(m, s);
	if (r < 0)
		return r;
	if (s->at < s->n)
		heap_push(m, i);
	return 0;
}

/* ---- all parts ---- */

int mergelist_open(const struct mergelist_part *part, size_t n, struct span low, struct span high,
		   struct mergelist **ret)
{
	auto_of(mergelist) struct mergelist *m = calloc(1, sizeof(*m));
	int r;

	if (m) {
		m->stream = calloc(n + 1, sizeof(*m->stream));
		m->heap = calloc(n + 1, sizeof(*m->heap));
		m->hit = calloc(n + 1, sizeof(*m->hit));
	}
	if (!m || !m->stream || !m->heap || !m->hit)
		return fail(-ENOMEM, "cannot list %zu databases", n);
	m->n = n;
	m->high = high;
	m->window = MAX(WINDOWS_BYTES / MAX(n, (size_t)1), WINDOW_LEAST);
	for (size_t i = 0; i < n; i++) {
		m->stream[i].part = part[i];
		r = buf_add_span(&m->stream[i].low, low);
		if (r < 0)
			return r;
		r = enter(m, i);
		if (r < 0)
			return r;
	}
	*ret = take(m);
	return 0;
}

int mergelist_next(struct mergelist *m, const struct mergelist_hit **ret)
{
	for (size_t i = 0; i < m->n_hit; i++) {
		int r;

		m->stream[m->hit[i].part].at++;
		r = enter(m, m->hit[i].part);
		if (r < 0) {
			/*
			 * No entry may be returned twice, so the other streams stay out of the
			 * heap.
			 */
			m->n_hit = 0;
			return r;
		}
	}
	m->n_hit = 0;
	while (m->n_heap && (m->n_hit == 0 || span_eq(head(m, m->heap[0]), m->hit[0].entry->key))) {
		size_t i = heap_pop(m);

		struct stream *s = &m->stream[i];

		m->hit[m->n_hit++] = (struct mergelist_hit){ i, &s->entry[s->at] };
	}
	*ret = m->hit;
	return (int)m->n_hit;
}

void mergelist_close(struct mergelist *m)
{
	if (!m)
		return;
	for (size_t i = 0; m->stream && i < m->n; i++) {
		arena_release(&m->stream[i].arena);
		buf_release(&m->stream[i].low);
		free(m->stream[i].entry);
	}
	free(m->stream);
	free(m->heap);
	free(m->hit);
	free(m);
}
