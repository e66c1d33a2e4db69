/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib.h - declarations shared by the files of the library: the handle, and the way of an error to
 * the caller.
 */
#ifndef PYTREEFS_LIB_H
#define PYTREEFS_LIB_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/err.h"
#include "handlers/namespace/ns.h"
#include "tools/cli/cmd.h"
#include "tools/lib/pytreefs.h"

struct pytreefs {
	struct cmd_args args; /* options, and the arguments of source_open() */
	struct source source;
	pid_t pid; /* the process that opened it */
};

/*
 * Every public function begins with one of these and ends with lib_end(). 0, or -ECHILD in the
 * child of a fork. name: the subject of a possible error; may be NULL.
 */
int lib_begin(const struct pytreefs *ck, const char *name);
int lib_begin_pid(pid_t pid, const char *what, const char *name);
/* Store the error for pytreefs_error() if r is one. Returns r. */
ssize_t lib_end(ssize_t r);
/* Initialize the process once: log messages are stored, not printed. */
void lib_init(void);
/* Parse "a=b,c=d" into options; "\," is a comma in a value. text may be NULL. */
int lib_options(struct options *o, const char *text);

/*
 * Get the node of a name, with a reference. The message of -ENOENT names it. -ESTALE: what was
 * opened is not there any more.
 */
int lib_node(struct pytreefs *ck, const char *name, struct node **ret);
/*
 * Finds many leaves: the directory of the last one mostly contains the next one, too, and is not
 * looked up again. Any thread may find leaves.
 */
struct node_leaf;
struct lib_finder {
	struct pytreefs *ck;
	pthread_mutex_t lock; /* protects the members below */
	struct node *dir;     /* NULL: none yet */
	char *dir_name;
};
void lib_finder_init(struct lib_finder *f, struct pytreefs *ck);
void lib_finder_release(struct lib_finder *f);
/*
 * A leaf, with a reference to its node. -EINVAL when it is none, -ESTALE when it is of another
 * version than `version`; 0: any.
 */
int lib_find_leaf(struct lib_finder *f, const char *name, uint64_t version, struct node **ret,
		  struct node_leaf **ret_leaf);
/* Returns pytreefs_node.version for an item or step, and for the one that a node is in. */
uint64_t lib_version(const struct file_id *id);
uint64_t lib_version_of(struct node *n);
/* Returns the kind of a node that is not in a tree; PYTREEFS_UNKNOWN for other nodes. */
enum pytreefs_kind lib_kind_of(struct node *n);
/*
 * Returns the kind of a container or leaf by its tree alone: an array may turn out to be a scalar.
 */
enum pytreefs_kind lib_kind_of_tree(const struct tree_node *t);

/* Calls the caller's progress function, and checks for cancellation. */
struct lib_progress {
	const struct pytreefs_progress *p; /* or NULL */
	uint64_t total;
};
/* Returns 0 or -ECANCELED. Only the calling thread may call this. */
int lib_progress(void *arg, uint64_t done);

/* A call that takes long. */
struct lib_work {
	atomic_ullong done; /* bytes that were taken */
	atomic_bool stop;   /* its caller wants it to end */
};
/*
 * Run fn(arg) in a thread of its own; the calling thread reports progress until it has ended. An
 * error of the caller's function sets w->stop, which fn() has to look at.
 */
int lib_call(struct lib_work *w, const struct lib_progress *progress, int (*fn)(void *arg),
	     void *arg);
/* -ECANCELED if the struct lib_work that is arg is to end: write_env.check. */
int lib_work_check(void *arg);

#endif
