/* SPDX-License-Identifier: Apache-2.0 */
/*
 * without.pml - leaves out the condition of a protocol whose number is in the environment, as
 * WITHOUT. Then the model must find a violation; without any, none.
 */
byte without;

#define has(condition) (without != condition)
/* Not a condition: whether "no commit ever succeeds" holds, which would make the rest hold, too. */
#define NEVER_SUCCEEDS 99  /* must be refuted like a protocol that lacks a condition */
#define never_succeeds (without == NEVER_SUCCEEDS)

c_decl {
	\#include <stdlib.h>
}

inline leave_out()
{
	c_code {
		const char *number = getenv("WITHOUT");

		now.without = number ? atoi(number) : 0;
	}
}
