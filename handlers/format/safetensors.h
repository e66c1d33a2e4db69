/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - write the header of a safetensors file. No I/O; core/tree/safetensors_header.h
 * parses headers.
 *
 * Tensors lie by data type, the widest first, as the official writer has them, so that each is
 * aligned to its element size; those of one type in the order of the tree. (The official writer has
 * them by name, where layer 10 is before layer 2.)
 */
#ifndef PYTREEFS_SAFETENSORS_H
#define PYTREEFS_SAFETENSORS_H

#include "core/base/arena.h"
#include "core/dtype/dtype.h"
#include "core/tree/safetensors_header.h"

struct st_tensor {
	struct span name, path; /* path: the leaf's, for messages */
	struct array_type array;
	uint64_t bytes;
	uint64_t off; /* output: offset in the file */
	uint32_t id;  /* set by the caller: the place in the order of the tree */
};

/* An entry of `__metadata__`. */
struct st_text {
	struct span name, path, text;
};

/*
 * Replace the contents of ret by the length field and the header. Sorts the tensors into the order
 * of the file and sets their offsets. Adds {"format": "pt"} to the texts unless one has that name.
 * Notes name the leaf. -EOPNOTSUPP: the format has no name for a dtype; -EINVAL: two names are
 * equal, or one is "__metadata__" or not UTF-8; -EFBIG: the header is longer than readers accept.
 */
int safetensors_header(struct st_tensor *tensor, size_t n, const struct st_text *text,
		       size_t n_texts, struct buf *ret);

#endif
