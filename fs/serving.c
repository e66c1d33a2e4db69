/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serving.c - the only thread-local variable of fs.
 */
#include "fs/serving.h"

struct serving *serving(void)
{
	static _Thread_local struct serving here = { .read_at = INT64_MAX };

	return &here;
}
