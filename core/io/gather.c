/*
 * gather.c - the segment list of an answer.
 */
#include "core/io/gather.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/limits.h"

/* Zeros are sent from here: never written, so the kernel backs it with its one zero page. */
static const uint8_t zeros[1 * MiB];

void gather_init(struct gather *g, struct cache *cache)
{
	g->cache = cache;
	g->seg = g->few;
	g->n = 0;
	g->cap = GATHER_INLINE;
	g->bytes = 0;
	g->fence = 0;
}

static void seg_release(struct gather *g, struct gather_seg *s)
{
	cache_put(g->cache, s->pin);
	io_file_unref(s->file);
	if (s->own_n)
		block_free(s->own, s->own_n);
	else
		free(s->own);
}

void gather_release(struct gather *g)
{
	for (size_t i = 0; i < g->n; i++)
		seg_release(g, &g->seg[i]);
	if (g->seg != g->few)
		free(g->seg);
	gather_init(g, g->cache);
}

static int gather_add(struct gather *g, struct gather_seg seg)
{
	if (g->n == g->cap) {
		struct gather_seg *more = reallocarray(g->seg == g->few ? NULL : g->seg, g->cap * 2, sizeof(*more));

		if (!more) {
			seg_release(g, &seg);
			return fail(-ENOMEM, "cannot allocate an answer of %zu segments", g->cap * 2);
		}
		if (g->seg == g->few)
			memcpy(more, g->few, sizeof(g->few));
		g->seg = more;
		g->cap *= 2;
	}
	g->seg[g->n++] = seg;
	g->bytes += seg.n;
	return 0;
}

int gather_add_pinned(struct gather *g, struct cache_entry *pin, const void *p, size_t n)
{
	return gather_add(g, (struct gather_seg){ .kind = GATHER_MEM, .n = n, .p = p, .pin = pin });
}

int gather_add_file(struct gather *g, struct io_file *file, uint64_t off, size_t n)
{
	struct gather_seg *last = g->n > g->fence ? &g->seg[g->n - 1] : NULL;

	/* Neighbouring chunks often lie behind one another in their data file. */
	if (last && last->kind == GATHER_FILE && last->file == file && last->off + last->n == off) {
		io_file_unref(file);
		last->n += n;
		g->bytes += n;
		return 0;
	}
	return gather_add(g, (struct gather_seg){ .kind = GATHER_FILE, .n = n, .file = file, .off = off });
}

int gather_add_block(struct gather *g, void *block, size_t block_n, size_t n)
{
	return gather_add(g, (struct gather_seg){ .kind = GATHER_MEM, .n = n, .p = block, .own = block,
						  .own_n = block_n });
}

int gather_add_copy(struct gather *g, const void *p, size_t n)
{
	void *own = malloc(n ? n : 1);

	if (!own)
		return fail(-ENOMEM, "cannot allocate %zu bytes", n);
	memcpy(own, p, n);
	return gather_add(g, (struct gather_seg){ .kind = GATHER_MEM, .n = n, .p = own, .own = own });
}

int gather_add_part(struct gather *g, struct span of, uint64_t off, size_t n)
{
	if (off >= of.n || n == 0)
		return 0;
	return gather_add_copy(g, of.p + off, MIN(n, (size_t)(of.n - off)));
}

int gather_add_zero(struct gather *g, size_t n)
{
	while (n > 0) {
		size_t part = MIN(n, sizeof(zeros));
		int r = gather_add(g, (struct gather_seg){ .kind = GATHER_MEM, .n = part, .p = zeros });

		if (r < 0)
			return r;
		n -= part;
	}
	return 0;
}

int gather_copy(const struct gather *g, void *p)
{
	auto_free struct io_req *reqs = NULL;
	uint8_t *at = p;
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		n += g->seg[i].kind == GATHER_FILE;
	if (n) {
		reqs = calloc(n, sizeof(*reqs));
		if (!reqs)
			return fail(-ENOMEM, "cannot allocate %zu requests", n);
	}
	n = 0;
	for (size_t i = 0; i < g->n; at += g->seg[i].n, i++) {
		const struct gather_seg *s = &g->seg[i];

		if (s->kind == GATHER_MEM)
			memcpy(at, s->p, s->n);
		else
			reqs[n++] = (struct io_req){ .op = IO_READ, .file = s->file, .p = at, .n = s->n,
						     .off = s->off };
	}
	return n ? io_run_exact(reqs[0].file->io, reqs, n) : 0;
}
