/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h - a step that is being written through this process.
 *
 * A draft is a tree of names in memory: directories, and files whose contents are encoded into
 * chunks while they are written (draft_file.h). Only its directory, its lock and the values are on
 * disk. Names, kinds and options take effect when the draft is committed.
 *
 * One lock protects the tree of names and all xattrs; each file has a lock of its own for its
 * contents. Lock order: the lock of a file before the lock of its draft, so that code that works on
 * contents can look at names and options. Code that walks the tree takes references first and looks
 * at contents without the draft's lock.
 */
#ifndef PYTREEFS_DRAFT_H
#define PYTREEFS_DRAFT_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/commit/commit.h"
#include "core/dtype/dtype.h"
#include "core/job/collective.h"
#include "core/step/access.h"
#include "handlers/draft/draft_env.h"

struct draft_file;
struct file_sender;
struct step_upload;

/*
 * The store for the arrays of one item. It is created when the first array of the item is written.
 */
struct draft_store {
	struct item_store *store;
	char *dir; /* its present directory, below the draft's */
	/* number of the first leaf in the next store: a dropped store may have left its leaves */
	unsigned first_leaf;
};

struct draft_xattr {
	struct draft_xattr *next;
	char *name; /* without the prefix "user.pytree.": "kind", "save.zarr" */
	struct buf value;
};

/*
 * A name of a node. Any holder of the node may read its name without the lock, so a rename keeps
 * the old ones until the node is freed.
 */
struct draft_name {
	struct draft_name *older;
	char text[];
};

/* A directory or file of a draft. The holder of a node must hold a reference to its draft, too. */
struct draft_node {
	struct draft *draft;
	struct draft_node *parent; /* NULL: the draft itself, or a name that was removed */
	const char *name;          /* the newest entry of `names` */
	struct draft_name *names;
	bool is_dir;
	bool from_opaque;      /* for a file: copied from an item that is not a tree */
	bool from_other;       /* for a file: copied from beside the arrays of a tree, or items */
	bool generated_hidden; /* its generated file was removed and has not been written since */
	uint64_t ino;
	struct timespec mtime;
	unsigned refs;             /* one of the tree, and one of each user */
	struct draft_node **child; /* sorted by name */
	size_t n_children, cap;
	struct draft_xattr *xattrs;
	struct draft_file *file; /* for files; NULL for directories */
	struct draft_store item; /* for an item, a child of the draft */
	struct draft_store
		replicas; /* like item, for slices that ranks write (replica_parallel_separate) */
	struct copied *copied; /* NULL: no program has copied anything to it */
	bool hint_lost;        /* copied->document did not fit in memory */
};

/* The properties that a leaf passes on to its copies. */
struct copied_leaf {
	enum dtype dtype; /* DTYPE_UNKNOWN: it is not an array */
	bool is_jax;      /* it is recorded as jax.Array */
	/* p NULL: none; JSON, and the implementation of PRNG keys; of a draft: in draft.texts */
	struct span sharding, write_shape, prng_impl;
	bool has_sha256; /* its item records this SHA-256 of its value */
	uint8_t sha256[32];
};

/*
 * The record of copies to a node. It never overrides a name, contents or an xattr
 * (handlers/plan/copy_hints.h).
 */
struct copied {
	struct copied_leaf leaf;

	/* ---- of an item or the draft ---- */
	char *from; /* the directory in SOURCE of the first copied file, that of an item or step */
	/*
	 * the format of the tree that was copied before there was an array, which applies where no
	 * option says otherwise
	 */
	struct copied_format {
		bool known, ocdbt, zarr3;
	} format;
	struct buf document; /* the generated file as a program wrote it */
	unsigned writers;    /* handles that are writing it */
	/* values of draft.changes and draft.removals when it was written */
	uint64_t written_at, removals;
	struct timespec mtime;
	/* draft.changes + 1 when it was compared with the tree; 0: never; and the result */
	uint64_t compared_at;
	bool agrees;
};

struct draft_text {
	struct draft_text *next;
	size_t n;
	uint8_t text[];
};

enum draft_life { DRAFT_OPEN, DRAFT_COMMITTING, DRAFT_GONE };

struct draft {
	struct draft *next; /* in the list of env; protected by env->lock */
	struct draft_env *env;
	char *name; /* name in the mount: "101.tmp" */
	/* for a tree that is a checkpoint: path of the item that rules see in its place; or NULL */
	char *rules_from;
	struct draft_dir *dir;
	/* its place in a bucket; NULL: SOURCE is not in a bucket, or a commit failed */
	struct step_upload *upload;
	struct file_sender *sender; /* uploads data files while they grow; a reference, or NULL */
	struct collective_member member; /* for a draft that is shared by ranks */
	bool is_item; /* in a mount of a step: the draft is one item, with its tree at the top */
	/*
	 * In a mount of a root: the draft is a step that is one tree, which the commit has found.
	 * is_item is set, too.
	 */
	bool is_tree;
	bool any_name; /* the final name need not be the name of a step */
	bool replaces; /* the commit replaces a checkpoint that has the final name */
	atomic_uint refs;
	pthread_mutex_t lock; /* protects all members below, and all nodes */
	enum draft_life life;
	struct draft_node *root;
	uint64_t next_ino;
	uint64_t changes; /* number of changes to names, contents and xattrs */
	/* changes + 1 at a commit of which it is not known whether it succeeded; 0: none */
	uint64_t unknown_at;
	/* number of changes that removed a directory, or a file that may be a leaf */
	uint64_t removals;
	/* leaves were copied from a tree that is a step, each to its own place; or from an item */
	bool copied_tree, copied_item;
	unsigned n_stores;
	struct draft_text *texts; /* texts that many nodes share */
	size_t text_bytes;        /* their sum */
	struct access access;     /* of its directory on disk, as read at access_at */
	int64_t access_at;        /* clock_ns(); 0: never */
};

/* ---- drafts of a mount (draft.c) ---- */

/*
 * Begin the draft `name` as the user spells it ("101.tmp"). -EINVAL: not a name of a draft; -EBUSY:
 * a live mount holds it, this one too, or another program has a temporary directory for that step.
 */
int draft_begin(struct draft_env *env, struct span name, struct draft **ret);
/* Begin a draft for the tools: a checkpoint of any name, which holds items or is one itself. */
int draft_begin_as(struct draft_env *env, struct span final, bool is_item, struct draft **ret);
/* Append the name of a draft's directory, which buf_str() returns. For drivers. */
int draft_name_on_disk(const struct draft *d, const char *final, struct buf *ret);
/* Returns the draft of that name, with a reference, or NULL. */
struct draft *draft_find(struct draft_env *env, struct span name);
/* Returns the number of drafts. */
unsigned draft_count(struct draft_env *env);
/* Call `each` once for each draft, without holding locks. */
int draft_each(struct draft_env *env, int (*each)(void *arg, struct draft *d), void *arg);
struct draft *draft_ref(struct draft *d);
/* Accepts NULL. */
void draft_unref(struct draft *d);
/*
 * Remove the draft from the mount and from disk. -ENOTEMPTY while it has names, unless force is
 * set.
 */
int draft_abort(struct draft *d, bool force);
/*
 * Release all drafts at the end of a mount. Their directories remain on disk as abandoned drafts.
 */
void drafts_release(struct draft_env *env);
/*
 * Get the permissions of the draft's directory on disk. They may be up to ACCESS_FRESH_NS old,
 * since a program that writes a file asks for them several times.
 */
int draft_access(struct draft *d, struct access *ret);
/*
 * Check whether the draft of n may be read, or, with `writes`, written. -ESTALE after its end,
 * -EBUSY during a commit.
 */
int draft_check_life(const struct draft_node *n, bool writes);
/* End the life of a draft, which the driver is told, and remove it from the mount. */
void draft_end(struct draft *d, bool aborted);
DEFINE_AUTO(draft, struct draft, draft_unref);

/* ---- the tree of names (draft_node.c); all functions lock the draft ---- */

struct draft_node *draft_node_ref(struct draft_node *n);
void draft_node_unref(struct draft_node *n);
DEFINE_AUTO(draft_node, struct draft_node, draft_node_unref);
/* Set the modification time of a node to now. */
void draft_touch(struct draft_node *n);
/* Look up a name. Here and below, *ret holds a reference. */
int draft_lookup(struct draft_node *dir, struct span name, struct draft_node **ret);
/* References to nodes; an entry that was taken is NULL. */
struct draft_list {
	struct draft_node **node;
	size_t n;
};
void draft_list_release(struct draft_list *l);
#define auto_draft_list __attribute__((cleanup(draft_list_release))) struct draft_list
/* List the children, sorted by name. */
int draft_children(struct draft_node *dir, struct draft_list *ret);
int draft_mkdir(struct draft_node *dir, struct span name, struct draft_node **ret);
/*
 * Create a file. -EINVAL: the name cannot stand for a key; -EEXIST: the name, or an item of that
 * name, exists.
 */
int draft_create(struct draft_node *dir, struct span name, struct draft_node **ret);
int draft_unlink(struct draft_node *dir, struct span name);
int draft_rmdir(struct draft_node *dir, struct span name);
/* Rename within one draft. Replaces a file, as rename(2) does, unless no_replace is set. */
int draft_rename(struct draft_node *from, struct span name, struct draft_node *to,
		 struct span to_name, bool no_replace);
/* Free the tree of a draft that nobody uses any more. */
void draft_nodes_free(struct draft_node *n);
int draft_node_new(struct draft *d, struct span name, bool is_dir, struct draft_node **ret);
/* The record of copies to a node, which may be empty. The caller holds the lock. */
const struct copied *draft_copied(const struct draft_node *n);
/* The same to be filled; NULL: there is no memory for it, which loses no more than a hint. */
struct copied *draft_copied_new(struct draft_node *n);
/* Append the path below the step: "default/params/w.npy". The caller holds the lock. */
int draft_node_path(const struct draft_node *n, struct buf *ret);
/*
 * Returns the item (a child of the draft) that a node is in, or is; NULL for the draft itself. The
 * caller holds the lock.
 */
struct draft_node *draft_item_of(struct draft_node *n);

/* ---- names (draft_name.c) ---- */

/* Check the name of an item. -EINVAL: Orbax reserves the name, or it is not a valid one. */
int draft_check_item_name(struct span name);
/*
 * Check the name of a new file or directory (self NULL), or of one that is renamed, in place of old
 * or NULL. The name of a file that is stored as it is need not be one of a leaf or item, which the
 * commit checks, since nobody says of a new file that it is one. The caller holds the lock.
 */
int draft_check_name(const struct draft_node *self, struct draft_node *dir, struct span name,
		     bool is_dir, const struct draft_node *old);

/* ---- xattrs and options (draft_xattr.c) ---- */

/*
 * Set an xattr of the full name `name` ("user.pytree.kind"), or remove it when value is NULL.
 * -EINVAL: the message says what is accepted; -EOPNOTSUPP: not an xattr of a checkpoint.
 */
int draft_set_xattr(struct draft_node *n, const char *name, const struct span *value, int flags);
/* Get an xattr; `name` is without the prefix "user.pytree.". -ENODATA: it is not set. */
int draft_get_xattr(struct draft_node *n, const char *name, struct buf *ret);
int draft_list_xattr(struct draft_node *n, struct buf *ret);
/*
 * Returns the value of user.pytree.NAME; p is NULL when it is not set. The caller holds the lock.
 */
struct span draft_xattr_value(const struct draft_node *n, const char *name);
/* Like draft_xattr_value(), without the quotes of a JSON string. */
struct span draft_xattr_word(const struct draft_node *n, const char *name);
/* user.pytree.kind of a node. draft_kind() locks the draft. */
enum draft_kind {
	KIND_NONE, /* it is not set */
	KIND_DICT,
	KIND_LIST,
	KIND_TUPLE,
	KIND_NAMEDTUPLE,
	KIND_CUSTOM,
	KIND_OPAQUE,
	/* Shown for a tree that is one bare leaf, and for one that no document describes. */
	KIND_LEAF,
	KIND_UNKNOWN,
};
enum draft_kind draft_kind(const struct draft_node *n);
enum draft_kind draft_kind_locked(const struct draft_node *n);
/* Whether the node is in a directory that is stored byte for byte. The caller holds the lock. */
bool draft_is_opaque(const struct draft_node *n);
/*
 * Whether a pattern of an option selects a node, or a tensor in it: 1 or 0. *path, for messages, is
 * what it is matched against: the path without extensions and views. Locks the draft.
 */
int draft_selects(const char *glob, const struct draft_node *n, struct span tensor,
		  struct buf *path);
/*
 * Let rules for a tree that is a checkpoint select the same leaves as in a mount, where the tree is
 * the item `item`: "state", "state/params".
 */
int draft_rules_from(struct draft *d, struct span item);
/*
 * Check whether an array with that file name in dir can be stored as the present options say.
 * -ENAMETOOLONG or -EINVAL: it would be stored in a directory, which cannot have that name. The
 * caller holds the lock.
 */
int draft_check_stored_name(struct draft_node *dir, struct span name);
/*
 * Get the options for a node. Options of the leaf override those of its directories, which override
 * rules, which override the mount's, which override the format of a copied tree. tensor: name of a
 * tensor in a safetensors file, else empty. The caller holds the lock.
 */
int draft_save_opts(const struct draft_node *n, struct span tensor, struct save_opts *ret);
/* The same; locks the draft. */
int draft_options(const struct draft_node *n, struct span tensor, struct save_opts *ret);

/* ---- stores (draft.c) ---- */

/*
 * Make a kv for one array of the node's item. replicas: use the store for slices of ranks, if the
 * item has a separate one (an item with a directory per array has not). Locks the draft.
 */
int draft_leaf_kv(struct draft_node *n, bool replicas, struct kv **ret,
		  const struct item_store **ret_store);
/* Whether `store` is a store of the node's item. */
bool draft_has_store(struct draft_node *n, const struct item_store *store);
/* Whether `store` is the one for slices of ranks. */
bool draft_is_replicas(struct draft_node *n, const struct item_store *store);
/*
 * For commits: drop the store of an item that needs none of its contents. Its directory remains on
 * disk.
 */
void draft_drop_store(struct draft_node *item);
/* For commits: rename the directory of a store within the draft's directory. */
int draft_move_store(struct draft *d, struct draft_store *store, const char *to);

#endif
