/* SPDX-License-Identifier: Apache-2.0 */
/* lfs.c - recognize pointers of Git LFS. */
#include "core/base/lfs.h"

#include <assert.h>

#include "core/base/err.h"

static const char begins[] = "version https://git-lfs.github.com/spec/v";

static_assert(sizeof(begins) - 1 == LFS_START_BYTES, "every pointer begins so");

int lfs_check(const char *name, struct span start)
{
	if (start.n >= LFS_POINTER_MAX || !span_starts(start, span_str(begins)))
		return 0;
	return fail(-EUCLEAN,
		    "%s: a Git LFS pointer, not the file itself: 'git lfs pull' fetches it", name);
}
