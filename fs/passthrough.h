/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passthrough.h - files whose bytes are those of one stored file: the kernel reads that file
 * itself.
 *
 * Such are the large files below `.pytreefs/stored`, those of items that are not trees, and leaves
 * that were decoded into memory (handlers/namespace/memory_files.h).
 * Linux 6.9 can be told at open() which file backs another one (FUSE_PASSTHROUGH); reads and maps
 * then take the page cache of the backing file, without a request. Only a process with
 * CAP_SYS_ADMIN may tell it, which a mount gives up: its broker does it. Where it may not (a mount
 * of an ordinary user, a container), or the source is itself a stacked file system, files are read
 * by requests as before.
 *
 * All files of an inode that are open at a time must be backed by one file, or none of them, or
 * open() fails in the kernel. So the first open decides for those that come while it lasts.
 *
 * Any thread may call these functions.
 */
#ifndef PYTREEFS_FS_PASSTHROUGH_H
#define PYTREEFS_FS_PASSTHROUGH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct file;
struct fs;
struct fuse_file_info;
struct iovec;

#define PASSTHROUGH_BUCKETS 64

struct passthrough {
	bool is_refused;      /* the kernel has refused it once: no more is asked for */
	pthread_mutex_t lock; /* protects all; held while the broker is asked */
	struct backing *bucket[PASSTHROUGH_BUCKETS];
};

void passthrough_init(struct passthrough *p);
/* After the session has ended. */
void passthrough_release(struct passthrough *p);
/*
 * A file is being opened; the next reply of this thread is that to open(). If the kernel will read
 * its bytes from their file, fi says so.
 */
void passthrough_open(struct fs *fs, struct file *f, struct fuse_file_info *fi);
/* Call when the file is closed, or when open() failed after passthrough_open(). */
void passthrough_close(struct fs *fs, struct file *f);
/* Put the backing file into the reply to open(). */
void passthrough_complete_reply(struct iovec *iov, int n);

#endif
