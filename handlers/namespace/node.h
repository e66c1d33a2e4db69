/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - the namespace: the contents of a mount as a tree of named nodes.
 *
 * The FUSE layer and the tools use the same nodes, so `pytreefs cat` needs no mount. Each kind of
 * node is one const struct node_ops: the root, a step, a directory or leaf of a tree, a stored
 * file, a file of `.pytreefs`, and the corresponding nodes of drafts.
 *
 * Nodes are counted. A node holds its parent. Looking up a name again gives the same node as long
 * as it is held. Inode numbers are hashes of the path below the mount, so they are the same in
 * every mount.
 *
 * Any thread may call any function.
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

/* A snapshot of a directory at the time when it was opened. */
struct listing {
	struct listing_entry {
		size_t name; /* offset of a NUL-terminated name in names */
		uint64_t ino;
		unsigned char type; /* DT_* */
	} * entry;
	size_t n, cap;
	struct buf names;
	struct node **held; /* private: nodes of entries; a reference each, NULL for some */
	size_t held_from, n_held;
};

int listing_add(struct listing *l, const struct node *dir, struct span name, unsigned char type);
/* Add "." and "..", with which every listing starts. */
int listing_add_dots(struct listing *l, const struct node *dir);
/* Sort by name, from entry `from` on, so that the order is the same on every machine. */
void listing_sort(struct listing *l, size_t from);
/*
 * Called before entry i is looked up and its attributes requested, i >= 2. In a store, where these
 * take round trips, threads of the pool do both for this entry and up to 63 after it, and the
 * listing holds their nodes until the next such group or listing_release(), so that the caller's
 * own look-ups find them. Errors are left to these. Does nothing elsewhere, for a directory with
 * lazy_list, or when memory is short. dir is the directory of the listing.
 */
void listing_hold(struct listing *l, struct node *dir, size_t i);
void listing_release(struct listing *l);
static inline const char *listing_name(const struct listing *l, size_t i)
{
	return (const char *)l->names.p + l->entry[i].name;
}

/* The members of a struct stat that node_setattr() sets. */
enum node_set {
	NODE_SET_SIZE = 1 << 0,
	NODE_SET_MODE = 1 << 1,
	NODE_SET_OWNER = 1 << 2,
	NODE_SET_TIMES = 1 << 3
};

/*
 * Operations of a kind of node. Defaults for NULL members: lookup and list fail with -ENOTDIR, open
 * with -EISDIR, readlink with -EINVAL, changes with -EROFS; there are no xattrs.
 */
struct node_ops {
	const char *name; /* for traces */
	/* a listing has no attributes of its entries, since these would have to be opened */
	bool lazy_list;
	/* a file cannot be written, although its mode may have write permission */
	bool is_immutable;
	int (*stat)(struct node *n, struct stat *ret);
	/* Make a node for a name, with ops and private state (node_new()); -ENOENT. */
	int (*lookup)(struct node *dir, struct span name, struct node **ret);
	int (*list)(struct node *dir, struct listing *ret);
	/*
	 * Whether it has the same names as long as it lives, so that the kernel may cache a
	 * listing. NULL: no.
	 */
	bool (*list_is_fixed)(const struct node *dir);
	int (*open)(struct node *n, int flags, struct file **ret);
	int (*readlink)(struct node *n, struct buf *ret);
	/* Append NUL-terminated names, one after another. */
	int (*xattr_list)(struct node *n, struct buf *ret);
	/* Append the value; -ENODATA. `name` is without the prefix "user.pytree.". */
	int (*xattr_get)(struct node *n, const char *name, struct buf *ret);
	/*
	 * Called when a node in the table is looked up again: false when the name no longer stands
	 * for it.
	 */
	bool (*still_valid)(struct node *n);

	int (*mkdir)(struct node *dir, struct span name, unsigned mode, struct node **ret);
	int (*create)(struct node *dir, struct span name, int flags, struct node **ret,
		      struct file **ret_file);
	int (*unlink)(struct node *dir, struct span name);
	int (*rmdir)(struct node *dir, struct span name);
	int (*rename)(struct node *dir, struct span name, struct node *to_dir, struct span to_name,
		      unsigned flags);
	int (*setattr)(struct node *n, const struct stat *st, unsigned which, struct file *file);
	/*
	 * Set an xattr, or remove it when value is NULL. `name` is the full name
	 * ("user.pytree.kind", "user.other").
	 */
	int (*xattr_set)(struct node *n, const char *name, const struct span *value, int flags);

	void (*free)(struct node *n); /* free the private state and the node itself */
};

struct node {
	const struct node_ops *ops;
	struct ns *ns;
	struct node *parent; /* a reference; NULL for the root */
	char *name;          /* "" for the root; former names live as long as the node */
	/* all names that the node has had; protected by the table's lock */
	struct node_name *names;
	uint64_t ino;
	double ttl;             /* seconds for which the kernel may cache its name and attributes */
	double child_ttl;       /* the same for names that are looked up in it */
	uint64_t refs;          /* protected by the table's lock */
	struct node *hash_next; /* protected by the table's lock */
	/* lost: held, but no longer found by name; protected by the table's lock */
	bool hashed, lost;
	bool generated; /* exists without being created, and may be created nevertheless */
	/* number of open files that may be copied to a draft without decoding */
	atomic_uint sources;
};

/*
 * Allocate a node for node_ops.lookup: `size` zeroed bytes that begin with the struct node, with
 * refs 1, and not in the table yet. dir is NULL for the root.
 */
int node_new(const struct node_ops *ops, struct ns *ns, struct node *dir, struct span name,
	     size_t size, void *ret);

/*
 * Seconds for which the kernel may cache the attributes of a node. In a step, only permissions can
 * change, and those in the cache of core/step/access.h may be half a second old themselves.
 * Together that makes one second.
 */
#define NODE_ATTR_TTL 0.5
static inline double node_attr_ttl(const struct node *n)
{
	return atomic_load(&n->sources) ? 0 : n->ttl < NODE_ATTR_TTL ? n->ttl : NODE_ATTR_TTL;
}

struct node *node_ref(struct node *n);
/* Drop `count` references, since the kernel forgets several at once. Accepts NULL. */
void node_unref(struct node *n, uint64_t count);
/* Get the child of that name, with a reference. */
int node_lookup(struct node *dir, struct span name, struct node **ret);
/*
 * Replace a link in dir by what it leads to, which is in dir, too, and append its name to target.
 * *n is NULL on failure. Does nothing for other nodes.
 */
int node_follow(struct node *dir, struct node **n, struct buf *target);
/* Follow a path of names separated by '/', including links; "" and "." are dir itself. */
int node_walk(struct node *dir, const char *path, struct node **ret);
/*
 * Returns the parent with a reference, or NULL. The parent changes when a name of a draft is
 * renamed.
 */
struct node *node_parent(const struct node *n);
/* Append the path below the mount, for messages: "100/default/params/w.npy". */
int node_path(const struct node *n, struct buf *ret);
/* Whether a file is open below the root's entry of this name; ".": below any entry. */
bool node_is_in_use(struct ns *ns, struct span name);
/*
 * Look in the table only: 0: it has no node of that name in dir; 1: the name stands for its node;
 * -ESTALE: it does not any more, but the kernel may still use it.
 */
int node_check_name(struct node *dir, struct span name);
/* Remove the node from the table, so that the next lookup of its name makes a new one. */
void node_forget_name(struct node *n);
/* The node was renamed: move it to another directory and name. */
int node_moved(struct node *n, struct node *to_dir, struct span to_name);

int node_stat(struct node *n, struct stat *ret);
int node_list(struct node *n, struct listing *ret);
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
/* -EROFS for a name inside a committed step; the message says how the whole step is deleted. */
int node_refuse_removal(const struct node *dir, struct span name);
/* Why nothing in a tree can be changed, for messages. */
const char *node_why_read_only(const struct node *n);
int node_setattr(struct node *n, const struct stat *st, unsigned which, struct file *file);
int node_xattr_set(struct node *n, const char *name, const struct span *value, int flags);

/* Whether open(2) with these flags changes the file: O_TRUNC does, even without write access. */
static inline bool open_changes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

/* Returns the inode number of a name in a directory. */
uint64_t node_ino(const struct node *dir, struct span name);

/* The table of all nodes in use; owned by the ns. */
struct node_table;
int node_table_new(struct node_table **ret);
/* Free the table, with files and nodes that are still held after a mount has ended. */
void node_table_free(struct node_table *t);
uint64_t node_table_count(struct node_table *t);

/* Operations of an open file. Several threads may read at once. */
struct file_ops {
	/* Append up to n bytes from off to g, fewer only at the end of the file. */
	int (*read)(struct file *f, uint64_t off, size_t n, struct segments *g);
	/* The following members may be NULL. whence: SEEK_HOLE or SEEK_DATA; NULL: all is data. */
	int (*seek)(struct file *f, uint64_t off, int whence, uint64_t *ret);
	/*
	 * Returns the number of bytes that were accepted, at least one; fewer than n when the
	 * following ones would fail.
	 */
	ssize_t (*write)(struct file *f, uint64_t off, const void *p, size_t n);
	/*
	 * Bytes that a program wrote through a map could not be written. No program waits for this
	 * error.
	 */
	void (*lost)(struct file *f, int code);
	/*
	 * Returns the descriptor of a file that has, and always will have, exactly these bytes;
	 * else -1. Borrowed. Called once, by whoever opened the file; may decode all of it.
	 */
	int (*stored)(struct file *f);
	/* The kernel reads the file by requests, although it may be stored. */
	void (*by_requests)(struct file *f);
	/* Returns the array, if the file is the .npy file of a whole array; else NULL. Borrowed. */
	struct zarr *(*array)(struct file *f);
	/* Become the .npy file of an array by moving its stored chunks: 1; 0: not possible. */
	ssize_t (*copy_array)(struct file *f, uint64_t off, struct zarr *from);
	/*
	 * A program is copying the leaf `from` to this file: remember properties that its bytes do
	 * not have. Called before copy_array.
	 */
	void (*copied)(struct file *f, struct node *from);
	int (*flush)(struct file *f);
	int (*sync)(struct file *f);
	void (*free)(struct file *f);
};

struct file {
	const struct file_ops *ops;
	struct node *node;       /* a reference */
	struct file *next, **at; /* list of all open files; protected by the table's lock */
	/* number by which the kernel identifies the thread that opened it; 0: unknown */
	uint32_t reader;
	bool is_single;  /* its reader reads no other leaf afterwards, so none is fetched ahead */
	bool is_source;  /* it is counted in node->sources */
	bool keep_cache; /* the kernel may keep its cached pages across open() */
	bool direct; /* the kernel does not cache it: set if the size may change between reads */
	bool is_counted; /* it is counted by fs/passthrough.c */
};

/* Allocate a file of `size` zeroed bytes that begin with the struct file. */
int file_new(const struct file_ops *ops, struct node *n, size_t size, void *ret);
int file_read(struct file *f, uint64_t off, size_t n, struct segments *g);
int file_seek(struct file *f, uint64_t off, int whence, uint64_t *ret);
/* Returns the number of bytes that were accepted: fewer than n when the next one would fail. */
ssize_t file_write(struct file *f, uint64_t off, const void *p, size_t n);
/*
 * Copy n bytes between open files without reading them. Returns the number of bytes. -EOPNOTSUPP:
 * not possible, and nothing has changed.
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
