/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - the namespace: what the mount shows, as a tree of named nodes.
 *
 * The FUSE layer and the tools see the same nodes, so `pytreefs cat` needs no
 * mount. A kind of node is one const struct node_ops: the root, a step, a
 * directory or leaf of a tree, a stored file, a file of `.pytreefs`, and their
 * like in drafts.
 *
 * Nodes are counted. A node holds its parent; looking one name up twice gives the
 * same node as long as somebody holds it. Inode numbers are hashes of the path
 * below the mount, so they are the same in every mount.
 *
 * All functions may be called by any thread.
 */
#ifndef PYTREEFS_NODE_H
#define PYTREEFS_NODE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "core/base/buf.h"
#include "core/io/segments.h"

struct ns;
struct node;
struct node_name;
struct file;
struct zarr;

/* One directory as it was when it was opened. */
struct listing {
	struct listing_entry {
		size_t name; /* offset of a NUL-terminated name in names */
		uint64_t ino;
		unsigned char type; /* DT_* */
	} * entry;
	size_t n, cap;
	struct buf names;
};

int listing_add(struct listing *l, const struct node *dir, struct span name, unsigned char type);
/* By name, from entry `from` on: the same order on every machine. */
void listing_sort(struct listing *l, size_t from);
void listing_release(struct listing *l);
static inline const char *listing_name(const struct listing *l, size_t i)
{
	return (const char *)l->names.p + l->entry[i].name;
}

/* Which members of a struct stat node_setattr() sets. */
enum node_set {
	NODE_SET_SIZE = 1 << 0,
	NODE_SET_MODE = 1 << 1,
	NODE_SET_OWNER = 1 << 2,
	NODE_SET_TIMES = 1 << 3
};

/* NULL members: lookup and list -ENOTDIR, open -EISDIR, readlink -EINVAL, xattrs none, changes
 * -EROFS. */
struct node_ops {
	const char *name; /* for the trace */
	bool lazy_list;   /* a listing does not describe its entries: that would open them */
	int (*stat)(struct node *n, struct stat *ret);
	/* A fresh node for a name, with ops and private state set (node_new()); -ENOENT. */
	int (*lookup)(struct node *dir, struct span name, struct node **ret);
	int (*list)(struct node *dir, struct listing *ret);
	/* Whether it lists the same names as long as it lives. NULL: no. */
	bool (*list_is_fixed)(const struct node *dir);
	int (*open)(struct node *n, int flags, struct file **ret);
	int (*readlink)(struct node *n, struct buf *ret);
	/* NUL-terminated names, one after the other. */
	int (*xattr_list)(struct node *n, struct buf *ret);
	/* Value appended to ret; -ENODATA. name is without the "user.pytree." in front. */
	int (*xattr_get)(struct node *n, const char *name, struct buf *ret);
	/* A name was looked up that the table has: false when it no longer means this node. */
	bool (*still_valid)(struct node *n);

	int (*mkdir)(struct node *dir, struct span name, unsigned mode, struct node **ret);
	int (*create)(struct node *dir, struct span name, int flags, struct node **ret,
		      struct file **ret_file);
	int (*unlink)(struct node *dir, struct span name);
	int (*rmdir)(struct node *dir, struct span name);
	int (*rename)(struct node *dir, struct span name, struct node *to_dir, struct span to_name,
		      unsigned flags);
	int (*setattr)(struct node *n, const struct stat *st, unsigned which, struct file *file);
	/* value NULL: remove. name is the whole name ("user.pytree.kind", "user.other"). */
	int (*xattr_set)(struct node *n, const char *name, const struct span *value, int flags);

	void (*free)(struct node *n); /* private state and the node itself */
};

struct node {
	const struct node_ops *ops;
	struct ns *ns;
	struct node *parent;     /* a reference; NULL for the root */
	char *name;              /* "" for the root; old ones live as long as the node */
	struct node_name *names; /* all that it ever had; protected by the table's lock */
	uint64_t ino;
	double ttl;             /* seconds that the kernel may trust its name and attributes */
	double child_ttl;       /* the same for what is looked up in it */
	uint64_t refs;          /* protected by the table's lock */
	struct node *hash_next; /* protected by the table's lock */
	bool hashed,
		lost;   /* protected by the table's lock; lost: held, and no longer found by name */
	bool generated; /* there by itself, and may be created all the same */
	atomic_uint sources;      /* open files that may be copied to a draft as they are stored */
	atomic_ullong bytes_read; /* of its file, by the kernel */
};

/*
 * For node_ops.lookup: size bytes with the struct node first, zeroed; refs 1, not in the table yet.
 * dir is NULL for the root.
 */
int node_new(const struct node_ops *ops, struct ns *ns, struct node *dir, struct span name,
	     size_t size, void *ret);

/*
 * Seconds that the kernel may trust its attributes: nothing of a step changes but who may read it,
 * and what was found of that may itself be half a second old (core/step/access.h). Together that is
 * a second.
 */
#define NODE_ATTR_TTL 0.5
static inline double node_attr_ttl(const struct node *n)
{
	return atomic_load(&n->sources) ? 0 : n->ttl < NODE_ATTR_TTL ? n->ttl : NODE_ATTR_TTL;
}

struct node *node_ref(struct node *n);
/* Give n references back (the kernel forgets several at once). Accepts NULL. */
void node_unref(struct node *n, uint64_t count);
/* The child of that name, with a reference. */
int node_lookup(struct node *dir, struct span name, struct node **ret);
/* Follow a path of names separated by '/', and links; "" and "." are dir itself. */
int node_walk(struct node *dir, const char *path, struct node **ret);
/* With a reference, or NULL: of names of a draft it changes when they are renamed. */
struct node *node_parent(const struct node *n);
/* Path below the mount, for messages: "100/default/params/w.npy". */
int node_path(const struct node *n, struct buf *ret);
/* Whether a file is open below the entry of the root that has this name; ".": any file. */
bool node_is_in_use(struct ns *ns, struct span name);
/* Take it out of the table: the next look-up of its name begins afresh. */
void node_forget_name(struct node *n);
/* After a rename: the node stands under another name now. */
int node_moved(struct node *n, struct node *to_dir, struct span to_name);

int node_stat(struct node *n, struct stat *ret);
int node_list(struct node *n, struct listing *ret);
/* Whether every listing of it is the same, so that the kernel may keep one. */
bool node_list_is_fixed(const struct node *n);
int node_open(struct node *n, int flags, struct file **ret);
int node_readlink(struct node *n, struct buf *ret);
int node_xattr_list(struct node *n, struct buf *ret);
int node_xattr_get(struct node *n, const char *name, struct buf *ret);
int node_mkdir(struct node *dir, struct span name, unsigned mode, struct node **ret);
int node_create(struct node *dir, struct span name, int flags, struct node **ret,
		struct file **ret_file);
int node_unlink(struct node *dir, struct span name);
int node_rmdir(struct node *dir, struct span name);
int node_rename(struct node *dir, struct span name, struct node *to_dir, struct span to_name,
		unsigned flags);
int node_setattr(struct node *n, const struct stat *st, unsigned which, struct file *file);
int node_xattr_set(struct node *n, const char *name, const struct span *value, int flags);

/* Whether open(2) with these flags changes the file: O_TRUNC does, even where nothing may be
 * written. */
static inline bool open_changes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

/* Inode number of a name in a directory. */
uint64_t node_ino(const struct node *dir, struct span name);

/* The table of nodes in use; owned by the ns. */
struct node_table;
int node_table_new(struct node_table **ret);
/* Frees files and nodes that are still held, too: after a mount has ended. */
void node_table_free(struct node_table *t);
uint64_t node_table_count(struct node_table *t);

/* An open file. Reads may come from several threads at once. */
struct file_ops {
	/* Up to n bytes from off, fewer only at the end of the file; appended to g. */
	int (*read)(struct file *f, uint64_t off, size_t n, struct segments *g);
	/* The rest may be NULL. whence SEEK_HOLE or SEEK_DATA; NULL: all is data. */
	int (*seek)(struct file *f, uint64_t off, int whence, uint64_t *ret);
	/* Bytes accepted, at least one; fewer than n when what follows would fail. */
	ssize_t (*write)(struct file *f, uint64_t off, const void *p, size_t n);
	/* Bytes that a program wrote through a map could not be written: nobody waits to be told. */
	void (*lost)(struct file *f, int code);
	/* The array whose .npy file this is, as a whole; NULL: none. Borrowed. */
	struct zarr *(*array)(struct file *f);
	/* Become the .npy file of an array by taking its stored chunks: 1; 0 when that cannot be. */
	ssize_t (*copy_array)(struct file *f, uint64_t off, struct zarr *from);
	/* Somebody copies that leaf here: what its bytes do not say may be kept. Before copy_array.
	 */
	void (*copied)(struct file *f, struct node *from);
	int (*flush)(struct file *f);
	int (*sync)(struct file *f);
	void (*free)(struct file *f);
};

struct file {
	const struct file_ops *ops;
	struct node *node;       /* a reference */
	struct file *next, **at; /* all that are open; protected by the table's lock */
	uint32_t reader; /* the thread that opened it, as the kernel calls it; 0: not known */
	bool is_source;  /* counted in the node's sources */
	bool keep_cache; /* the kernel may keep its pages over open() */
	bool direct; /* the kernel does not cache: set where the size may change between reads */
	bool direct_by_choice; /* fs/direct.h: what its reader does says how the next one is read */
	atomic_ullong bytes_read; /* by the kernel, with so many requests */
	atomic_uint reads;
};

/* size bytes with the struct file first, zeroed. */
int file_new(const struct file_ops *ops, struct node *n, size_t size, void *ret);
int file_read(struct file *f, uint64_t off, size_t n, struct segments *g);
int file_seek(struct file *f, uint64_t off, int whence, uint64_t *ret);
/* Bytes accepted: fewer than n when the next would fail. */
ssize_t file_write(struct file *f, uint64_t off, const void *p, size_t n);
/*
 * Copy n bytes between open files without their coming through memory: how many. -EOPNOTSUPP: it
 * cannot be done so, nothing has changed.
 */
ssize_t file_copy(struct file *from, uint64_t from_off, struct file *to, uint64_t to_off,
		  uint64_t n);
int file_flush(struct file *f);
int file_sync(struct file *f);
/* Accepts NULL. */
void file_close(struct file *f);

static inline void node_put_cleanup(struct node **n)
{
	node_unref(*n, 1);
}
#define auto_node __attribute__((cleanup(node_put_cleanup))) struct node
DEFINE_AUTO(file, struct file, file_close);
#define auto_listing __attribute__((cleanup(listing_release))) struct listing

#endif
