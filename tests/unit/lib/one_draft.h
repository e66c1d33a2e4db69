/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_draft.h - the draft 7.tmp of a new directory, for tests of its names and contents.
 */
#ifndef PYTREEFS_ONE_DRAFT_H
#define PYTREEFS_ONE_DRAFT_H

#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/tmp_dir.h"

static char root[TMP_DIR_MAX];
static struct options options;
static struct ns *ns;
static struct draft *draft;

/* With these options of the mount. On a disk that is full now and then it tries a few times. */
static inline void one_draft_begin(const char *test, const char *const *set)
{
	int r = -ENOSPC;

	assert_int_equal(tmp_dir_make(root, test), 0);
	made_options(&options, set);
	assert_int_equal(ns_open(root, &options, &ns), 0);
	for (int i = 0; i < 50 && r == -ENOSPC; i++)
		r = draft_begin(&ns->drafts, span_str("7.tmp"), &draft);
	assert_int_equal(r, 0);
}

static inline void one_draft_end(void)
{
	draft_unref(take(draft));
	ns_close(take(ns));
	options_release(&options);
	assert_int_equal(tmp_dir_remove(root), 0);
}

#endif
