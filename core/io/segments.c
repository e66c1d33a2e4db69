/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segments.c - the segment list of an answer.
 */
#include "core/io/segments.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/limits.h"

/*
 * Zeros are sent from here. The array is never written, so the kernel backs it with its one zero
 * page.
 */
static const uint8_t zeros[1 * MiB];

void segments_init(struct segments *g, struct cache *cache)
{
	g->cache = cache;
	g->seg = g->few;
	g->n = 0;
	g->cap = SEGMENT_INLINE;
	g->bytes = 0;
	g->fence = 0;
}

static void seg_release(struct segments *g, struct segment *s)
{
	cache_put(g->cache, s->pin);
	io_file_unref(s->file);
	if (s->own_n)
		block_free(s->own, s->own_n);
	else
		free(s->own);
}

void segments_release(struct segments *g)
{
	for (size_t i = 0; i < g->n; i++)
		seg_release(g, &g->seg[i]);
	if (g->seg != g->few)
		free(g->seg);
	segments_init(g, g->cache);
}

static int segments_add(struct segments *g, struct segment seg)
{
	if (g->n == g->cap) {
		struct segment *more =
			reallocarray(g->seg == g->few ? NULL : g->seg, g->cap * 2, sizeof(*more));

		if (!more) {
			seg_release(g, &seg);
			return fail(-ENOMEM, "cannot allocate an answer of %zu segments",
				    g->cap * 2);
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

int segments_add_pinned(struct segments *g, struct cache_entry *pin, const void *p, size_t n)
{
	return segments_add(g, (struct segment){ .kind = SEGMENT_MEM, .n = n, .p = p, .pin = pin });
}

int segments_add_file(struct segments *g, struct io_file *file, uint64_t off, size_t n)
{
	struct segment *last = g->n > g->fence ? &g->seg[g->n - 1] : NULL;

	/* Neighbouring chunks are often adjacent in their data file. */
	if (last && last->kind == SEGMENT_FILE && last->file == file &&
	    last->off + last->n == off) {
		io_file_unref(file);
		last->n += n;
		g->bytes += n;
		return 0;
	}
	return segments_add(
		g, (struct segment){ .kind = SEGMENT_FILE, .n = n, .file = file, .off = off });
}

int segments_add_block(struct segments *g, void *block, size_t block_n, size_t n)
{
	return segments_add(
		g,
		(struct segment){
			.kind = SEGMENT_MEM, .n = n, .p = block, .own = block, .own_n = block_n });
}

int segments_add_copy(struct segments *g, const void *p, size_t n)
{
	void *own = malloc(n ? n : 1);

	if (!own)
		return fail(-ENOMEM, "cannot allocate %zu bytes", n);
	memcpy(own, p, n);
	return segments_add(g,
			    (struct segment){ .kind = SEGMENT_MEM, .n = n, .p = own, .own = own });
}

int segments_add_part(struct segments *g, struct span of, uint64_t off, size_t n)
{
	if (off >= of.n || n == 0)
		return 0;
	return segments_add_copy(g, of.p + off, MIN(n, (size_t)(of.n - off)));
}

int segments_add_zero(struct segments *g, size_t n)
{
	while (n > 0) {
		size_t part = MIN(n, sizeof(zeros));
		int r = segments_add(
			g, (struct segment){ .kind = SEGMENT_MEM, .n = part, .p = zeros });

		if (r < 0)
			return r;
		n -= part;
	}
	return 0;
}

int segments_copy(const struct segments *g, void *p)
{
	auto_free struct io_req *reqs = NULL;
	uint8_t *at = p;
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++)
		n += g->seg[i].kind == SEGMENT_FILE;
	if (n) {
		reqs = calloc(n, sizeof(*reqs));
		if (!reqs)
			return fail(-ENOMEM, "cannot allocate %zu requests", n);
	}
	n = 0;
	for (size_t i = 0; i < g->n; at += g->seg[i].n, i++) {
		const struct segment *s = &g->seg[i];

		if (s->kind == SEGMENT_MEM)
			memcpy(at, s->p, s->n);
		else
			reqs[n++] = (struct io_req){
				.op = IO_READ, .file = s->file, .p = at, .n = s->n, .off = s->off
			};
	}
	return n ? io_run_exact(reqs[0].file->io, reqs, n) : 0;
}

size_t segments_pages(const struct segments *g)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t pages = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct segment *s = &g->seg[i];
		uint64_t at = s->kind == SEGMENT_FILE ? s->off : (uint64_t)(uintptr_t)s->p;

		if (s->n)
			pages += (size_t)((at % page + s->n + page - 1) / page);
	}
	return pages;
}

int segments_splice(const struct segments *g, int pipe)
{
	int r = 0;

	for (size_t i = 0; i < g->n && r == 0; i++) {
		const struct segment *s = &g->seg[i];
		struct iovec iov = { .iov_base = (void *)(uintptr_t)s->p, .iov_len = s->n };

		if (s->n && s->kind == SEGMENT_FILE)
			r = io_splice_exact(s->file, s->off, s->n, pipe);
		else if (s->n)
			r = vmsplice(pipe, &iov, 1, SPLICE_F_NONBLOCK) != (ssize_t)s->n;
	}
	return r;
}
