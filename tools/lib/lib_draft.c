/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft.c - write a checkpoint.
 */
#include "tools/lib/lib.h"

static int not_yet(void)
{
	return (int)lib_end(fail(-ENOSYS, "writing is not implemented yet"));
}

int pytreefs_draft_begin(const char *path, const char *options, unsigned flags,
			 struct pytreefs_draft **ret)
{
	return not_yet();
}

int pytreefs_draft_put(struct pytreefs_draft *d, const struct pytreefs_value *value, size_t n,
		       const struct pytreefs_progress *progress)
{
	return not_yet();
}

int pytreefs_draft_attribute(struct pytreefs_draft *d, const struct pytreefs_key *key,
			     size_t n_keys, const char *attribute, const char *text)
{
	return not_yet();
}

int pytreefs_draft_stream(struct pytreefs_draft *d, const struct pytreefs_value *value,
			  struct pytreefs_writer **ret)
{
	return not_yet();
}

int pytreefs_writer_write(struct pytreefs_writer *w, const void *p, size_t n)
{
	return not_yet();
}

int pytreefs_writer_close(struct pytreefs_writer *w)
{
	return not_yet();
}

int pytreefs_draft_commit(struct pytreefs_draft *d, const struct pytreefs_progress *progress)
{
	return not_yet();
}

void pytreefs_draft_abort(struct pytreefs_draft *d)
{
}
