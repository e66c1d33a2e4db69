/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - a short list of freed blocks in front of mmap(); small blocks come from the heap.
 *
 * A chunk may have a single byte, and a hundred thousand such chunks must not take a page each.
 * IDLE_BYTES bounds the idle blocks; they are part of the constant amount of memory that a mount
 * needs beside its cache and budgets.
 */
#include "core/base/blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include "core/base/limits.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#define IDLE_BLOCKS 16
#define IDLE_BYTES (18 * MiB)
#define IDLE_MAX (IDLE_BYTES / 4) /* bytes of one idle block: an encoded chunk of 4 MiB fits */
#define HUGE_BYTES ((size_t)2 * MiB)
/*
 * Larger blocks are mapped. The address sanitizer checks only memory of the heap, so with it all
 * blocks come from there.
 */
#ifdef PYTREEFS_ASAN
#define HEAP_MAX (SIZE_MAX / 2)
#else
#define HEAP_MAX (64 * KiB)
#endif

static struct {
	pthread_mutex_t lock; /* protects all below */
	struct {
		void *p;
		size_t n;
	} idle[IDLE_BLOCKS]; /* the most recently freed last */
	unsigned n;
	uint64_t bytes;
} list = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void forked(void)
{
	if (lock_was_held(&list.lock))
		list.n = list.bytes = 0;
}
AT_FORK_CHILD(forked);

static void *take_at(unsigned i)
{
	void *p = list.idle[i].p;

	list.bytes -= list.idle[i].n;
	list.n--;
	for (; i < list.n; i++)
		list.idle[i] = list.idle[i + 1];
	return p;
}

/*
 * Blocks that may be reused come in eight sizes per power of two. Compressed chunks of one leaf
 * differ by a few bytes: with exact sizes no chunk would find a block, and each would fault in all
 * of its pages anew. Rounding up costs address space; it costs memory only where a larger block was
 * in use before.
 */
static size_t whole_size(size_t n)
{
	size_t step = 4096;

	if (n > IDLE_MAX)
		return round_up(n, step);
	while (n > 16 * step)
		step *= 2;
	return round_up(n, step);
}

size_t block_size(size_t n)
{
	return n <= HEAP_MAX ? n + 16 : whole_size(n);
}

static void *map(size_t n)
{
	return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/*
 * Use pages of 2 MiB where the kernel has them: one fault instead of 512, which cost as much as
 * decoding. Such a block begins at a huge page, and only the part after the last whole huge page
 * consists of small pages.
 */
static void *map_huge(size_t n)
{
	char *p = map(n + HUGE_BYTES), *at;

	if (p == MAP_FAILED)
		return map(n);
	at = (char *)round_up((uintptr_t)p, HUGE_BYTES);
	if (at > p)
		munmap(p, (size_t)(at - p));
	munmap(at + n, (size_t)(p + HUGE_BYTES - at));
	madvise(at, n, MADV_HUGEPAGE);
	return at;
}

void *block_alloc(size_t n)
{
	void *p = NULL;

	if (n <= HEAP_MAX)
		return malloc(n);
	n = whole_size(n);
	pthread_mutex_lock(&list.lock);
	for (unsigned i = list.n; i > 0 && !p; i--)
		if (list.idle[i - 1].n == n)
			p = take_at(i - 1);
	pthread_mutex_unlock(&list.lock);
	if (p)
		return p;
	/*
	 * Pieces of large chunks are half a huge page. A thread that needs one soon needs another,
	 * so a whole huge page is mapped, and its other half becomes an idle block.
	 */
	p = n == HUGE_BYTES / 2 || n >= HUGE_BYTES ? map_huge(MAX(n, HUGE_BYTES)) : map(n);
	if (p == MAP_FAILED)
		return NULL;
	if (n == HUGE_BYTES / 2)
		block_free((char *)p + n, n);
	return p;
}

void block_free(void *p, size_t n)
{
	struct {
		void *p;
		size_t n;
	} out[IDLE_BLOCKS + 1];
	unsigned n_out = 0;

	if (!p || n <= HEAP_MAX) {
		free(p);
		return;
	}
	n = whole_size(n);
	pthread_mutex_lock(&list.lock);
	if (n > IDLE_MAX) {
		out[n_out].p = p;
		out[n_out++].n = n;
	} else {
		while (list.n == IDLE_BLOCKS || list.bytes + n > IDLE_BYTES) {
			out[n_out].n = list.idle[0].n;
			out[n_out++].p = take_at(0);
		}
		list.idle[list.n].p = p;
		list.idle[list.n++].n = n;
		list.bytes += n;
	}
	pthread_mutex_unlock(&list.lock);
	/* Unmapping is slow, so it is done without the lock. */
	for (unsigned i = 0; i < n_out; i++)
		munmap(out[i].p, out[i].n);
}

void block_trim(void)
{
	pthread_mutex_lock(&list.lock);
	while (list.n) {
		size_t n = list.idle[0].n;

		munmap(take_at(0), n);
	}
	pthread_mutex_unlock(&list.lock);
}
