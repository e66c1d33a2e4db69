/*
 * draft.h - a step that is being written through this process.
 *
 * A draft is a tree of names in memory: directories, and files whose contents
 * stream into encoded chunks while they are written (draft_file.h). On the disk
 * there is its directory, its lock, and the values. Names, kinds and options count
 * when it is committed.
 *
 * One lock protects the tree of names and all xattrs; each file has its own for
 * its contents. Lock order: a draft's lock before a file's. Neither is held while
 * waiting for the other kind of work: encoding takes only the file's.
 */
#ifndef PYTREEFS_DRAFT_H
#define PYTREEFS_DRAFT_H

#include <pthread.h>

#include "core/step/commit.h"
#include "handlers/options.h"

struct ns;
struct draft_file;

/* Values of one item, made when its first array is written. */
struct draft_store {
	struct store *store;
	char *dir;			/* below the draft's directory, at the moment */
	bool ocdbt;
};

struct draft_xattr {
	struct draft_xattr *next;
	char *name;			/* whole: "user.pytree.kind" */
	struct buf value;
};

struct draft_node {
	struct draft *draft;
	struct draft_node *parent;	/* NULL: the draft itself, or removed from it */
	char *name;
	bool is_dir, is_removed;
	uint64_t ino;
	struct timespec mtime;
	unsigned refs;
	struct draft_node **child;	/* in no order */
	size_t n_children, cap;
	struct draft_xattr *xattrs;
	struct draft_file *file;	/* of a file */
	struct draft_store item;	/* of an item: a child of the draft */
};

enum draft_life { DRAFT_OPEN, DRAFT_COMMITTING, DRAFT_COMMITTED, DRAFT_ABORTED };

struct draft {
	struct draft *next;		/* of the ns; protected by the ns's lock of drafts */
	struct ns *ns;
	char *name;			/* in the mount: "101.tmp" */
	struct draft_dir *dir;
	pthread_mutex_t lock;		/* protects all below, and all nodes */
	enum draft_life life;
	struct draft_node *root;
	uint64_t next_ino;
	unsigned n_stores;
	unsigned refs;			/* the ns's, and one for each node that is held from outside */
};

/* ---- drafts of a mount ---- */

/* `name` as the user spells it ("101.tmp"). -EINVAL, -EBUSY, -EEXIST as the design says. */
int draft_begin(struct ns *ns, struct span name, struct draft **ret);
/* The draft of that name, with a reference; NULL. */
struct draft *draft_find(struct ns *ns, struct span name);
/* Names of all drafts of this mount. */
int draft_each(struct ns *ns, int (*each)(void *arg, const char *name), void *arg);
void draft_unref(struct draft *d);
/*
 * Finalize as `final`: 0 only when the step would survive power loss. On failure the draft is as it
 * was. -EBUSY: a leaf is open for writing, named.
 */
int draft_commit(struct draft *d, struct span final);
/* Remove it from the mount and the disk. -ENOTEMPTY unless all names in it were removed, or force. */
int draft_abort(struct draft *d, bool force);
/* When the mount ends: drafts stay on the disk, abandoned. */
void drafts_release(struct ns *ns);

/* ---- the tree of names; all lock the draft ---- */

struct draft_node *draft_node_ref(struct draft_node *n);
void draft_node_unref(struct draft_node *n);
int draft_lookup(struct draft_node *dir, struct span name, struct draft_node **ret);
int draft_mkdir(struct draft_node *dir, struct span name, struct draft_node **ret);
/* -EEXIST with O_EXCL; an existing file is opened otherwise. -EINVAL: a name that no key has. */
int draft_create(struct draft_node *dir, struct span name, bool exclusive, struct draft_node **ret);
int draft_unlink(struct draft_node *dir, struct span name);
int draft_rmdir(struct draft_node *dir, struct span name);
/* Within one draft; replaces a file, as rename(2) does. */
int draft_rename(struct draft_node *from, struct span name, struct draft_node *to, struct span to_name,
		 bool exclusive);
/* value NULL: remove. -EINVAL for a value that user.pytree.* does not accept, -ENODATA. */
int draft_set_xattr(struct draft_node *n, const char *name, const struct span *value, int flags);
int draft_get_xattr(struct draft_node *n, const char *name, struct buf *ret);
/* Called with the draft's lock held: the value of user.pytree.NAME, or an empty span. */
struct span draft_xattr_value(const struct draft_node *n, const char *name);
/* Called with the lock held: path below the step, "default/params/w.npy". */
int draft_node_path(const struct draft_node *n, struct buf *ret);
/* Called with the lock held: options in force for a node; the leaf's own win over directories', rules, mount. */
int draft_save_opts(const struct draft_node *n, struct save_opts *ret);
/* The item (child of the draft) that a node is in; NULL for the draft itself. */
struct draft_node *draft_item_of(struct draft_node *n);
/* A kv for one leaf of the node's item; makes the item's store when it is the first. */
int draft_leaf_kv(struct draft_node *n, struct kv **ret);

/* ---- what the tree says, for commit and for reading `_METADATA` ---- */

struct draft_plan;
/* `_METADATA` of an item as it would be written now. Never fails for leaves that are not ready. */
int draft_metadata(struct draft_node *item, struct buf *ret);
/* `_CHECKPOINT_METADATA` as it is now. */
int draft_checkpoint_metadata(struct draft *d, struct buf *ret);

#endif
