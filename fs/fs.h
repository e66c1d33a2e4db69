/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.h - the FUSE layer: turns kernel requests into calls for nodes and files
 * (handlers/namespace/node.h).
 *
 * It has no knowledge of formats. There is one function per operation. Nodes have their own locks,
 * and no lock is held while a reply is sent.
 */
#ifndef PYTREEFS_FS_H
#define PYTREEFS_FS_H

#include <fuse_lowlevel.h>
#include <pthread.h>

#include "fs/forget.h"
#include "fs/init.h"
#include "fs/passthrough.h"
#include "fs/queue.h"
#include "fs/request_reader.h"
#include "fs/requests.h"
#include "handlers/namespace/memory_files.h"
#include "handlers/namespace/ns.h"

#define STAT_CALLERS 64

struct fs {
	bool agreed; /* all ranks of the job agreed that they are mounted */
	struct ns *ns;
	struct fuse_session *se;
	const struct options *options;
	int ready_fd; /* written to once when the first request has arrived; -1: no process waits */
	const char *mountpoint;
	bool is_read_only;
	struct request_reader request_reader;
	struct requests requests;
	struct broker broker;
	struct forget forget;
	struct init init;
	struct passthrough passthrough;
	struct queues *queues; /* NULL: requests come through /dev/fuse only */
	/*
	 * Threads of other programs that request attributes of single files. A thread with the same
	 * hash replaces the previous one.
	 */
	_Atomic uint32_t stat_caller[STAT_CALLERS];
	pthread_mutex_t lock; /* protects all members below */
	bool ending;          /* the session is ending: send no more notifications to the kernel */
	struct dir_handle *dirs; /* list of all open handles */
};

/* The state of an open directory. */
struct dir_handle {
	struct dir_handle *next, **at; /* protected by the lock of fs */
	struct listing list;
	bool is_listed;
	bool is_read; /* it was read from its start: a rewind makes a new listing */
};

extern const struct fuse_lowlevel_ops fs_ops;

struct node *fs_node(struct fs *fs, fuse_ino_t ino);
/* Fill in the reply with a node, which gets a lookup count of the kernel. Takes the reference. */
void fs_entry_take(struct fs *fs, struct node *n, const struct stat *st,
		   struct fuse_entry_param *ret);

/* reply.c: the only caller of fuse_reply_*; each sends exactly one reply. */
void reply_code(fuse_req_t req, int code, const char *op, const struct node *n);
void reply_entry(fuse_req_t req, struct node *n, const char *op);
void reply_attr(fuse_req_t req, struct node *n, const char *op);
void reply_segments(fuse_req_t req, struct segments *g, struct node *n);
/* -ENOENT: the caller is gone. */
int reply_bytes(fuse_req_t req, const void *p, size_t n);
void reply_xattr(fuse_req_t req, struct span value, size_t size);
/* False: the caller is gone, and will not close the file. */
bool reply_open(fuse_req_t req, const struct fuse_file_info *fi);
bool reply_create(fuse_req_t req, struct node *n, const struct fuse_file_info *fi);
void reply_none(fuse_req_t req);
void reply_count(fuse_req_t req, size_t n);
void reply_offset(fuse_req_t req, uint64_t off);
void reply_link(fuse_req_t req, const char *target);
void reply_statfs(fuse_req_t req, const struct statvfs *st);

/* dir.c */
/* Record that the caller requested a name or attributes of a single file. */
void dir_note_stat(fuse_req_t req, const struct node *n);
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Free handles that the kernel did not release before the mount ended. */
void dirs_free(struct fs *fs);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
	       const char *to_name, unsigned flags);

/* file.c */
void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off,
		  struct fuse_file_info *fi);
void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino, off_t off, struct fuse_file_info *fi,
			fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to_fi, size_t n,
			int flags);
void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);

/* caller.c */
/* Whether the caller is about to create the name that it looks up, and requires it to be new. */
bool caller_creates(fuse_req_t req);
/* Let this thread act for the caller until caller_leave(): user_now(). */
void caller_enter(fuse_req_t req, struct user *u);
void caller_leave(void);
/*
 * The signals that have come for a thread that waits for a reply: bit n - 1 for signal n. That of
 * SIGKILL is set if any of them ends its process. All but SIGKILL where /proc does not show them.
 */
uint64_t caller_signals(pid_t pid);

/* xattr.c */
void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* fs_main.c: detach the background process from the user's terminal. */
void fs_detach(struct fs *fs);

#endif
