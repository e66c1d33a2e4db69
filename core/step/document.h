/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.h - the bytes of a file of any size that is parsed as a whole.
 *
 * A small file is read into memory and charged to the meter. A large one is copied to an unlinked
 * temporary file, which is mapped, so it takes no memory of the process; the original is not
 * mapped, since truncating it would kill the process with SIGBUS. Holes remain holes and do not
 * count towards spill_limit.
 */
#ifndef PYTREEFS_DOCUMENT_H
#define PYTREEFS_DOCUMENT_H

#include "core/step/ckpt.h"

struct document {
	struct span text;
	struct buf buf; /* from here on private: how the bytes are held */
	void *map;
	struct io_file *copy;
};

/* Read or map an open file, which the caller may close afterwards. */
int document_of(struct ckpt *ckpt, struct io_file *file, struct document *ret);
/*
 * The same for a file by its name: -EFBIG if larger than limit, -ENOENT if absent, -EUCLEAN for a
 * directory.
 */
int document_read(struct ckpt *ckpt, struct io_dir *dir, const char *name, uint64_t limit,
		  struct document *ret);
/* Accepts a zeroed document. */
void document_release(struct document *d);
#define auto_document __attribute__((cleanup(document_release))) struct document

#endif
