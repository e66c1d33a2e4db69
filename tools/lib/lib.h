/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib.h - what the files of the library share: the handle, and how an error gets to the caller.
 */
#ifndef PYTREEFS_LIB_H
#define PYTREEFS_LIB_H

#include "core/base/err.h"
#include "handlers/namespace/ns.h"
#include "tools/cli/cmd.h"
#include "tools/lib/pytreefs.h"

struct pytreefs {
	struct cmd_args args; /* options, and what source_open() asks for */
	struct source source;
	pid_t pid; /* of the process that opened it */
};

/*
 * Every public function begins with one of these and ends with lib_end(). 0, or -ECHILD in the
 * child of a fork. name is what an error will be about; may be NULL.
 */
int lib_begin(const struct pytreefs *ck, const char *name);
int lib_begin_pid(pid_t pid, const char *what, const char *name);
/* Remember the error, when r is one, for pytreefs_error(). Returns r. */
ssize_t lib_end(ssize_t r);
/* Once in a process: messages are retained, and not printed. */
void lib_init(void);
/* "a=b,c=d" into options; "\," is a comma of a value. text may be NULL. */
int lib_options(struct options *o, const char *text);

/* The node of a name: a reference. -ENOENT names it. */
int lib_node(struct pytreefs *ck, const char *name, struct node **ret);
/* The kind of a node that is not of a tree; of others PYTREEFS_UNKNOWN. */
enum pytreefs_kind lib_kind_of(const struct pytreefs *ck, struct node *n);
/* The same of a container or leaf, as far as its tree knows: an array may be a scalar. */
enum pytreefs_kind lib_kind_of_tree(const struct tree_node *t);

/* Calls the function of the caller, and says when the work is to end. */
struct lib_progress {
	const struct pytreefs_progress *p; /* or NULL */
	uint64_t total;
};
/* 0, or -ECANCELED. By the calling thread only. */
int lib_progress(void *arg, uint64_t done);

#endif
