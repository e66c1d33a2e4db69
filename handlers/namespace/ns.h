/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns.h - one opened SOURCE as a file tree: the root of the namespace.
 */
#ifndef PYTREEFS_NS_H
#define PYTREEFS_NS_H

#include <pthread.h>

#include "core/step/ckpt.h"
#include "core/step/item.h"
#include "handlers/namespace/node.h"
#include "handlers/draft/draft_env.h"
#include "handlers/options/options.h"

/* Events that a mount handles. NULL members: ignored. Called by any thread, without locks. */
struct ns_listener {
	/* The kernel should forget a name of the root, or (name NULL) the root's listing. */
	void (*changed)(void *arg, const char *name);
	void *arg;
};

struct item_table;
struct broadcast;
struct watch;
struct whiteout;
struct node_subtree;

struct ns {
	struct ckpt *ckpt;
	const struct options *options; /* borrowed */
	struct node_table *nodes;
	struct node *root;   /* a reference */
	struct watch *watch; /* of a root; NULL for other shapes */
	struct ns_listener listener;
	struct timespec started;
	_Atomic uint64_t requests, requests_polled; /* of the kernel; counted by fs */
	atomic_flag said_unmarked;                  /* why a root in a bucket looks empty */

	/* Steps that are being written. Its lock protects whiteouts and views, too. */
	struct draft_env drafts;
	struct whiteout *whiteouts; /* names that are being removed one by one */
	struct node_subtree *views; /* of whole steps of the root */

	struct broadcast *broadcast; /* load_and_broadcast; else NULL */

	/* Opened items, so that those nobody uses can be dropped when there are many. */
	struct item_table *items;
	struct refusals refused; /* items and views, by name */
};

/* The directory for spill files that the options ask for; NULL: none. */
const char *ns_spill_dir(const struct options *options);
/* mkdir() of cache_dir=, for who gives up the right to do it later. */
int ns_make_cache_dir(const struct options *options);
/* The checkpoint alone, as the options say: for tools that look at what cannot be shown. */
int ns_ckpt(const char *source, const struct options *options, struct ckpt **ret);
/* What the options say of a source with a URL; borrowed of them. */
struct url_store_opts ns_store_opts(const struct options *options);
/* How much of a URL is a directory, by whole parts of its path, where one question tells
 * (store_reach()). */
int ns_reach(const char *url, const struct options *options, size_t *ret);
/* Validates SOURCE; makes no thread. */
int ns_open(const char *source, const struct options *options, struct ns **ret);
/*
 * Other users will read through it: symbolic links are not followed. Whoever may write in SOURCE
 * could make one to a step that only the mount's own user may read, and put it in place after
 * access was looked at.
 */
void ns_open_to_others(struct ns *ns);
/* Drafts are shared with the other ranks of a job. Serves their requests until ns_stop(). */
struct peers;
int ns_share(struct ns *ns, struct peers *peers);
/* Threads: workers, and the watcher of a root. After any fork. */
int ns_start(struct ns *ns, const struct ns_listener *listener);
/*
 * The mount is being ended, and others may still work in it: a commit that waits for other ranks
 * fails at once with -ECANCELED. Any thread may call it, before ns_stop().
 */
void ns_interrupt(struct ns *ns);
/* End the threads; nodes and files may still be held. Also done by ns_close(). */
void ns_stop(struct ns *ns);
/* No node but the root may be held. Accepts NULL. */
void ns_close(struct ns *ns);
DEFINE_AUTO(ns, struct ns, ns_close);

/* The opened item at path below SOURCE: a reference. Opened once, shared by all that ask. */
int ns_item(struct ns *ns, const char *path, struct item **ret);
/* Forget what is below path (a step that went away). */
void ns_drop_items(struct ns *ns, const char *path);
/* Close the data files of items that were forgotten, once no file of their step is open. By the
 * watcher only. True when some are still open. */
bool ns_close_gone(struct ns *ns);
/* Those whose path means something else by now; the listener is told of their steps. */
void ns_drop_changed_items(struct ns *ns);
/* The same for files of whole steps: as long as the kernel knows one, the files of its step are
 * open. */
void ns_drop_changed_views(struct ns *ns);
/*
 * Close items that nobody holds. When those that are held are too many, and ask is set, the
 * listener is told of the steps that were used the longest ago, so that the kernel lets go of them.
 * By the watcher only. True: there are still too many.
 */
bool ns_trim_items(struct ns *ns, bool ask);
int item_table_new(struct item_table **ret);
/* No item may be held any more but by the table. Accepts NULL. */
void item_table_free(struct item_table *t);

/* Fill in a directory or file of ours. Whoever may not read the source may not read it through the
 * mount. */
void ns_stat_dir(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		 struct stat *ret);
void ns_stat_file(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		  uint64_t size, uint64_t stored, struct stat *ret);
/* The top of a mount in which drafts are made: as SOURCE is. mtime NULL: SOURCE's. */
int ns_stat_root(const struct ns *ns, const struct timespec *mtime, struct stat *ret);

/* Counters and effective options as JSON documents: `.pytreefs/stats`, config, version. */
int ns_stats_json(struct ns *ns, struct buf *ret);
int ns_config_json(struct ns *ns, struct buf *ret);
int ns_version_json(struct buf *ret);

/* Nodes of each kind; each in its own file. */
int node_root_new(struct ns *ns, struct node **ret);
/* A step or composite item: the directory at path (below SOURCE) and the items in it. dir NULL: the
 * root. */
int node_step_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret);
/* The top of a PyTree item. */
int node_item_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret);
/*
 * A stored file or directory as it is. of_item: inside an item, where markers are hidden.
 */
int node_stored_new(struct node *dir, struct span name, const char *path, const struct stat *st,
		    bool of_item, struct node **ret);
/* A file or directory that is shown as it is stored. */
bool node_is_stored(const struct node *n, bool *ret_is_dir);
/* A file at the top of an item that is not a tree. */
bool node_is_of_opaque(const struct node *n);
/* Whether path below SOURCE is still the directory that it was. */
bool ns_is_same(struct ns *ns, const char *path, const struct file_id *id);

/* Seconds that the kernel trusts names: of steps, and inside committed steps. */
#define NS_ROOT_TTL 1.0
#define NS_STEP_TTL 86400.0 /* of names; attributes: NODE_ATTR_TTL */
/* `.pytreefs`. */
int node_control_new(struct node *dir, struct span name, struct node **ret);

#endif
