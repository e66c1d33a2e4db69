/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - the choice between direct reads and the page cache, and the part of INIT that it needs.
 *
 * What is counted here are hints: two threads that count at once, or a thread's number that
 * another one has by now, cost a little speed and never change what is read.
 */
#include "fs/direct.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include "core/base/log.h"
#include "fs/fs.h"

#define SMALL_FILE (128 * KiB) /* about one request through the page cache, too */
#define REREAD (4 * MiB) /* so much was read of a file before, or half of it: it is read again */
#define SMALL_READ (64 * KiB) /* of a reader's requests, in the mean */
#define FEW_READS 8           /* say nothing about a reader: it is judged after so many more */

/* Of protocol 7.39; in the second word of flags. */
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
 * Whether the file's bytes lie in the source as they are: then they are in the page cache of the
 * source after the first read, and a second one would only copy them to have them there twice.
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
	/* Without keep_cache its bytes may change: the kernel has to look at the times of a map. */
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
 * What the reader does with this file says how its next one is read. It is judged while it reads:
 * the kernel tells that a file was closed some time later, when the next one may be open already.
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
	/* Requests of kernels that have no second word of flags are shorter. */
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
