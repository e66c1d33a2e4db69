/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_header.h - the header of a safetensors file, read: which tensors there are, and
 * where. No I/O.
 */
#ifndef PYTREEFS_SAFETENSORS_HEADER_H
#define PYTREEFS_SAFETENSORS_HEADER_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"

struct safetensor {
	struct span name;
	enum dtype dtype;
	unsigned rank;
	const uint64_t *shape;
	uint64_t begin, bytes; /* relative to the data section */
};

struct safetensors {
	struct arena arena;
	struct safetensor *tensor; /* in the order of their data, which they tile */
	size_t n;
	const char *metadata; /* __metadata__ as a JSON object in Python's spelling; NULL: none */
	uint64_t data;        /* offset of the data section in the file */
	uint64_t bytes;       /* of the data section */
	uint64_t charged;     /* to the meter, for tensor */
};

#define SAFETENSORS_HEADER_MAX 100000000 /* format: the library refuses more */

/*
 * Parse the start of a file: 1 and the header; 0 when more bytes are needed; -EUCLEAN when it
 * breaks the format (gaps, overlaps, sizes that do not fit, a name twice); -EOPNOTSUPP for a type
 * that we do not have; -EFBIG. Release with safetensors_release().
 */
int safetensors_parse(struct span head, struct safetensors *ret);
void safetensors_release(struct safetensors *st);

#endif
