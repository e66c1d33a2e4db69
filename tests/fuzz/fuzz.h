/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - functions for all fuzz targets. A property that does not hold aborts, which both
 * libFuzzer and the replay report.
 */
#ifndef PYTREEFS_FUZZ_H
#define PYTREEFS_FUZZ_H

#include <stdint.h>
#include <stdlib.h>

#include "core/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A function whose comparisons libFuzzer does not learn from. */
#if defined(__clang__)
#define NOT_TRACED __attribute__((no_sanitize("coverage")))
#else
#define NOT_TRACED
#endif

static inline void must(bool holds)
{
	if (!holds)
		abort();
}

#endif
