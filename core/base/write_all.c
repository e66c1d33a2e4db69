/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_all.c - call write(2) until everything is written.
 */
#include "core/base/write_all.h"

int write_all(int fd, struct span s)
{
	while (s.n > 0) {
		ssize_t n = write(fd, s.p, s.n);

		if (n < 0 && errno != EINTR)
			return -errno;
		s = span_from(s, n > 0 ? (size_t)n : 0);
	}
	return 0;
}
