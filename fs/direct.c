/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - chooses between direct reads and the page cache, and completes INIT for direct maps.
 *
 * The counters are hints: a race between two threads, or a reused thread number, costs a little
 * speed and never changes what is read.
 */
#include "fs/direct.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include "core/base/log.h"
#include "fs/fs.h"

#define SMALL_FILE (128 * KiB) /* about one request, also through the page cache */
#define REREAD (4 * MiB) /* a file is read again if this much, or half of it, was read before */
#define SMALL_READ (64 * KiB) /* mean size of a reader's requests */
#define FEW_READS 8           /* too few to judge a reader, which is judged after this number */

/* From protocol 7.39; in the second word of flags. */
#ifndef FUSE_DIRECT_IO_ALLOW_MMAP
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ull << 36)
#endif
#define FLAGS2_DIRECT_MMAP ((uint32_t)(FUSE_DIRECT_IO_ALLOW_MMAP >> 32))

static _Atomic uint32_t *reader_slot(struct fs *fs, const struct file *f)
{
	return &fs->direct.small_reader[f->reader % DIRECT_READERS];
}

static bool is_read_again(const struct node *n, uint64_t size)
{
	return atomic_load_explicit(&n->bytes_read, memory_order_relaxed) >= MIN(size / 2, REREAD);
}

/*
 * Whether the bytes of the file are stored uncompressed. Then the page cache of the source has them
 * after the first read, and a second copy in the cache of the mount would only waste memory.
 */
static bool is_stored_plain(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size / 16 * 15;
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
	if (!fs->direct.mmap || !f->keep_cache || node_stat(f->node, &st) < 0)
		return;
	f->direct = (uint64_t)st.st_size > SMALL_FILE &&
		    (is_stored_plain(&st) || !is_read_again(f->node, (uint64_t)st.st_size)) &&
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

void direct_see_request(struct fs *fs, const void *buf, size_t n)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_init_in *in = (const void *)(h + 1);

	if (atomic_load_explicit(&fs->direct.started, memory_order_relaxed) || n < sizeof(*h) ||
	    h->opcode != FUSE_INIT)
		return;
	atomic_store(&fs->direct.started, true);
	/* Requests of kernels without a second word of flags are shorter. */
	if (!fs->options->direct_mmap || n < sizeof(*h) + sizeof(*in) ||
	    !(in->flags & FUSE_INIT_EXT) || !(in->flags2 & FLAGS2_DIRECT_MMAP))
		return;
	fs->direct.mmap = true;
	atomic_store(&fs->direct.init, h->unique);
}

void direct_complete_reply(struct fs *fs, struct iovec *iov, int n)
{
	uint64_t init = atomic_load_explicit(&fs->direct.init, memory_order_relaxed);
	const struct fuse_out_header *h = iov[0].iov_base;
	struct fuse_init_out *out;

	if (!init || n < 2 || iov[0].iov_len < sizeof(*h) || h->unique != init)
		return;
	atomic_store(&fs->direct.init, 0);
	out = iov[1].iov_base;
	if (h->error || iov[1].iov_len < sizeof(*out)) {
		fs->direct.mmap = false;
		return;
	}
	out->flags |= FUSE_INIT_EXT;
	out->flags2 |= FLAGS2_DIRECT_MMAP;
}
