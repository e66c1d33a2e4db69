/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passthrough.c - which inodes are open with a backing file, and the replies that name it.
 */
#include "fs/passthrough.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "core/base/log.h"
#include "fs/fs.h"
#include "fs/serving.h"

/* Telling the kernel of a backing file, and of its end, costs as much as two requests or three. */
#define SMALLEST ((off_t)MiB)

#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1 << 7) /* of protocol 7.40 */
#endif

/* An inode that is open. */
struct backing {
	struct backing *next;
	const struct node *node;
	unsigned users; /* files */
	int id;         /* the kernel's number of the backing file; 0: none, for these files */
};

void passthrough_init(struct passthrough *p)
{
	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
}

void passthrough_release(struct passthrough *p)
{
	for (unsigned i = 0; i < PASSTHROUGH_BUCKETS; i++)
		for (struct backing *b = p->bucket[i], *next; b; b = next) {
			next = b->next;
			free(b);
		}
	pthread_mutex_destroy(&p->lock);
}

/* Where the inode is, or would be, in the list of its bucket. */
static struct backing **passthrough_find(struct passthrough *p, const struct node *n)
{
	struct backing **at = &p->bucket[n->ino % PASSTHROUGH_BUCKETS];

	while (*at && (*at)->node != n)
		at = &(*at)->next;
	return at;
}

/* Returns the kernel's number of the backing file; 0: it takes none, or it is not worth it. */
static int register_file(struct fs *fs, int fd)
{
	const int files[] = { fuse_session_fd(fs->se), fd };
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < SMALLEST)
		return 0;
	r = broker_ask(&fs->broker, BROKER_BACKING_OPEN, "", files, 2);
	/* ELOOP: below this file are too many stacked file systems. Others are shortages. */
	if (r > 0 || r == -ELOOP || r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return MAX(r, 0);
	/* In this container it never works. */
	fs->passthrough.is_refused = true;
	memory_files_allow(fs->ns->memory, false);
	log_info("files are read by requests, not passed through: %s", strerror(-r));
	return 0;
}

void passthrough_open(struct fs *fs, struct file *f, struct fuse_file_info *fi)
{
	struct passthrough *p = &fs->passthrough;
	int id = 0, fd = -1;
	struct backing *b, **at;
	bool is_open;

	serving()->backing_id = 0;
	if (!f->ops->stored || !(fs->init.granted & FUSE_PASSTHROUGH))
		return;
	/* Any file of the inode that is open has decided for those that come. */
	pthread_mutex_lock(&p->lock);
	is_open = *passthrough_find(p, f->node);
	pthread_mutex_unlock(&p->lock);
	if (!is_open)
		fd = f->ops->stored(f);
	pthread_mutex_lock(&p->lock);
	at = passthrough_find(p, f->node);
	b = *at;
	if (!b && !p->is_refused) {
		b = calloc(1, sizeof(*b));
		if (b) {
			b->node = f->node;
			b->id = register_file(fs, fd);
			*at = b;
		}
	}
	if (b) {
		b->users++;
		f->is_counted = true;
		id = b->id;
	}
	pthread_mutex_unlock(&p->lock);
	if (!id && f->ops->by_requests)
		f->ops->by_requests(f);
	if (!id)
		return;
	serving()->backing_id = id;
	/* Its pages are those of the other file. */
	fi->keep_cache = fi->direct_io = false;
	atomic_fetch_add_explicit(&fs->ns->passed_through, 1, memory_order_relaxed);
}

void passthrough_close(struct fs *fs, struct file *f)
{
	const int files[] = { fuse_session_fd(fs->se) };
	struct passthrough *p = &fs->passthrough;
	struct backing *b, **at;
	char id[16];

	serving()->backing_id = 0;
	if (!f->is_counted)
		return;
	pthread_mutex_lock(&p->lock);
	at = passthrough_find(p, f->node);
	b = *at;
	if (--b->users == 0) {
		*at = b->next;
		/* When the mount has ended there is nothing to forget. */
		snprintf(id, sizeof(id), "%d", b->id);
		if (b->id)
			broker_ask(&fs->broker, BROKER_BACKING_CLOSE, id, files, 1);
		free(b);
	}
	pthread_mutex_unlock(&p->lock);
}

void passthrough_complete_reply(struct iovec *iov, int n)
{
	const struct fuse_out_header *h = iov[0].iov_base;
	int32_t id = serving()->backing_id;
	struct fuse_open_out *out;

	if (!id)
		return;
	if (!h->error && n == 2 && iov[1].iov_len == sizeof(*out)) {
		out = iov[1].iov_base;
		out->open_flags |= FOPEN_PASSTHROUGH;
		/* Called backing_id since protocol 7.40. */
		memcpy((uint8_t *)out + sizeof(*out) - sizeof(id), &id, sizeof(id));
	}
	serving()->backing_id = 0;
}
