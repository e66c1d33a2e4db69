/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.h - the path of an open file's bytes: through the kernel's page cache, or around it.
 *
 * A direct read costs one copy, into the memory of the reader, and uses no pages of the machine. A
 * read through the page cache costs two copies and the pages, but the next reader finds them there.
 * The choice is made once per open file, so direct_io=auto decides by what is known at open:
 *
 * - A small file is read through the page cache: it needs one request in either case.
 *
 * - So is a file of which a good part was read before: it is being read again, and further reads
 * come from memory. The exception is a file whose bytes are stored uncompressed on this
 * machine: the page cache of SOURCE already has them.
 *
 * - So is the next file of a reader that has read a large one in small pieces (tar, C++ streams):
 * each piece would be a request, and the kernel reads ahead in large ones.
 *
 * - Any other file is read directly: most files of a checkpoint are read once, in one piece.
 *
 * A direct file can be mapped if the kernel offers this in INIT (FUSE_DIRECT_IO_ALLOW_MMAP, Linux
 * 6.6); the maps use the page cache. Older kernels do not allow shared maps of a direct file, so
 * direct_io=auto is off there.
 */
#ifndef PYTREEFS_FS_DIRECT_H
#define PYTREEFS_FS_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file;
struct fs;

#define DIRECT_READERS 64

struct direct {
	/*
	 * Threads of other programs that read in small pieces. A thread with the same hash replaces
	 * the previous one.
	 */
	_Atomic uint32_t small_reader[DIRECT_READERS];
};

/* Set f->direct for a file that f->reader is opening. */
void direct_opened(struct fs *fs, struct file *f);
/* Call before a request for n bytes of the file is answered. */
void direct_count(struct fs *fs, struct file *f, size_t n);

#endif
