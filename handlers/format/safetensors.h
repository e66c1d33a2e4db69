/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - the header of a safetensors file: structs -> bytes; core/tree reads one. No I/O.
 *
 * Data lies after the header in the order of the official writer: by data type, the widest first,
 * then by name; so each tensor is aligned to its element size.
 */
#ifndef PYTREEFS_SAFETENSORS_H
#define PYTREEFS_SAFETENSORS_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"
#include "core/tree/safetensors_header.h"

struct st_tensor {
	struct span name, path; /* path: for messages */
	enum dtype dtype;
	uint8_t rank;
	const uint64_t *shape;
	uint64_t bytes;
	uint64_t off; /* out: in the file */
	uint32_t id;  /* the caller's: tensors are sorted */
};

/* An entry of `__metadata__`. */
struct st_text {
	struct span name, path, text;
};

/*
 * The length field and the header, in place of what ret holds; tensors are put into the order of
 * the file.
 * {"format": "pt"} is added to the texts, unless one of them is called so.
 * -EOPNOTSUPP: a dtype that the format cannot name; -EINVAL: two names that are equal, or
 * "__metadata__" for a tensor, or one that is not UTF-8; -EFBIG: the header is longer than readers
 * take. Notes name the tensors.
 */
int safetensors_header(struct st_tensor *tensor, size_t n, const struct st_text *text,
		       size_t n_texts, struct buf *ret);
/* -EOPNOTSUPP when the format has no name for the type. */
int safetensors_check_dtype(enum dtype t);

#endif
