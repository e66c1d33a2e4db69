/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.h - the header of an .npy file, bytes <-> struct.
 */
#ifndef PYTREEFS_NPY_H
#define PYTREEFS_NPY_H

#include "core/dtype/dtype.h"

struct npy {
	enum dtype dtype; /* DTYPE_UNKNOWN: a void type of one byte, '|V1', named elsewhere */
	unsigned item;    /* bytes an element */
	bool big_endian, fortran;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t data;  /* offset of the first element */
	uint64_t bytes; /* of all elements */
};

#define NPY_HEADER_MAX 65536 /* ours: numpy itself refuses headers beyond 10,000 characters */

/*
 * Parse the start of a file: 1 and the header; 0 when more bytes are needed; -EUCLEAN when it is
 * not an .npy file or breaks the format; -EOPNOTSUPP for a type that we do not have (objects,
 * strings, records), which it names.
 */
int npy_parse(struct span head, struct npy *ret);
/* As numpy writes it, 64-byte aligned. */
int npy_header(enum dtype t, unsigned rank, const uint64_t *shape, struct buf *ret);

#endif
