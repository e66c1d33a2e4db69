/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_list.h - the tensors and texts of a safetensors file that is being made: for the view
 * D.safetensors, and for an export.
 */
#ifndef PYTREEFS_SAFETENSORS_LIST_H
#define PYTREEFS_SAFETENSORS_LIST_H

#include "handlers/format/safetensors.h"
#include "handlers/subtree/tree_manifest.h"

struct safetensors_list {
	/* Set by the caller, who may also say that the arena is metered. */
	const struct subtree *st;
	struct tree_manifest_only only;
	struct tree_manifest_casts casts;
	const char *separator;
	struct arena arena; /* memory of all that follows, but for the manifest */

	struct st_tensor *tensor;
	struct st_text *text; /* strings, then the manifest unless it is empty */
	size_t n, n_texts;
	struct buf manifest;
};

/* Make room for that many leaves. */
int safetensors_list_begin(struct safetensors_list *l, size_t leaves);
/*
 * Add a leaf that is an array, with its dtype in the file, or a string; does nothing for another
 * one. id: as in struct st_tensor. The path and the text are borrowed.
 */
int safetensors_list_add(struct safetensors_list *l, const struct leaf_info *info, struct span path,
			 size_t id);
/* Add the manifest, after all leaves. */
int safetensors_list_end(struct safetensors_list *l);
void safetensors_list_release(struct safetensors_list *l);
#define auto_safetensors_list \
	__attribute__((cleanup(safetensors_list_release))) struct safetensors_list

#endif
