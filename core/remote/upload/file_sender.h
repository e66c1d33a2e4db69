/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_sender.h - uploads files of this machine to a bucket, part by part.
 *
 * A file that is only appended to is uploaded while it grows (file_sender_grew()): each part as
 * soon as it is written. If bytes that were sent are dropped again, or a request fails, the upload
 * is given up, and the file is sent from its beginning later. So the writer of a file never waits
 * for the server, and never fails because of it.
 *
 * Up to STORE_UPLOAD_THREADS threads read parts from the files and send them. The memory of the
 * parts comes from a budget, which senders may share. Any thread may call these functions.
 */
#ifndef PYTREEFS_CORE_STORE_FILE_SENDER_H
#define PYTREEFS_CORE_STORE_FILE_SENDER_H

#include "core/base/budget.h"
#include "core/remote/bucket/store_write.h"

struct file_sender;
struct sent_file;

/* store and budget are borrowed until file_sender_end(). */
int file_sender_new(struct io_store *store, struct budget *budget, struct file_sender **ret);
struct file_sender *file_sender_ref(struct file_sender *fs);
/* Accepts NULL. */
void file_sender_unref(struct file_sender *fs);

/*
 * The first `end` bytes of the file `from` are written, and will not change unless
 * file_sender_cut() is called; its object is to be called `path`. *file is NULL at the first call
 * for a file; it is valid as long as the sender. Does nothing when memory is short, and after
 * file_sender_end().
 */
void file_sender_grew(struct file_sender *fs, struct sent_file **file, const char *path,
		      struct io_file *from, uint64_t end);
/* The bytes from `end` on were dropped. Accepts NULL. */
void file_sender_cut(struct file_sender *fs, struct sent_file *file, uint64_t end);
/* The file will not change any more. Accepts NULL. */
void file_sender_closed(struct file_sender *fs, struct sent_file *file);

/*
 * Upload the file at `path` below `from`, which is complete. Parts that were sent while it grew are
 * not sent again. The directory is borrowed until file_sender_wait() returns. is_new: nothing has
 * been sent for that path before, so that an object which is there is another writer's: -EEXIST.
 */
int file_sender_add(struct file_sender *fs, struct io_dir *from, const char *path, bool is_new);
/*
 * Wait until all added files are objects; the calling thread sends parts, too. check may be NULL;
 * any thread calls it before it sends a part, and an error stops the sender. Returns the first
 * error; nothing is sent after it.
 */
int file_sender_wait(struct file_sender *fs, int (*check)(void *arg), void *arg);
/* Remove what was sent of files that were not added. Called after the last file_sender_wait(). */
int file_sender_drop_others(struct file_sender *fs);
/* Remove the objects of all files. Called after file_sender_end(). */
int file_sender_remove(struct file_sender *fs);
/* Stop sending, end the threads and abort unfinished uploads. A second call does nothing. */
void file_sender_end(struct file_sender *fs);

DEFINE_AUTO(file_sender, struct file_sender, file_sender_unref);

#endif
