/* SPDX-License-Identifier: Apache-2.0 */
/* points.h - which of its points of failure a test tries. */
#ifndef PYTREEFS_POINTS_H
#define PYTREEFS_POINTS_H

#include <stdlib.h>

/*
 * The distance of the points: 1 with the environment variable `every`, n with TEST_LONG
 * (tests/run --all), else three times n.
 */
static inline unsigned points_step(const char *every, unsigned n)
{
	return getenv(every) ? 1 : getenv("TEST_LONG") ? n : 3 * n;
}

/*
 * The point after n: each of the first ones, then ever fewer, and more of them with TEST_LONG; each
 * with the environment variable `every`.
 */
static inline unsigned points_after(const char *every, unsigned n)
{
	return n + 1 + (getenv(every) ? 0 : n / (getenv("TEST_LONG") ? 64 : 16));
}

#endif
