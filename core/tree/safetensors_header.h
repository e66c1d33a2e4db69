/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_header.h - parse the header of a safetensors file: its tensors and their places. No
 * I/O.
 */
#ifndef PYTREEFS_SAFETENSORS_HEADER_H
#define PYTREEFS_SAFETENSORS_HEADER_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"

struct safetensor {
	struct span name;
	struct span type;        /* as it is spelled */
	struct array_type array; /* DTYPE_UNKNOWN: its elements have less than a byte */
	uint64_t begin, bytes;   /* relative to the data section */
};

struct safetensors {
	struct arena arena;
	struct safetensor *tensor; /* in the order of their data, which they cover without gaps */
	size_t n, cap;
	/* __metadata__ as a JSON object in Python's spelling; NULL when absent */
	const char *metadata;
	uint64_t data;  /* offset of the data section in the file */
	uint64_t bytes; /* size of the data section */
};

#define SAFETENSORS_HEADER_MAX 100000000 /* format: the library refuses larger ones */

/*
 * Parse the start of a file. Returns 1 and the header; 0 when more bytes are needed; -EUCLEAN when
 * it breaks the format (gaps, overlaps, sizes that do not match, duplicate names); -EOPNOTSUPP for
 * an unknown type; -EFBIG. Release with safetensors_release(). Verdicts are those of safetensors
 * 0.8.0, but for names that occur twice, of which that takes the last one, and more than
 * LIMIT_RANK axes.
 */
int safetensors_parse(struct span head, struct safetensors *ret);
void safetensors_release(struct safetensors *st);

#endif
