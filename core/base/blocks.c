/*
 * blocks.c - a short list of freed blocks in front of mmap().
 *
 * Kept bytes are bounded by KEEP_BYTES: they are part of the constant that a
 * mount needs beside its cache and budgets.
 */
#include "core/base/blocks.h"

#include <pthread.h>
#include <sys/mman.h>

#include "core/base/limits.h"
#include "core/base/mem.h"

#define KEEP_BLOCKS 16
#define KEEP_BYTES (16 * MiB)

static struct {
	pthread_mutex_t lock;		/* protects all below */
	struct {
		void *p;
		size_t n;
	} kept[KEEP_BLOCKS];		/* the most recently freed last */
	unsigned n;
	uint64_t bytes;
} list = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *take_at(unsigned i)
{
	void *p = list.kept[i].p;

	list.bytes -= list.kept[i].n;
	list.n--;
	for (; i < list.n; i++)
		list.kept[i] = list.kept[i + 1];
	return p;
}

void *block_alloc(size_t n)
{
	void *p = NULL;

	n = round_up(n, 4096);
	pthread_mutex_lock(&list.lock);
	for (unsigned i = list.n; i > 0 && !p; i--)
		if (list.kept[i - 1].n == n)
			p = take_at(i - 1);
	pthread_mutex_unlock(&list.lock);
	if (p)
		return p;
	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void block_free(void *p, size_t n)
{
	if (!p)
		return;
	n = round_up(n, 4096);
	pthread_mutex_lock(&list.lock);
	if (n > KEEP_BYTES / 4) {
		pthread_mutex_unlock(&list.lock);
		munmap(p, n);
		return;
	}
	while (list.n == KEEP_BLOCKS || list.bytes + n > KEEP_BYTES) {
		size_t old_n = list.kept[0].n;

		munmap(take_at(0), old_n);
	}
	list.kept[list.n].p = p;
	list.kept[list.n++].n = n;
	list.bytes += n;
	pthread_mutex_unlock(&list.lock);
}

void block_trim(void)
{
	pthread_mutex_lock(&list.lock);
	while (list.n) {
		size_t n = list.kept[0].n;

		munmap(take_at(0), n);
	}
	pthread_mutex_unlock(&list.lock);
}
