/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft.h - a draft of the library: begin and end (lib_draft.c), names (lib_draft_names.c),
 * contents (lib_draft_put.c).
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
	uint64_t bytes;       /* of all values that were put */
	struct lib_work work; /* of the call in progress */
};

/* Append a key path for messages: "params/layer0/w". */
int lib_key_text(const struct pytreefs_key *key, size_t n, struct buf *ret);
/* Prefix the note of r with that path. Returns r. */
int lib_at_key(int r, const struct pytreefs_key *key, size_t n);
/* Get the node at a key path, a container or leaf, with a reference. */
int lib_draft_find(struct pytreefs_draft *d, const struct pytreefs_key *key, size_t n,
		   struct draft_node **ret);
/*
 * Create the node of a value, and its containers, with a reference. -EEXIST: the leaf exists. An
 * existing container is accepted.
 */
int lib_draft_make(struct pytreefs_draft *d, const struct pytreefs_value *v,
		   struct draft_node **ret);
/* Get the dtype and the size of the elements of an array or scalar. */
int lib_value_elements(const struct pytreefs_value *v, enum dtype *ret, uint64_t *ret_bytes);

#endif
