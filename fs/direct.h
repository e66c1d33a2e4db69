/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.h - which way the bytes of an open file go: past the kernel's page cache, or through it.
 *
 * A direct read costs one copy, into the reader's own memory, and takes no pages of the machine.
 * What went through the page cache costs two copies and the pages, and the next reader finds it
 * there. An open file is one or the other for good, so with direct_io=auto the choice is made by
 * what is known when it is opened:
 *
 *  - a small file goes through the page cache: it is one request either way;
 *  - so does a file of which a good part was read before: it is being read again, and from then on
 *    comes from memory; but not one whose bytes are stored uncompressed, which the page cache of
 *    SOURCE has already;
 *  - so does the next file of a reader that asked for a large one in small pieces (tar, C++
 * streams): each piece would be a request, and the kernel reads ahead in large ones;
 *  - any other file is read directly: most files of a checkpoint are read once, in one piece.
 *
 * A direct file can be mapped where the kernel says so in INIT (FUSE_DIRECT_IO_ALLOW_MMAP,
 * Linux 6.6), and its maps are of the page cache. Older kernels have no shared maps of it, so that
 * there direct_io=auto is off. libfuse has a name for this from 3.17 on; with an older one the
 * request and the reply of INIT are read and completed here.
 */
#ifndef PYTREEFS_FS_DIRECT_H
#define PYTREEFS_FS_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file;
struct fs;
struct iovec;

#define DIRECT_READERS 64

struct direct {
	bool mmap;           /* direct files can be mapped; set before the first reply */
	atomic_ullong init;  /* the request whose reply is to be completed; 0: none */
	atomic_bool started; /* INIT has been seen */
	/* Threads of other programs that read in small pieces; others of the same hash replace
	 * them. */
	_Atomic uint32_t small_reader[DIRECT_READERS];
};

/* Choose for a file that f->reader is opening: sets f->direct. */
void direct_opened(struct fs *fs, struct file *f);
/* A request for n bytes of it is about to be answered. */
void direct_count(struct fs *fs, struct file *f, size_t n);

/* Every request that the kernel sends, before libfuse sees it. */
void direct_see_request(struct fs *fs, const void *buf, size_t n);
/* Every reply that libfuse writes, before the kernel sees it. */
void direct_complete_reply(struct fs *fs, struct iovec *iov, int n);

#endif
