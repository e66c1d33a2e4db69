/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.h - a step that is being written through this process.
 *
 * A draft is a tree of names in memory: directories, and files whose contents
 * stream into encoded chunks while they are written (draft_file.h). On the disk
 * there is its directory, its lock, and the values. Names, kinds and options count
 * when it is committed.
 *
 * One lock protects the tree of names and all xattrs; each file has its own for
 * its contents. Lock order: a file's lock before its draft's, so that contents can
 * look at names and options; whoever walks the tree takes references first and
 * looks at contents without the draft's lock.
 */
#ifndef PYTREEFS_DRAFT_H
#define PYTREEFS_DRAFT_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/commit/commit.h"
#include "core/job/collective.h"
#include "core/step/access.h"
#include "handlers/draft/draft_env.h"

struct draft_file;
struct step_upload;

/* Where the arrays of one item go, made when its first one is written. */
struct draft_store {
	struct store *store;
	char *dir;           /* its directory below the draft's, at the moment */
	unsigned first_leaf; /* of the next store: one that was dropped may have left its leaves */
};

struct draft_xattr {
	struct draft_xattr *next;
	char *name; /* after "user.pytree.": "kind", "save.zarr" */
	struct buf value;
};

/* A name may be read by anyone who holds the node, without the lock, so a rename keeps the old one.
 */
struct draft_name {
	struct draft_name *older;
	char text[];
};

/* A directory or file of a draft. Its draft must be held while a node is. */
struct draft_node {
	struct draft *draft;
	struct draft_node *parent; /* NULL: the draft itself, or a name that was removed */
	const char *name;          /* the newest of names */
	struct draft_name *names;
	bool is_dir;
	bool from_opaque;      /* of a file: copied from an item that is not a tree */
	bool generated_hidden; /* its generated file was removed, and not written since */
	uint64_t ino;
	struct timespec mtime;
	unsigned refs;             /* the tree's, and of those who work with it */
	struct draft_node **child; /* by name */
	size_t n_children, cap;
	struct draft_xattr *xattrs;
	struct draft_file *file; /* of a file */
	struct draft_store item; /* of an item: a child of the draft */
	struct draft_store
		replicas; /* the same, of what ranks write in slices (replica_parallel_separate) */
	struct buf hint;  /* of an item, or the draft: the generated file as a program wrote it */
	unsigned hint_writers;           /* who is still writing that */
	uint64_t hint_at, hint_removals; /* the draft's changes and removals when it was written */
	struct timespec hint_mtime;
	uint64_t compared_at; /* the draft's changes, and one, when it was compared with what is
				 there; 0: never */
	bool hint_agrees;     /* the result: it says what is there */
	int hint_dtype;       /* of a leaf: enum dtype of the one that it was copied from */
	bool hint_jax;        /* the same: it is recorded as jax.Array */
	struct buf hint_impl; /* the same, of a PRNG key: its implementation */
	bool has_hint_sha256; /* the same: its item records this of its value */
	uint8_t hint_sha256[32];
};

enum draft_life { DRAFT_OPEN, DRAFT_COMMITTING, DRAFT_GONE };

struct draft {
	struct draft *next; /* of the env; protected by the env's lock of drafts */
	struct draft_env *env;
	char *name;       /* in the mount: "101.tmp" */
	char *rules_from; /* of a tree that is a checkpoint: the item it is made of, for rules; or
			     NULL */
	struct draft_dir *dir;
	struct step_upload *upload;      /* its place in a bucket; NULL: none, or a commit failed */
	struct collective_member member; /* of a draft that ranks share */
	bool is_item;                    /* in a mount of a step: one item, its tree at the top */
	bool any_name;                   /* its final name need not be a step's */
	atomic_uint refs;
	pthread_mutex_t lock; /* protects all below, and all nodes */
	enum draft_life life;
	struct draft_node *root;
	uint64_t next_ino;
	uint64_t changes;  /* of names, contents and xattrs */
	uint64_t removals; /* of them: a directory, or a file that may be a leaf, went away */
	unsigned n_stores;
	struct access access; /* of its directory on the disk, as found at access_at */
	int64_t access_at;    /* clock_ns(); 0: never */
};

/* ---- drafts of a mount (draft.c) ---- */

/*
 * Begin the draft `name` as the user spells it ("101.tmp"). -EINVAL: not a name of a draft; -EBUSY:
 * a live mount holds it, this one too; -EEXIST: a temporary directory of another program.
 */
int draft_begin(struct draft_env *env, struct span name, struct draft **ret);
/* For tools: a checkpoint of any name, of items or being one itself. */
int draft_begin_as(struct draft_env *env, struct span final, bool is_item, struct draft **ret);
/* The draft of that name, with a reference; or NULL. */
struct draft *draft_find(struct draft_env *env, struct span name);
/* One call for each, without locks. */
int draft_each(struct draft_env *env, int (*each)(void *arg, struct draft *d), void *arg);
struct draft *draft_ref(struct draft *d);
/* Accepts NULL. */
void draft_unref(struct draft *d);
/*
 * Finalize as `final`: 0 only when the step would survive a power loss. On failure the draft is as
 * it was. -EBUSY: a leaf is open for writing; -ECANCELED: one is malformed, or the draft is empty;
 * -EPERM: final is not a name of a step; -EEXIST; -ETIMEDOUT.
 */
int draft_commit(struct draft *d, struct span final);
/* Remove it from the mount and the disk; -ENOTEMPTY while there are names in it, unless force. */
int draft_abort(struct draft *d, bool force);
/* When the mount ends: drafts stay on the disk, abandoned. */
void drafts_release(struct draft_env *env);
/*
 * Who may read and write it: as its directory on the disk has it, or had it ACCESS_FRESH_NS ago at
 * most: each program that writes a file asks several times.
 */
int draft_access(struct draft *d, struct access *ret);
/* Whether the draft of n may be read, or written to: -ESTALE after its end, -EBUSY in a commit. */
int draft_check_life(const struct draft_node *n, bool writes);
/* Of the life; for draft_commit.c. */
void draft_end(struct draft *d);
DEFINE_AUTO(draft, struct draft, draft_unref);

/* ---- the tree of names (draft_node.c); all lock the draft ---- */

struct draft_node *draft_node_ref(struct draft_node *n);
void draft_node_unref(struct draft_node *n);
/* It was changed just now. */
void draft_touch(struct draft_node *n);
/* ret has a reference, here and below. */
int draft_lookup(struct draft_node *dir, struct span name, struct draft_node **ret);
/* The children in order of their names, each with a reference; free the array. */
int draft_children(struct draft_node *dir, struct draft_node ***ret, size_t *ret_n);
int draft_mkdir(struct draft_node *dir, struct span name, struct draft_node **ret);
/* -EINVAL: no key has such a name; -EEXIST: there is one, or an item of that name. */
int draft_create(struct draft_node *dir, struct span name, struct draft_node **ret);
int draft_unlink(struct draft_node *dir, struct span name);
int draft_rmdir(struct draft_node *dir, struct span name);
/* Within one draft; replaces a file, as rename(2) does, but for no_replace. */
int draft_rename(struct draft_node *from, struct span name, struct draft_node *to,
		 struct span to_name, bool no_replace);
/* Whether an item may be called that. -EINVAL: Orbax keeps the name to itself. */
int draft_check_item_name(struct span name);
/* Free the tree; nobody holds the draft any more. */
void draft_nodes_free(struct draft_node *n);
int draft_node_new(struct draft *d, struct draft_node *parent, struct span name, bool is_dir,
		   struct draft_node **ret);
/* Called with the lock held: path below the step, "default/params/w.npy". */
int draft_node_path(const struct draft_node *n, struct buf *ret);
/* Called with the lock held: the item (a child of the draft) that a node is in, or is; NULL for the
 * draft. */
struct draft_node *draft_item_of(struct draft_node *n);

/* ---- xattrs and options (draft_xattr.c) ---- */

/* name is whole ("user.pytree.kind"); value NULL: remove. -EINVAL says what is accepted;
 * -EOPNOTSUPP. */
int draft_set_xattr(struct draft_node *n, const char *name, const struct span *value, int flags);
/* name after "user.pytree.". -ENODATA. */
int draft_get_xattr(struct draft_node *n, const char *name, struct buf *ret);
/* What the item of the leaf that is being copied to n records of its value; NULL: nothing. */
void draft_hint_sha256(struct draft_node *n, const uint8_t *sha256);
int draft_list_xattr(struct draft_node *n, struct buf *ret);
/* Called with the lock held: the value of user.pytree.NAME; p NULL when it is not set. */
struct span draft_xattr_value(const struct draft_node *n, const char *name);
/* The same as a word, without the quotes of JSON. */
struct span draft_xattr_word(const struct draft_node *n, const char *name);
/* Called with the lock held: whether the node is in a directory that is stored byte for byte. */
bool draft_is_opaque(const struct draft_node *n);
/* Whether a value of user.pytree.namedtuple is one. -EINVAL says what is accepted. (draft_rich.c) */
int draft_check_namedtuple(struct span value);
/*
 * What rules are matched against: the path without extensions and views, and how many of its names
 * may be left out in front. Called with the lock held.
 */
int draft_rule_path(const struct draft_node *n, struct span tensor, struct buf *ret,
		    unsigned *ret_skip);
/* Rules for a tree that is a checkpoint mean what they do in a mount, where it is an item: "state",
 * "state/params". */
int draft_rules_from(struct draft *d, struct span item);
/* Whether priority= chooses a leaf of arrays: 1 or 0, or an error. Takes the lock. */
int draft_is_priority(struct draft_node *n);
/*
 * Called with the lock held: whether an array of that file name in dir can be stored as the options
 * in force ask. -ENAMETOOLONG or -EINVAL: it would be a directory, and none can be called so.
 */
int draft_check_stored_name(struct draft_node *dir, struct span name);
/* Encode the leaves below dir whose path matches, before a commit looks at all. glob NULL: none. */
int draft_seal_priority(struct draft_node *dir, const char *glob);
/*
 * Called with the lock held: the options in force for a node. The leaf's own win over its
 * directories', those over rules, those over the mount's. tensor: of a safetensors file, else empty.
 */
int draft_save_opts(const struct draft_node *n, struct span tensor, struct save_opts *ret);

/* ---- stores (draft.c) ---- */

/*
 * A kv for one array of the node's item. replicas: in the database for what ranks write in slices,
 * where there is one (an item in directories has one store). Locks the draft.
 */
int draft_leaf_kv(struct draft_node *n, bool replicas, struct kv **ret,
		  const struct store **ret_store);
/* Whether that is a store of the node's item. */
bool draft_has_store(struct draft_node *n, const struct store *store);
/* Whether it is the one for what ranks write in slices. */
bool draft_is_replicas(struct draft_node *n, const struct store *store);
/* For commits: the draft needs nothing that is in the item's store, whose directory is left over. */
void draft_drop_store(struct draft_node *item);
/* For commits: the directory of a store gets another name in the draft's. */
int draft_move_store(struct draft *d, struct draft_store *store, const char *to);

/* ---- what generated files show (draft_shown.c); all lock the draft ---- */

/* The generated file of a directory, and its time: generated now, or as a program wrote it while
 * that says the same. */
int draft_generated_text(struct draft_node *dir, struct buf *ret, struct timespec *ret_mtime);
/* A program writes it: its handle's flag is set. */
void draft_hint_open(struct draft_node *dir, atomic_bool *open);
/* It has closed it, which the flag says then: the text is as new as the draft. Nothing, if it was
 * not set. */
void draft_hint_close(struct draft_node *dir, atomic_bool *open);
/* It was written under another name, and last changed then. */
void draft_hint_renamed(struct draft_node *dir, const struct timespec *mtime);
/* utimens(2) of a node, or of its generated file: remembered until its contents change. */
void draft_set_mtime(struct draft_node *n, bool generated, const struct timespec *mtime);

/* ---- generated files (draft_tree.c) ---- */

/* Whether a directory of the draft is an item that will be a tree: not bytes as they are, and not a
 * plugin's. */
bool draft_is_tree(const struct draft_node *item);
/* Called with the lock held: the generated file of a directory, or NULL. */
const char *draft_generated_name(const struct draft_node *dir);
/* Whether it is that; the rest locks the draft. */
bool draft_is_generated(struct draft_node *dir, struct span name);
/* A name that would be generated, were it not hidden. */
bool draft_would_generate(struct draft_node *dir, struct span name);
/* Shown, or not any more: tar takes a file away before it writes it. */
void draft_hide_generated(struct draft_node *dir, bool hide);
/* `_METADATA` of an item as it would be written now; leaves that are not whole yet are in it, too.
 * -ENOENT: of no tree. */
int draft_metadata(struct draft_node *item, struct buf *ret);
/* `_CHECKPOINT_METADATA` as it is now. */
int draft_checkpoint_metadata(struct draft *d, struct buf *ret);

#endif
