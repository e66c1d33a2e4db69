/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.h - the header of an .npy file, bytes <-> struct.
 */
#ifndef PYTREEFS_NPY_H
#define PYTREEFS_NPY_H

#include "core/dtype/dtype.h"

struct npy {
	/* DTYPE_UNKNOWN: '|V1', one byte per element; the caller knows which type it is */
	enum dtype dtype;
	unsigned item; /* bytes per element */
	bool big_endian, fortran;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t data;  /* offset of the first element */
	uint64_t bytes; /* size of all elements */
};

/* our limit; numpy itself refuses headers of more than 10,000 characters */
#define NPY_HEADER_MAX 65536

/*
 * Parse the start of a file. Returns 1 and sets ret, or 0 when the header needs more bytes.
 * -EUCLEAN: it is not an .npy file or breaks the format; -EOPNOTSUPP: it has a type that a
 * checkpoint cannot hold (objects, strings, records), which the note names.
 */
int npy_parse(struct span head, struct npy *ret);
/* Append the header to ret as numpy writes it: the data then begins at a multiple of 64 bytes. */
int npy_header(const struct array_type *t, struct buf *ret);

#endif
