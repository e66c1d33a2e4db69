/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns.h - an opened SOURCE as a file tree, with the root of the namespace.
 */
#ifndef PYTREEFS_NS_H
#define PYTREEFS_NS_H

#include <pthread.h>

#include "core/step/ckpt.h"
#include "core/step/item.h"
#include "handlers/namespace/node.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/draft/draft_env.h"
#include "handlers/options/options.h"

/* Events for a mount. NULL members are ignored. Any thread may call them, without locks. */
struct ns_listener {
	/* The kernel should drop a name of the root, or, if name is NULL, the root's listing. */
	void (*changed)(void *arg, const char *name);
	void *arg;
};

struct item_table;
struct memory_files;
struct broadcast;
struct watch;
struct node_subtree;

#define NS_OPERATIONS 64 /* opcodes of FUSE are less */
/* Limits of the classes of durations, in nanoseconds: 100 us, 1 ms ... 100 s. */
#define NS_DURATION_FIRST 100000
#define NS_DURATION_FACTOR 10
#define NS_DURATIONS 7
struct ns_operation {
	const char *name;                        /* NULL: not counted by itself */
	_Atomic uint64_t took[NS_DURATIONS + 1]; /* requests in each class; the last has no limit */
	_Atomic uint64_t nanoseconds, errors;    /* of all of them */
};

struct ns {
	struct ckpt *ckpt;
	const struct options *options; /* borrowed */
	struct node_table *nodes;
	struct node *root;   /* a reference */
	struct watch *watch; /* for a root of steps; else NULL */
	struct ns_listener listener;
	struct timespec started;
	/* requests of the kernel, and files that it reads directly; counted by fs */
	_Atomic uint64_t requests, requests_polled, requests_uring, passed_through;
	_Atomic uint64_t errors; /* failed requests that were logged; counted by fs */
	struct ns_operation operation[NS_OPERATIONS]; /* counted by fs */
	const char *mountpoint;                       /* borrowed; set by fs, else NULL */
	_Atomic uint64_t commits, failed_commits;
	/* the log already has the reason why a root in a bucket looks empty */
	atomic_flag said_unmarked;
	/* the log already names a checkpoint that is not a step of the root */
	atomic_flag said_others;

	/* Drafts. The lock of this struct also protects views. */
	struct draft_env drafts;
	struct peers *peers;        /* of the job that it is a rank of; borrowed; NULL: of none */
	struct node_subtree *views; /* views of whole steps of the root */

	struct broadcast *broadcast; /* for load_and_broadcast; else NULL */

	struct memory_files *memory; /* NULL: none */

	/* Opened items. The table closes unused ones when there are many. */
	struct item_table *items;
};

/* Returns the directory for spill files from the options; NULL: none. */
const char *ns_spill_dir(const struct options *options);
/* Create cache_dir=, for a process that gives up the right to create it later. */
int ns_make_cache_dir(const struct options *options);
/*
 * Open only the checkpoint, with the options, for tools that also work on checkpoints that cannot
 * be shown.
 */
int ns_ckpt(const char *source, const struct options *options, struct ckpt **ret);
/* Returns the options for a source with a URL; they borrow from `options`. */
struct url_store_opts ns_store_opts(const struct options *options);
/*
 * Get the length of the longest prefix of a URL that is a directory, in whole components, if one
 * request can tell (url_search()). options->search gets the store that ns_open() takes.
 */
int ns_search(const char *url, const struct options *options, size_t *ret);
/*
 * Get the path of a SOURCE in a step that is called `latest`, or by its number: ROOT/1000/state for
 * ROOT/step_00001000/state. Allocated; -ENOENT, without a note: there is none such.
 */
int ns_find_step(const char *path, const struct options *options, char **ret);
/* Open and check SOURCE. Starts no threads. */
int ns_open(const char *source, const struct options *options, struct ns **ret);
/*
 * Warn about a directory in which nothing was found. Steps may be made there, as an explicit
 * shape=root says, which avoids the warning; more often the path is wrong, or a disk is missing.
 */
void ns_warn_if_empty(const struct ns *ns);
/* Warn of the first link in a local SOURCE if it will not be followed: others may be like it. */
void ns_warn_of_links(const struct ns *ns);
/* Warn about a file system that does not promise what a commit needs (draft_uploads_remark()). */
void ns_warn_of_bucket(const struct ns *ns);
/* Share drafts with the other ranks of a job. Serves their requests until ns_stop(). */
struct peers;
int ns_share(struct ns *ns, struct peers *peers);
/*
 * Make the directory of files in memory (memory_files.h), if options allow it and this process may:
 * before it gives up rights. Without it, leaves are read by requests.
 */
void ns_make_memory_files(struct ns *ns);
/* Start the threads: workers, and the watcher of a root. Call after any fork. */
int ns_start(struct ns *ns, const struct ns_listener *listener);
/*
 * The mount is being ended, but requests may be in progress: let a commit that waits for other
 * ranks fail at once with -ECANCELED. Any thread may call this before ns_stop().
 */
void ns_interrupt(struct ns *ns);
/* End the threads. Nodes and files may still be held. ns_close() calls this, too. */
void ns_stop(struct ns *ns);
/* No node but the root may be held any more. Accepts NULL. */
void ns_close(struct ns *ns);
DEFINE_AUTO(ns, struct ns, ns_close);

/* Notify the listener, if there is one. */
static inline void ns_changed(const struct ns *ns, const char *name)
{
	if (ns->listener.changed)
		ns->listener.changed(ns->listener.arg, name);
}

/* Get the opened item at a path below SOURCE, with a reference. It is opened once and shared. */
int ns_item(struct ns *ns, const char *path, struct item **ret);
/* A mark of the present documents of an item, and (ret_bytes may be NULL) their total size. */
uint64_t ns_item_mark(struct ns *ns, const char *path, uint64_t *ret_bytes);
/* A mount logs what the rules of transforms= leave out of an item that it opens. */
void ns_say_left_out(struct ns *ns, const struct item *item);
/* Drop all items below a path, which is a step that was removed. */
void ns_drop_items(struct ns *ns, const char *path);
/*
 * Close the data files of dropped items once no file of their step is open. For the watcher only.
 * Returns true when some are still open.
 */
bool ns_close_gone(struct ns *ns);
/*
 * Drop items whose path is a different checkpoint by now, and notify the listener of their steps.
 */
void ns_drop_changed_items(struct ns *ns);
/*
 * Like ns_drop_changed_items(), for files of whole steps. The files of a step remain open as long
 * as the kernel knows a view of it.
 */
void ns_drop_changed_views(struct ns *ns);
/*
 * Close items that are not held. If too many are held and `ask` is set, notify the listener of the
 * least recently used steps, so that the kernel drops them. For the watcher only. Returns true when
 * there are still too many.
 */
bool ns_trim_items(struct ns *ns, bool ask);
int item_table_new(struct item_table **ret);
/* Only the table may hold items. Accepts NULL. */
void item_table_free(struct item_table *t);

/*
 * Fill in the attributes of a directory or file of the program. Users who may not read the source
 * may not read it through the mount.
 */
void ns_stat_dir(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		 struct stat *ret);
void ns_stat_file(const struct ns *ns, const struct access *a, const struct timespec *mtime,
		  uint64_t size, uint64_t stored, struct stat *ret);
/*
 * Fill in the attributes of the top of a mount that takes drafts, from SOURCE. mtime NULL: that of
 * SOURCE.
 */
int ns_stat_root(const struct ns *ns, const struct timespec *mtime, struct stat *ret);

/* Print counters, effective options and version as JSON documents, for `.pytreefs`. */
int ns_stats_json(struct ns *ns, struct buf *ret);
/* The same counters, and those of operations, in the text format of Prometheus. */
int ns_metrics(struct ns *ns, struct buf *ret);
int ns_config_json(struct ns *ns, struct buf *ret);
int ns_version_json(struct ns *ns, struct buf *ret);

/* Constructors of nodes, each in the file of its kind. */
int node_root_new(struct ns *ns, struct node **ret);
/*
 * A step or composite item: the directory at `path` (below SOURCE) and its items. dir NULL: it is
 * the root.
 */
int node_step_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret);
/* The top of a PyTree item. */
int node_item_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret);
/* The role of a stored file or directory, and of everything below it. */
enum stored_role {
	STORED_BACKUP,   /* below `.pytreefs/stored`: with its modes, and only what is committed */
	STORED_DOCUMENT, /* `_METADATA` and `_CHECKPOINT_METADATA`, which a draft generates */
	STORED_LEAF,     /* the directory of a leaf of an unknown type */
	STORED_OPAQUE,   /* an item that is not a tree: a copy has every file of it */
	STORED_OTHER     /* a file or directory that lies beside the arrays of an item */
};
/* A stored file or directory, unchanged. */
int node_stored_new(struct node *dir, struct span name, const char *path, const struct stat *st,
		    enum stored_role role, struct node **ret);
/* Whether the node is a file or directory that is shown unchanged. */
bool node_is_stored(const struct node *n, bool *ret_is_dir);
/*
 * Whether the directory SOURCE was removed since it was opened. It then lists nothing, also when
 * another one has its name by now.
 */
bool ns_is_gone(struct ns *ns);
/* -ESTALE, with a note, when it was. */
int ns_check_there(struct ns *ns);
/* The role of a node that is shown unchanged: 1 and the role, or 0. */
int node_stored_role(const struct node *n, enum stored_role *ret);
/*
 * Append the path of a leaf in its tree, as names: 1 if the tree is a step of a root, 0 if it is an
 * item. -ENODATA: it is not a leaf of a tree.
 */
int node_path_in_tree(const struct node *n, struct buf *ret);
/* Whether a path below SOURCE is still the directory with that id. */
bool ns_is_same(struct ns *ns, const char *path, const struct file_id *id);

/*
 * Seconds for which the kernel may cache names: those of steps, and those inside committed steps.
 */
#define NS_ROOT_TTL 1.0
#define NS_STEP_TTL 86400.0 /* for names; for attributes: NODE_ATTR_TTL */
/* The directory `.pytreefs`. */
int node_control_new(struct node *dir, struct span name, struct node **ret);

#endif
