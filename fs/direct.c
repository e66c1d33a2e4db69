/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - chooses between direct reads and the page cache.
 *
 * The counters are hints: a race between two threads, or a reused thread number, costs a little
 * speed and never changes what is read.
 */
#include "fs/direct.h"

#include "core/base/log.h"
#include "fs/fs.h"

#define SMALL_FILE (128 * KiB) /* about one request, also through the page cache */
#define REREAD (4 * MiB) /* a file is read again if this much, or half of it, was read before */
#define SMALL_READ (64 * KiB) /* mean size of a reader's requests */
#define FEW_READS 8           /* too few to judge a reader, which is judged after this number */

static _Atomic uint32_t *reader_slot(struct fs *fs, const struct file *f)
{
	return &fs->direct.small_reader[f->reader % DIRECT_READERS];
}

static bool is_read_again(const struct node *n, uint64_t size)
{
	return atomic_load_explicit(&n->bytes_read, memory_order_relaxed) >= MIN(size / 2, REREAD);
}

/*
 * Whether the bytes of the file are stored uncompressed on this machine. Then the page cache of the
 * source has them after the first read, and a second copy in the cache of the mount would only
 * waste memory.
 */
static bool is_stored_plain(const struct fs *fs, const struct stat *st)
{
	return !fs->ns->ckpt->env.in_store &&
	       (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size / 16 * 15;
}

void direct_opened(struct fs *fs, struct file *f)
{
	struct stat st;

	if (f->direct || fs->options->direct_io == DIRECT_IO_OFF)
		return;
	if (fs->options->direct_io == DIRECT_IO_ON) {
		f->direct = true;
		return;
	}
	/*
	 * Without keep_cache, the bytes may change, so the kernel must check the times of a mapped
	 * file.
	 */
	if (!(fs->init.granted & FUSE_DIRECT_IO_ALLOW_MMAP) || !f->keep_cache ||
	    node_stat(f->node, &st) < 0)
		return;
	f->direct = (uint64_t)st.st_size > SMALL_FILE &&
		    (is_stored_plain(fs, &st) || !is_read_again(f->node, (uint64_t)st.st_size)) &&
		    atomic_load_explicit(reader_slot(fs, f), memory_order_relaxed) != f->reader;
	f->direct_by_choice = f->direct;
	trace(TRACE_FS, "open '%s' %s", f->node->name,
	      f->direct ? "directly" : "by the page cache");
}

/*
 * Record how a reader reads this file, which decides about its next one. It is judged during the
 * reads, since the kernel reports the close of a file late, when the next one may be open already.
 */
static void judge_reader(struct fs *fs, const struct file *f, uint64_t mean)
{
	_Atomic uint32_t *slot = reader_slot(fs, f);
	uint32_t same = f->reader;

	if (mean < SMALL_READ)
		atomic_store_explicit(slot, f->reader, memory_order_relaxed);
	else
		atomic_compare_exchange_strong(slot, &same, 0);
}

void direct_count(struct fs *fs, struct file *f, size_t n)
{
	uint64_t bytes;
	unsigned reads;

	atomic_fetch_add_explicit(&f->node->bytes_read, n, memory_order_relaxed);
	if (!f->direct_by_choice)
		return;
	bytes = atomic_fetch_add_explicit(&f->bytes_read, n, memory_order_relaxed) + n;
	reads = atomic_fetch_add_explicit(&f->reads, 1, memory_order_relaxed) + 1;
	if (reads % FEW_READS == 0)
		judge_reader(fs, f, bytes / reads);
}
