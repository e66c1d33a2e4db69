/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.h - the bytes of a file that is parsed as a whole, however large.
 *
 * A small one is read, and charged to the meter. A large one is copied to an unlinked temporary
 * file and mapped, so that it takes no memory of the process: a copy, since nobody can truncate it
 * while it is read. Holes stay holes, and take no place in spill_limit.
 */
#ifndef PYTREEFS_DOCUMENT_H
#define PYTREEFS_DOCUMENT_H

#include "core/step/ckpt.h"

struct document {
	struct span text;
	struct buf buf; /* private from here: how the bytes are held */
	void *map;
	struct io_file *copy;
};

/* Of an open file, which is not needed afterwards. */
int document_of(struct ckpt *ckpt, struct io_file *file, struct document *ret);
/* As io_read_file(): -EFBIG above limit, -ENOENT when absent, -EUCLEAN for a directory. */
int document_read(struct ckpt *ckpt, struct io_dir *dir, const char *name, uint64_t limit,
		  struct document *ret);
/* Accepts a zeroed one. */
void document_release(struct document *d);
#define auto_document __attribute__((cleanup(document_release))) struct document

#endif
