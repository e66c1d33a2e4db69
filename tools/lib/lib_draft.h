/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft.h - a draft of the library: its names (lib_draft_names.c), its contents
 * (lib_draft_put.c), its life (lib_draft.c).
 */
#ifndef PYTREEFS_LIB_DRAFT_H
#define PYTREEFS_LIB_DRAFT_H

#include "handlers/draft/draft_file.h"
#include "tools/convert/atomic_step.h"
#include "tools/lib/lib.h"

struct pytreefs_draft {
	struct cmd_args args;
	struct atomic_step step;
	bool is_item;
	pid_t pid;
};

/* "params/layer0/w", for messages; appended. */
int lib_key_text(const struct pytreefs_key *key, size_t n, struct buf *ret);
/* The node that is there under a key path, container or leaf; with a reference. */
int lib_draft_find(struct pytreefs_draft *d, const struct pytreefs_key *key, size_t n,
		   struct draft_node **ret);
/*
 * Make the node of a value, and the containers on the way; with a reference. -EEXIST: there is a
 * leaf already. A container may be there.
 */
int lib_draft_make(struct pytreefs_draft *d, const struct pytreefs_value *v,
		   struct draft_node **ret);
/* The dtype and the bytes of an array's or scalar's elements. */
int lib_value_elements(const struct pytreefs_value *v, enum dtype *ret, uint64_t *ret_bytes);

#endif
