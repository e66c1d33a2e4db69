/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_priority.c - leaves that a commit encodes before all others: priority=GLOB.
 *
 * Contents are encoded while they are written, or when they are closed. The option matters for the
 * rest: leaves whose options have changed since, and leaves that could not be encoded.
 */
#include "core/base/err.h"
#include "handlers/commit/draft_commit.h"
#include "handlers/draft/draft_file.h"

int draft_is_priority(struct draft_node *n)
{
	const char *glob = n->draft->env->options->priority;
	enum name_ext ext = name_ext_of(span_str(n->name));
	auto_buf path = { 0 };

	if (!glob || (ext != NAME_EXT_NPY && ext != NAME_EXT_SAFETENSORS))
		return 0;
	return draft_selects(glob, n, span_of(NULL, 0), &path);
}

int draft_seal_priority(struct draft_node *dir, const char *glob)
{
	auto_draft_list child = { 0 };
	int r = glob && !draft_is_opaque(dir) ? draft_children(dir, &child) : 0;

	for (size_t i = 0; i < child.n && r >= 0; i++) {
		struct draft_node *n = child.node[i];

		r = n->is_dir ? draft_seal_priority(n, glob) : draft_is_priority(n);
		if (n->is_dir || r <= 0)
			continue;
		r = draft_file_seal(n->file);
		/* The regular pass seals the leaf again, and reports the error. */
		if (r < 0 && r != -ENOMEM) {
			err_clear();
			r = 0;
		}
	}
	return r;
}
